//! What a holder's log says of a database in trouble: a line a second at most, however many calls fail by it.

use crate::clock;
use crate::store::StoreError;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines come no closer than this.
const EVERY: Duration = Duration::from_secs(1);

static LATEST: Mutex<Latest> = Mutex::new(Latest { at: None, unsaid: 0 });

struct Latest {
    at: Option<Instant>,
    /// What was left out since.
    unsaid: u64,
}

/// Logs what the database did not do. While it is away the same goes for all that is done, and one example a second is
/// enough. A fault of this program is always logged.
pub(crate) fn tell(what: &dyn Display, error: &StoreError) {
    if !error.is_outage() {
        tracing::error!(%error, "{what}");
    } else if let Some(unsaid) = next() {
        tracing::warn!(%error, unsaid, "{what}");
    }
}

/// How many lines were left out before this one; none if it has to be left out itself.
fn next() -> Option<u64> {
    let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
    if latest.at.is_some_and(|at| at.elapsed() < EVERY) {
        latest.unsaid += 1;
        return None;
    }
    latest.at = Some(clock::now());
    Some(std::mem::take(&mut latest.unsaid))
}
