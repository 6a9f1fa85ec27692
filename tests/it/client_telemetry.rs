//! Traces, metrics and logs of the client crate, as an application sends them by OTLP.

use std::collections::BTreeSet;

use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_otlp::{LogExporter, MetricExporter, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use pgsemaphore_tests::{Caller, Collector, Db, InProcess, Mode, Proxy, until, until_some};
use queue_client::QueueClient;
use serde_json::json;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;

/// What an application sets up, for its one thread.
struct Application {
    traces: SdkTracerProvider,
    metrics: SdkMeterProvider,
    logs: SdkLoggerProvider,
    _here: DefaultGuard,
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
            _here: tracing::subscriber::set_default(subscriber),
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
    let way = Proxy::before(holder.url()).await;
    let policy = json!({"limit": 1, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000});
    Caller::of(holder.url()).policy("*", &policy).await;
    let client = QueueClient::builder()
        .url(way.through(holder.url()))
        .meter(application.metrics.meter("queue-client"))
        .build()
        .expect("a client");
    let account = client.semaphore("account:42");
    let permit = account.acquire("nightly").await.expect("a permit");
    let waiting = tokio::spawn(async move { account.acquire("nightly").await.map(drop) });
    let metric = async |name: &str| {
        application.flush().await;
        collector.metric(&format!("queue_client.{name}"))
    };
    until("it waits", async || metric("waiting").await == Some(1.0)).await;
    assert_eq!(metric("permits_in_use").await, Some(1.0));

    way.set(Mode::Cut);
    drop(permit);
    until("nobody answers", async || metric("unreachable_semaphores").await == Some(1.0)).await;
    way.set(Mode::Pass);
    waiting.await.expect("no panic").expect("a permit");
    client.drain().await.expect("drained");
    for (name, value) in
        [("permits_granted", 2.0), ("permits_released", 2.0), ("acquire", 2.0), ("waiting", 0.0)]
    {
        assert_eq!(metric(name).await, Some(value), "{name}");
    }

    let series = collector.series();
    let names: BTreeSet<String> = series.iter().map(|series| series.name.clone()).collect();
    assert_eq!(names, documented());
    let attributes: BTreeSet<&str> =
        series.iter().flat_map(|series| series.attributes.keys().map(String::as_str)).collect();
    assert_eq!(attributes, BTreeSet::from(["cause", "endpoint", "outcome"]));
    let acquires = collector.spans().into_iter().filter(|span| span.name == "acquire").count();
    assert_eq!(acquires, 2);
    for text in ["no holder answers: calls are repeated until one does", "a holder answers again"] {
        let log = until_some(text, async || {
            application.flush().await;
            collector.logs().into_iter().find(|log| log.body == text)
        })
        .await;
        assert_eq!(log.attributes["key"], "account:42");
    }
}
