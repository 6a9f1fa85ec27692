//! Lines for people: in the application's log, else on standard error.
//!
//! Why: a wrong address and a forgotten `drain` are mistakes of the first hour, in which an application has no log yet.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs what calls code of the application: a panic there is told by the panic hook, and ends nothing here.
pub(crate) fn guarded(tell: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(tell));
}

/// A warning that has to be seen once: without a `tracing` subscriber it is written on standard error, if `aloud`.
pub(crate) fn warn(aloud: bool, text: &str) {
    guarded(|| tracing::warn!("{text}"));
    if aloud {
        on_standard_error(text);
    }
}

/// A line on standard error, in a process without a `tracing` subscriber.
pub(crate) fn on_standard_error(text: &str) {
    if !tracing::dispatcher::has_been_set() {
        // It may be closed.
        let _ = std::io::stderr().write_all(format!("queue-client: {text}\n").as_bytes());
    }
}
