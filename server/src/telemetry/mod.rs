//! What a process tells about itself: logs on standard error, and by OTLP traces, metrics and logs.
//!
//! OTLP is off unless a variable `OTEL_EXPORTER_OTLP_ENDPOINT`, or one of a signal, names a collector. What is told waits
//! in queues of limited length for a thread of its own; what finds no place is dropped. So a collector that hangs or
//! refuses delays nothing but the end of the process, by at most two seconds.

mod logs;
#[cfg(feature = "otlp")]
mod otlp;
mod printable;
pub(crate) mod spans;

pub(crate) use logs::LogArgs;

use crate::holder::Holder;
use crate::live::Unusable;
use std::backtrace::{Backtrace, BacktraceStatus};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Layer, SubscriberExt as _};

/// Where events and spans go.
type Sink = Box<dyn Layer<Registry> + Send + Sync>;

/// A panic may quote what a caller sent: it is logged like everything else.
fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string);
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    tracing::error!(
        place,
        backtrace,
        "a bug: panicked: {}",
        panic.payload_as_str().unwrap_or("without words")
    );
}

/// Tells until its end.
#[derive(Debug)]
pub(crate) struct Telemetry {
    #[cfg(feature = "otlp")]
    otlp: Option<otlp::Otlp>,
}

impl Telemetry {
    /// Starts to log. A holder (`serves`) also uses the collector that the environment names.
    ///
    /// # Errors
    /// A variable says what can't be done.
    pub(crate) fn start(logs: &LogArgs, serves: bool) -> Result<Self, Unusable> {
        #[cfg(feature = "otlp")]
        let telemetry = Self { otlp: if serves { otlp::Otlp::start()? } else { None } };
        #[cfg(not(feature = "otlp"))]
        let telemetry = Self {};
        let more = telemetry.layers(&logs.filter(serves));
        let layers: Vec<Sink> = std::iter::once(logs.layer(serves)).chain(more).collect();
        // Not `init`, which also takes what is told by the crate `log`. With that libraries ask whether a thing would be told
        // and then don't tell it; filters of single layers keep the "no" for the next event, which would be lost.
        let set = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layers));
        debug_assert!(set.is_ok(), "a process starts to log once");
        std::panic::set_hook(Box::new(log_panic));
        Ok(telemetry)
    }

    /// Where spans go, and events that pass `filter`, beside standard error.
    fn layers(&self, filter: &str) -> Vec<Sink> {
        #[cfg(feature = "otlp")]
        return self.otlp.iter().flat_map(|otlp| otlp.layers(filter)).collect();
        #[cfg(not(feature = "otlp"))]
        {
            let _ = filter;
            Vec::new()
        }
    }

    /// Tells what the holder counts, too.
    pub(crate) fn observe(&self, holder: &Holder) {
        #[cfg(feature = "otlp")]
        if let Some(otlp) = &self.otlp {
            otlp.observe(holder);
        }
        #[cfg(not(feature = "otlp"))]
        let _ = holder;
    }

    /// Sends what was told and not sent yet, if that is soon enough. Blocks; not for a thread of the runtime.
    pub(crate) fn end(self) {
        #[cfg(feature = "otlp")]
        if let Some(otlp) = self.otlp {
            otlp.end();
        }
    }
}
