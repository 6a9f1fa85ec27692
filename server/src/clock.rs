//! This process's monotonic clock, for durations only. Moments that matter come from the database.

use std::time::Instant;

/// The present moment.
#[expect(clippy::disallowed_methods, reason = "this is the one reader of the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
