//! The one opener of transactions: SERIALIZABLE, repeated whole on conflicts, answered only after COMMIT.

use super::connections::{Lent, bounded};
use super::phases::{Phase, Phases};
use super::{Store, StoreError};
use crate::telemetry::spans;
use backon::{BackoffBuilder, ExponentialBuilder};
use pgsemaphore_allocation::SemaphoreKey;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tracing::Instrument as _;

/// Attempts before a transaction gives up.
const ATTEMPTS: usize = 12;
/// Of them, how many may find the row locked for as long as a statement waits for it. Together they wait longer than
/// PostgreSQL leaves a row to a holder that is frozen; a row that is locked for longer makes its callers ask again.
const ATTEMPTS_AT_A_LOCK: usize = 2;

/// One attempt at a transaction of one key.
pub(crate) struct Attempt {
    /// The connection, in a transaction.
    pub(crate) tx: Lent,
    /// Random, written into the key's row: tells whose COMMIT went through.
    pub(crate) writer: i64,
    /// The key's version that this attempt writes, once it holds the row.
    pub(crate) version: Option<i64>,
    /// What it spends its time on.
    pub(crate) phases: Phases,
}

/// How an attempt ends.
pub(crate) enum Step<T> {
    /// What was written is to be committed.
    Commit(T),
    /// There is nothing to write.
    RollBack(T),
}

/// What a transaction resulted in, and how that came about.
pub(crate) struct Ran<T> {
    pub(crate) value: T,
    /// How many attempts it took.
    pub(crate) attempts: usize,
    /// What the last of them spent its time on.
    pub(crate) phases: Phases,
}

/// What transactions did since the store was opened.
#[derive(Debug, Default)]
pub(super) struct Counters {
    attempts: AtomicU64,
    repeated: AtomicU64,
}

/// How often transactions were attempted, and how many of those attempts had to be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempts {
    /// Attempts begun.
    pub begun: u64,
    /// Of those, how many other transactions or a broken connection ended.
    pub repeated: u64,
}

/// The body of a transaction.
pub(crate) trait Body {
    /// What it results in.
    type Output;

    /// The statement that begins an attempt.
    fn begin(&self) -> &'static str {
        "BEGIN ISOLATION LEVEL SERIALIZABLE"
    }

    /// Does one attempt. Must read everything afresh: the attempts before it never happened.
    fn run(
        &self,
        attempt: &mut Attempt,
    ) -> impl Future<Output = Result<Step<Self::Output>, StoreError>> + Send;
}

impl Store {
    /// How often transactions were attempted since the store was opened.
    pub fn attempts(&self) -> Attempts {
        let Counters { attempts, repeated } = &*self.counters;
        Attempts { begun: attempts.load(Ordering::Relaxed), repeated: repeated.load(Ordering::Relaxed) }
    }

    /// Runs `body` in a SERIALIZABLE transaction of `key`, and repeats it whole when other transactions got in between.
    ///
    /// An error at COMMIT means "outcome unknown", whatever its code: the key's row tells whether this attempt wrote it
    /// last. Where it doesn't, repeating is safe, because reports are cumulative and blocks of an attempt that did go
    /// through are delivered again.
    ///
    /// PostgreSQL ends the session of a holder that was frozen in its transaction. When the holder goes on, what the attempt
    /// computed is dropped with it, and the next attempt reads afresh.
    pub(crate) async fn transaction<B: Body>(
        &self,
        name: &'static str,
        key: &SemaphoreKey,
        body: &B,
    ) -> Result<Ran<B::Output>, StoreError> {
        let (mut attempts, mut locked_out) = (0, 0);
        let mut pauses = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(2))
            .with_max_delay(Duration::from_millis(250))
            .with_max_times(ATTEMPTS - 1)
            .with_jitter()
            .build();
        loop {
            attempts += 1;
            self.counters.attempts.fetch_add(1, Ordering::Relaxed);
            let span = spans::of_attempt(name, attempts);
            let error = match self.attempt(key, body).instrument(span.clone()).await {
                Ok((value, phases)) => return Ok(Ran { value, attempts, phases }),
                Err(error) if error.is_transient() => error,
                Err(error) if error.is_locked_out() && locked_out + 1 < ATTEMPTS_AT_A_LOCK => {
                    locked_out += 1;
                    error
                }
                Err(error) => return Err(error),
            };
            self.counters.repeated.fetch_add(1, Ordering::Relaxed);
            self.metrics().transaction_retries.add([error.kind_of_conflict().into()], 1);
            span.record("error", tracing::field::display(&error));
            tracing::debug!(transaction = name, %key, %error, "attempt failed");
            match pauses.next() {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(StoreError::GaveUp { attempts: ATTEMPTS, last: Box::new(error) }),
            }
        }
    }

    /// Begins a transaction that is not repeated, for what a person asks for once: `begin` says how. Unless
    /// [`commit_once`] ends it, it is rolled back and its connection closed.
    pub(super) async fn begin_once(&self, begin: &'static str) -> Result<Lent, sqlx::Error> {
        let mut lent = self.pool().lend().await?;
        sqlx::raw_sql(begin).execute(&mut *lent).await?;
        Ok(lent)
    }

    async fn attempt<B: Body>(
        &self,
        key: &SemaphoreKey,
        body: &B,
    ) -> Result<(B::Output, Phases), StoreError> {
        let tx = self.pool().lend().await?;
        let mut attempt = Attempt { tx, writer: rand::random(), version: None, phases: Phases::begin() };
        let ended = bounded(attempt.run(body)).await?;
        let clean = ended.is_ok() || bounded(attempt.execute("ROLLBACK")).await?.is_ok();
        let Attempt { tx, writer, version, phases } = attempt;
        let unfit = matches!(ended, Err(StoreError::NotDurable | StoreError::ReadOnly | StoreError::Standby));
        if clean && !unfit {
            // Before another connection is asked for: there may be only one.
            tx.give_back();
        }
        if ended.as_ref().is_err_and(StoreError::is_read_only) {
            self.pool().distrust();
        }
        match ended? {
            Ended::Known(value) => Ok((value, phases)),
            Ended::Unknown { value, error } => match self.was_committed(key, version, writer).await? {
                true => Ok((value, phases)),
                false => Err(StoreError::Unavailable(error)),
            },
        }
    }

    /// Looks at the key's row, in a fresh transaction, to learn what a COMMIT with an unknown outcome did.
    async fn was_committed(
        &self,
        key: &SemaphoreKey,
        version: Option<i64>,
        writer: i64,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query_as(include_str!("../../queries/read_fence.sql")).bind(key.as_str());
        let row: Option<(i64, i64)> = query.fetch_optional(self.pool()).await?;
        Ok(row.is_some_and(|(found, by)| Some(found) == version && by == writer))
    }
}

/// Commits what [`Store::begin_once`] began.
pub(super) async fn commit_once(mut lent: Lent) -> Result<(), sqlx::Error> {
    sqlx::raw_sql("COMMIT").execute(&mut *lent).await?;
    lent.give_back();
    Ok(())
}

/// A hot standby knows no SERIALIZABLE.
fn not_begun(error: sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Database(e) if e.code().as_deref() == Some("0A000") => StoreError::Standby,
        error => error.into(),
    }
}

/// How an attempt ended.
enum Ended<T> {
    Known(T),
    /// COMMIT failed: it may have gone through or not.
    Unknown {
        value: T,
        error: sqlx::Error,
    },
}

impl Attempt {
    async fn run<B: Body>(&mut self, body: &B) -> Result<Ended<B::Output>, StoreError> {
        self.execute(body.begin()).await.map_err(not_begun)?;
        match body.run(self).await? {
            Step::RollBack(value) => {
                self.execute("ROLLBACK").await?;
                Ok(Ended::Known(value))
            }
            Step::Commit(value) => {
                let committed = self.execute("COMMIT").await;
                self.phases.end(Phase::Commit);
                Ok(match committed {
                    Ok(()) => Ended::Known(value),
                    Err(error) => Ended::Unknown { value, error },
                })
            }
        }
    }

    async fn execute(&mut self, statement: &'static str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(statement).execute(&mut *self.tx).await?;
        Ok(())
    }
}
