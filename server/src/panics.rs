//! Panics in the tasks of a holder: each is counted and logged, and what it ended starts anew.
//!
//! A panic is a fault of this program or of code that it calls, such as a layer of `tracing`. It must cost one task its
//! current work and no more: a key or a duty that stayed silent afterwards would look healthy from outside. Callers of a
//! task that panicked get 503 and ask again.

use crate::holder::Shared;
use crate::housekeeping::pause;
use crate::metrics::Metrics;
use futures_util::FutureExt as _;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// A duty that panicked starts anew after this at most, and after half of it at least.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs `work`. None: it panicked, which is counted and logged as a panic of `task`.
pub(crate) async fn caught<T>(
    task: &'static str,
    metrics: &Metrics,
    work: impl Future<Output = T>,
) -> Option<T> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(value) => Some(value),
        Err(panic) => {
            metrics.panics.add([task.into()], 1);
            log(task, panic.as_ref());
            None
        }
    }
}

/// Runs a duty of the holder until it ends by itself, and starts it anew after each panic, until the holder stops.
pub(crate) async fn keep<F>(task: &'static str, shared: Arc<Shared>, duty: impl Fn(Arc<Shared>) -> F)
where
    F: Future<Output = ()>,
{
    while caught(task, shared.store.metrics(), duty(shared.clone())).await.is_none() {
        if pause(&shared, PAUSE.mul_f64(rand::random_range(0.5..1.0))).await {
            return;
        }
    }
}

/// Logs a panic. A layer of `tracing` may be what panics, so this does not panic itself.
pub(crate) fn log(task: &'static str, panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let why = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
    let line = || {
        tracing::error!(task, why, "a task panicked: this is a fault of pgsemaphore; the task starts anew")
    };
    let _panics_too = catch_unwind(AssertUnwindSafe(line));
}
