//! Traces, metrics and logs over OTLP, by gRPC or HTTP, as the variables `OTEL_*` say.
//!
//! Exporters have a runtime of their own, and the threads that call them are none of the holder's: with one worker thread
//! a round does not wait for a collector either.

mod http;
mod metrics;
mod settings;
mod trust;
mod watched;

use self::http::{Http, Why};
use self::settings::{Protocol, Signal, Way};
use self::watched::Watched;
use super::Sink;
use crate::holder::Holder;
use crate::live::Unusable;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_otlp::{
    ExporterBuildError, LogExporter, MetricExporter, SpanExporter, WithHttpConfig as _, WithTonicConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::sync::mpsc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{EnvFilter, filter_fn};

/// The name of the instrumentation scope, and of the service if nothing else is said.
const NAME: &str = "pgsemaphore";
/// How long the end may take to send what is left.
const END: Duration = Duration::from_secs(2);
/// What sends is not to log what it sends.
const NOT_SENT: &str = "opentelemetry=off,opentelemetry_sdk=off,opentelemetry_otlp=off,tonic=off,h2=off,hyper=off,\
                        hyper_util=off,reqwest=off,rustls=off,tower=off";

/// What is sent.
#[derive(Debug)]
pub(super) struct Otlp {
    runtime: Runtime,
    traces: Option<SdkTracerProvider>,
    metrics: Option<SdkMeterProvider>,
    logs: Option<SdkLoggerProvider>,
}

impl Otlp {
    /// Nothing if the environment names no collector.
    ///
    /// # Errors
    /// A variable says what can't be done.
    pub(super) fn start() -> Result<Option<Self>, Unusable> {
        let variables = |name: &str| std::env::var(name).ok();
        let [traces, metrics, logs] = Signal::ALL.map(|signal| signal.way(&variables));
        let (traces, metrics, logs) = (traces?, metrics?, logs?);
        if traces.or(metrics).or(logs).is_none() {
            return Ok(None);
        }
        let runtime = runtime()?;
        let _within = runtime.enter();
        Ok(Some(Self {
            traces: traces.map(|way| tracer_provider(way, &runtime)).transpose()?,
            metrics: metrics.map(|way| meter_provider(way, &runtime)).transpose()?,
            logs: logs.map(|way| logger_provider(way, &runtime)).transpose()?,
            runtime,
        }))
    }

    /// Hand on spans of this program, and logs that pass `filter`.
    pub(super) fn layers(&self, filter: &str) -> Vec<Sink> {
        let traces = self.traces.as_ref().map(|provider| {
            let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer(NAME));
            let layer = layer.with_location(false).with_threads(false).with_tracked_inactivity(false);
            let own = filter_fn(|metadata| {
                metadata.target().starts_with(NAME) && *metadata.level() <= tracing::Level::INFO
            });
            layer.with_filter(own).boxed()
        });
        let logs = self.logs.as_ref().map(|provider| {
            let filter = EnvFilter::new(format!("{filter},{NOT_SENT}"));
            OpenTelemetryTracingBridge::new(provider).with_filter(filter).boxed()
        });
        traces.into_iter().chain(logs).collect()
    }

    /// Sends what the holder counts.
    pub(super) fn observe(&self, holder: &Holder) {
        if let Some(provider) = &self.metrics {
            metrics::observe(&provider.meter(NAME), holder);
        }
    }

    /// Sends what is left, all signals at once, if that is soon enough.
    pub(super) fn end(self) {
        let Self { runtime, traces, metrics, logs } = self;
        let (ended, wait) = mpsc::channel::<()>();
        let end = |end: Box<dyn FnOnce() + Send>| {
            let ended = ended.clone();
            std::thread::spawn(move || {
                end();
                drop(ended);
            });
        };
        // What a provider could not do has been told by its exporter.
        if let Some(traces) = traces {
            end(Box::new(move || drop(traces.shutdown_with_timeout(END))));
        }
        if let Some(metrics) = metrics {
            end(Box::new(move || drop(metrics.shutdown_with_timeout(END))));
        }
        if let Some(logs) = logs {
            end(Box::new(move || drop(logs.shutdown_with_timeout(END))));
        }
        drop(ended);
        // Nothing is sent; the channel closes when the last of them ends.
        let _ = wait.recv_timeout(END);
        // Exporters that are too late go on until the process ends: without their runtime they would panic.
        std::mem::forget(runtime);
    }
}

fn runtime() -> Result<Runtime, Unusable> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("otlp")
        .enable_all()
        .build()
        .map_err(|why| {
            Unusable::new("OTEL_EXPORTER_OTLP_ENDPOINT", format!("a thread can't be started: {why}"))
        })
}

fn resource() -> Resource {
    let resource = Resource::builder();
    let said = |name: &str| std::env::var(name).unwrap_or_default();
    if said("OTEL_SERVICE_NAME").is_empty() && !said("OTEL_RESOURCE_ATTRIBUTES").contains("service.name=") {
        return resource.with_service_name(NAME).build();
    }
    resource.build()
}

fn tracer_provider(way: Way, runtime: &Runtime) -> Result<SdkTracerProvider, Unusable> {
    let why = Why::default();
    let exporter = match way.protocol {
        Protocol::Grpc if way.encrypted => {
            SpanExporter::builder().with_tonic().with_tls_config(trust::of_grpc()?).build()
        }
        Protocol::Grpc => SpanExporter::builder().with_tonic().build(),
        Protocol::Http => {
            let client = Http::new(trust::of_http(way.encrypted)?, &why);
            SpanExporter::builder().with_http().with_http_client(client).build()
        }
    };
    let exporter = Watched::new(exporter.map_err(unusable)?, runtime.handle(), "traces", why);
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource()).build())
}

fn meter_provider(way: Way, runtime: &Runtime) -> Result<SdkMeterProvider, Unusable> {
    let why = Why::default();
    let exporter = match way.protocol {
        Protocol::Grpc if way.encrypted => {
            MetricExporter::builder().with_tonic().with_tls_config(trust::of_grpc()?).build()
        }
        Protocol::Grpc => MetricExporter::builder().with_tonic().build(),
        Protocol::Http => {
            let client = Http::new(trust::of_http(way.encrypted)?, &why);
            MetricExporter::builder().with_http().with_http_client(client).build()
        }
    };
    let exporter = Watched::new(exporter.map_err(unusable)?, runtime.handle(), "metrics", why);
    Ok(SdkMeterProvider::builder().with_periodic_exporter(exporter).with_resource(resource()).build())
}

fn logger_provider(way: Way, runtime: &Runtime) -> Result<SdkLoggerProvider, Unusable> {
    let why = Why::default();
    let exporter = match way.protocol {
        Protocol::Grpc if way.encrypted => {
            LogExporter::builder().with_tonic().with_tls_config(trust::of_grpc()?).build()
        }
        Protocol::Grpc => LogExporter::builder().with_tonic().build(),
        Protocol::Http => {
            let client = Http::new(trust::of_http(way.encrypted)?, &why);
            LogExporter::builder().with_http().with_http_client(client).build()
        }
    };
    let exporter = Watched::new(exporter.map_err(unusable)?, runtime.handle(), "logs", why);
    Ok(SdkLoggerProvider::builder().with_batch_exporter(exporter).with_resource(resource()).build())
}

fn unusable(error: ExporterBuildError) -> Unusable {
    Unusable::new("OTEL_EXPORTER_OTLP_*", error.to_string())
}
