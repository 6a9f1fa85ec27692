//! Traces, metrics and logs of the client crate, as an application sends them by OTLP.

use std::collections::BTreeSet;

use crate::listening::{Listening, listen};
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_otlp::{LogExporter, MetricExporter, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use pgsemaphore_tests::{Caller, Collector, Db, InProcess, Mode, Proxy, until};
use queue_client::QueueClient;
use serde_json::json;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;

/// What is logged of an outage.
const OUTAGE: [&str; 2] = ["no holder answers: calls are repeated until one does", "a holder answers again"];

/// What an application sets up, for its one thread.
struct Application {
    traces: SdkTracerProvider,
    metrics: SdkMeterProvider,
    logs: SdkLoggerProvider,
    _here: Listening,
}

impl Application {
    fn new(collector: &Collector) -> Self {
        let url = collector.url();
        let spans = SpanExporter::builder().with_tonic().with_endpoint(url).build().expect("an exporter");
        let metrics = MetricExporter::builder().with_tonic().with_endpoint(url).build().expect("an exporter");
        let logs = LogExporter::builder().with_tonic().with_endpoint(url).build().expect("an exporter");
        let traces = SdkTracerProvider::builder().with_batch_exporter(spans).build();
        let logs = SdkLoggerProvider::builder().with_batch_exporter(logs).build();
        // One filter for all: those of single layers lose what follows a mere question whether something is enabled, and
        // the holder's database driver asks in this thread.
        let own = filter_fn(|metadata| metadata.target().starts_with("queue_client"));
        let spans = tracing_opentelemetry::layer().with_tracer(traces.tracer("application"));
        let bridge = OpenTelemetryTracingBridge::new(&logs);
        let subscriber = tracing_subscriber::registry().with(own).with(spans).with(bridge);
        Self {
            metrics: SdkMeterProvider::builder().with_periodic_exporter(metrics).build(),
            _here: listen(subscriber),
            traces,
            logs,
        }
    }

    /// Sends what there is now.
    async fn flush(&self) {
        until("all of it is sent", async || {
            let (traces, metrics, logs) = (self.traces.clone(), self.metrics.clone(), self.logs.clone());
            let flush = move || (traces.force_flush(), metrics.force_flush(), logs.force_flush());
            let flushed = tokio::task::spawn_blocking(flush).await.expect("no panic");
            matches!(flushed, (Ok(()), Ok(()), Ok(())))
        })
        .await;
    }
}

/// Names between backticks that could be a metric's of the client.
fn documented() -> BTreeSet<String> {
    let document = include_str!("../../docs/telemetry.md");
    let code = document.split('`').skip(1).step_by(2);
    code.filter(|code| code.starts_with("queue_client.")).map(str::to_owned).collect()
}

#[tokio::test]
async fn metrics_and_logs_of_a_client_arrive_beside_its_spans_and_are_those_that_are_documented() {
    let (db, collector) = (Db::new().await, Collector::start().await);
    let application = Application::new(&collector);
    let holder = InProcess::start(db.url()).await;
    let way = Proxy::of_http1(holder.url()).await;
    let policy = json!({"limit": 1, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000});
    Caller::of(holder.url()).policy("*", &policy).await;
    let client = QueueClient::builder()
        .url(way.through(holder.url()))
        .meter(application.metrics.meter("queue-client"))
        .build()
        .expect("a client");
    let account = client.semaphore("account:42");
    let metric = async |name: &str| {
        application.flush().await;
        collector.metric(&format!("queue_client.{name}"))
    };
    let permit = account.acquire("nightly").await.expect("a permit");
    let waits = || {
        let account = account.clone();
        tokio::spawn(async move { account.acquire("nightly").await.map(drop) })
    };
    let waiting = waits();
    until("it waits", async || metric("waiting").await == Some(1.0)).await;
    assert_eq!(metric("permits_in_use").await, Some(1.0));
    drop(permit);
    waiting.await.expect("no panic").expect("a permit");

    // What a busy machine does not take in time the exporter gives up: there are outages until one has arrived.
    until("an outage is in the logs, and who waited in the traces", async || {
        way.set(Mode::Cut);
        let waiting = waits();
        until("nobody answers", async || metric("unreachable_semaphores").await == Some(1.0)).await;
        way.set(Mode::Pass);
        waiting.await.expect("no panic").expect("a permit");
        application.flush().await;
        let logs = collector.logs();
        let told =
            |text: &&str| logs.iter().any(|log| log.body == *text && log.attributes["key"] == "account:42");
        OUTAGE.iter().all(told) && collector.spans().iter().any(|span| span.name == "acquire")
    })
    .await;
    client.drain().await.expect("drained");
    let granted = metric("permits_granted").await;
    assert!(granted >= Some(3.0), "{granted:?}");
    for name in ["permits_released", "acquire"] {
        assert_eq!(metric(name).await, granted, "{name}");
    }
    assert_eq!(metric("waiting").await, Some(0.0));

    let series = collector.series();
    let names: BTreeSet<String> = series.iter().map(|series| series.name.clone()).collect();
    assert_eq!(names, documented());
    let attributes: BTreeSet<&str> =
        series.iter().flat_map(|series| series.attributes.keys().map(String::as_str)).collect();
    assert_eq!(attributes, BTreeSet::from(["cause", "endpoint", "outcome"]));
}
