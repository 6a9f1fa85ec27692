//! Whether the server that the database's address leads to can be used, and when it is tried again.
//!
//! After a failover the address may lead to a standby for a while, or connections to one may be open that once was right.
//! New connections are looked at before they are used. Once a statement was refused as a write, all connections that are
//! open are distrusted: each is closed instead of being used again, and the address is asked anew.

use super::StoreError;
use crate::clock;
use sqlx::{PgConnection, Row as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The pause after one failure to get a connection; it doubles with each further one.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Why rounds can't be run on a server that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfit {
    NotDurable,
    Standby,
    ReadOnly,
}

/// What is known of the server.
#[derive(Debug, Default)]
pub(super) struct Fitness(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// What the latest new connection showed.
    unfit: Option<Unfit>,
    /// Connections that are older than this are not to be used again.
    distrusted: Option<Instant>,
    /// How often no connection could be had, one after the other.
    failures: u32,
    /// No connection is asked for before this.
    retry_at: Option<Instant>,
}

impl From<Unfit> for StoreError {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::NotDurable => Self::NotDurable,
            Unfit::Standby => Self::Standby,
            Unfit::ReadOnly => Self::ReadOnly,
        }
    }
}

/// Looks at a new connection, in the simple protocol: what is parsed here need not be known where it is executed, see
/// `connections.rs`.
pub(super) async fn examine(connection: &mut PgConnection) -> Result<Option<Unfit>, sqlx::Error> {
    let row = sqlx::raw_sql(include_str!("../../queries/read_fitness.sql")).fetch_one(connection).await?;
    Ok(if row.try_get("standby")? {
        Some(Unfit::Standby)
    } else if row.try_get("read_only")? {
        Some(Unfit::ReadOnly)
    } else if !row.try_get::<bool, _>("durable")? {
        Some(Unfit::NotDurable)
    } else {
        None
    })
}

/// A write that the server refused as such.
pub(super) fn refused_write(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(e) if e.code().as_deref() == Some("25006"))
}

impl Fitness {
    /// What a new connection showed.
    pub(super) fn found(&self, unfit: Option<Unfit>) {
        self.known().unfit = unfit;
    }

    /// Why the server can't be used, as far as it is known.
    pub(super) fn unfit(&self) -> Option<Unfit> {
        self.known().unfit
    }

    /// Connections that are open now are not to be used again.
    pub(super) fn distrust(&self) {
        self.known().distrusted = Some(clock::now());
    }

    /// Whether a connection that has been open for so long may be used.
    pub(super) fn trusts(&self, age: Duration) -> bool {
        self.known().distrusted.is_none_or(|since| age < since.elapsed())
    }

    /// How long to wait before a connection is asked for: nothing, unless the last time failed.
    pub(super) fn pause(&self) -> Duration {
        let retry_at = self.known().retry_at;
        retry_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(clock::now()))
    }

    /// A connection could be had.
    pub(super) fn succeeded(&self) {
        let mut known = self.known();
        (known.failures, known.retry_at) = (0, None);
    }

    /// None could. Pauses differ from holder to holder, so that they don't come back all at once.
    pub(super) fn failed(&self) {
        let mut known = self.known();
        let longest = PAUSE.saturating_mul(1 << known.failures.min(10)).min(PAUSE_MAX);
        known.failures += 1;
        known.retry_at = Some(clock::now() + longest.mul_f64(rand::random_range(0.5..1.0)));
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Fitness, PAUSE_MAX};
    use std::time::Duration;

    #[test]
    fn pauses_grow_to_a_second_and_end_with_a_success() {
        let fitness = Fitness::default();
        assert_eq!(fitness.pause(), Duration::ZERO);
        for _ in 0..100 {
            fitness.failed();
            assert!(fitness.pause() <= PAUSE_MAX);
        }
        assert!(fitness.pause() > PAUSE_MAX / 4);
        fitness.succeeded();
        assert_eq!(fitness.pause(), Duration::ZERO);
    }

    #[test]
    fn what_is_older_than_the_distrust_is_not_trusted() {
        let fitness = Fitness::default();
        assert!(fitness.trusts(Duration::MAX));
        fitness.distrust();
        assert!(!fitness.trusts(Duration::from_secs(3600)));
        std::thread::sleep(Duration::from_millis(1));
        assert!(fitness.trusts(Duration::ZERO));
    }
}
