//! An exporter that can't hang, and whose failures are told once a minute.

use super::http::Why;
use crate::clock;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::logs::{LogBatch, LogExporter};
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// A batch that is not sent within this, repetitions included, is given up.
const EXPORT_MAX: Duration = Duration::from_secs(15);
/// Failures are told this often.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// An exporter that works on a runtime of its own, from whatever thread it is called.
#[derive(Debug)]
pub(super) struct Watched<E> {
    exporter: E,
    runtime: Handle,
    what: &'static str,
    why: Why,
    complained: Mutex<Option<Instant>>,
}

impl<E> Watched<E> {
    pub(super) fn new(exporter: E, runtime: &Handle, what: &'static str, why: Why) -> Self {
        Self { exporter, runtime: runtime.clone(), what, why, complained: Mutex::default() }
    }

    async fn bounded(&self, export: impl Future<Output = OTelSdkResult> + Send) -> OTelSdkResult {
        let sent = on(&self.runtime, async { tokio::time::timeout(EXPORT_MAX, export).await }).await;
        let result = sent.unwrap_or(Err(OTelSdkError::Timeout(EXPORT_MAX)));
        if let Err(error) = &result {
            self.complain(error);
        }
        result
    }

    fn complain(&self, error: &OTelSdkError) {
        let mut complained = self.complained.lock().unwrap_or_else(PoisonError::into_inner);
        if complained.is_none_or(|at| at.elapsed() >= COMPLAIN_EVERY) {
            *complained = Some(clock::now());
            tracing::warn!(%error, why = self.why.take(), "{} could not be sent to the collector", self.what);
        }
    }
}

/// What `work` results in, which is done within `runtime` wherever it is waited for.
async fn on<T>(runtime: &Handle, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    std::future::poll_fn(|context| -> Poll<T> {
        let _within = runtime.enter();
        work.as_mut().poll(context)
    })
    .await
}

impl<E: SpanExporter> SpanExporter for Watched<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.bounded(self.exporter.export(batch)).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl<E: LogExporter> LogExporter for Watched<E> {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        self.bounded(self.exporter.export(batch)).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl<E: PushMetricExporter> PushMetricExporter for Watched<E> {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        self.bounded(self.exporter.export(metrics)).await
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.exporter.temporality()
    }
}
