//! What the application's meter shows of a client.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ResourceMetrics};
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{SdkMeterProvider, Temporality};
use queue_client::wire::{Reply, Status};
use queue_client::{CallError, Endpoint, QueueClient};
use tokio::time::advance;

use crate::scripted::{client_of, lease, waits};

/// Values by name and the value of the last attribute, if any; of a distribution, how many.
type Values = BTreeMap<(String, String), u64>;

/// The application's side.
#[derive(Clone, Default)]
struct Shown(Arc<Mutex<Values>>);

impl PushMetricExporter for Shown {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let metrics = metrics.scope_metrics().flat_map(|scope| scope.metrics());
        *self.0.lock().unwrap() = metrics
            .flat_map(|metric| {
                points(metric.data()).into_iter().map(|(by, value)| ((metric.name().to_owned(), by), value))
            })
            .collect();
        Ok(())
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn temporality(&self) -> Temporality {
        Temporality::Cumulative
    }
}

fn points(data: &AggregatedMetrics) -> Vec<(String, u64)> {
    let by = |attributes: Vec<&opentelemetry::KeyValue>| {
        attributes.iter().map(|attribute| attribute.value.to_string()).collect::<Vec<_>>().join(" ")
    };
    match data {
        AggregatedMetrics::U64(MetricData::Sum(sum)) => {
            sum.data_points().map(|point| (by(point.attributes().collect()), point.value())).collect()
        }
        AggregatedMetrics::U64(MetricData::Gauge(gauge)) => {
            gauge.data_points().map(|point| (by(point.attributes().collect()), point.value())).collect()
        }
        AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
            histogram.data_points().map(|point| (by(point.attributes().collect()), point.count())).collect()
        }
        other => panic!("{other:?}"),
    }
}

struct Application {
    provider: SdkMeterProvider,
    shown: Shown,
}

impl Application {
    fn new() -> Self {
        let shown = Shown::default();
        Self { provider: SdkMeterProvider::builder().with_periodic_exporter(shown.clone()).build(), shown }
    }

    /// What is not 0 now.
    fn look(&self) -> BTreeMap<String, u64> {
        self.provider.force_flush().unwrap();
        let values = self.shown.0.lock().unwrap();
        let values = values.iter().filter(|(_, value)| **value > 0);
        values.map(|((name, by), value)| (format!("{name} {by}").trim_end().to_owned(), *value)).collect()
    }
}

fn values(expected: &[(&str, u64)]) -> BTreeMap<String, u64> {
    expected.iter().map(|(name, value)| (format!("queue_client.{name}"), *value)).collect()
}

#[tokio::test(start_paused = true)]
async fn permits_waits_and_calls_are_counted_and_no_key_group_or_client_is_named() {
    let application = Application::new();
    let meter = application.provider.meter("queue-client");
    let (client, mut holder) = client_of(QueueClient::builder().client_id("worker").meter(meter));
    let group = client.semaphore("account:42").group("g");
    let mut acquire = Box::pin(group.acquire());
    assert!(waits(&mut acquire).await);
    let unanswered = holder.request_of(1).await;
    assert_eq!(application.look(), values(&[("waiting asked", 1)]));
    unanswered.answer(Err(CallError::Unreachable("no route".into())));
    holder.rests().await;
    let away = [("call request unreachable", 1), ("waiting unreachable", 1), ("unreachable_semaphores", 1)];
    assert_eq!(application.look(), values(&away));

    holder.request_of(1).await.answer(holder.lend(&[("l", "g", 4)]));
    let permit = acquire.await.unwrap();
    let other = client.semaphore("account:42").group("h");
    let mut given_up = Box::pin(other.acquire());
    assert!(waits(&mut given_up).await);
    drop(given_up);
    drop(group.acquire().await.unwrap());
    drop(group.try_acquire());
    holder.rests().await;
    let mut shown = application.look();
    shown.retain(|name, _| !name.starts_with("queue_client.call"));
    let lent = [
        ("acquire served", 1),
        ("acquire given_up", 1),
        ("permits_leased", 4),
        ("permits_drawn", 1),
        ("permits_in_use", 1),
        ("permits_idle", 1),
    ];
    assert_eq!(shown, values(&lent), "what is drawn without a word is counted later");

    // It is reported, and then the holder wants it back.
    drop(permit);
    let parked = loop {
        let asked = holder.expect(Endpoint::Sync).await;
        if asked.is_parked() {
            break asked;
        }
        let heard = holder.hear(&asked);
        asked.answer(Ok(heard));
    };
    let retired = Reply { leases: vec![lease("l", Status::Retired)], ..holder.hear(&parked) };
    parked.answer(Ok(retired));
    let mut shown = BTreeMap::new();
    while !shown.contains_key("queue_client.leases_retired") {
        advance(Duration::from_millis(10)).await;
        holder.rests().await;
        shown = application.look();
    }
    let counted = |name: &str| shown.get(&format!("queue_client.{name}")).copied();
    assert_eq!((counted("permits_drawn"), counted("permits_released")), (Some(3), Some(3)));
    assert_eq!((counted("permits_in_use"), counted("permits_idle")), (None, None));
}
