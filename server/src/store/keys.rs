//! Keys that need something without a message: what is due, and what is to be forgotten. Plain scans, outside rounds.

use super::{Attempt, Body, Step, Store, StoreError};
use pgsemaphore_allocation::SemaphoreKey;
use std::time::Duration;

/// Keys, and clients, that one sweep looks at; the next one goes on.
const SWEEP_MAX: i64 = 1000;

/// What one sweep did.
pub(crate) struct Swept {
    /// Keys or clients that are forgotten.
    pub(crate) forgotten: u64,
    /// There may be more to forget.
    pub(crate) more: bool,
}

/// A key that has something to do.
pub(crate) struct DueKey {
    pub(crate) key: SemaphoreKey,
    /// In how long; zero if it is late.
    pub(crate) due_in: Duration,
}

impl Store {
    /// Keys that are due within `ahead`, late ones included.
    pub(crate) async fn due_keys(&self, ahead: Duration) -> Result<Vec<DueKey>, StoreError> {
        let query = sqlx::query_as(include_str!("../../queries/read_due_keys.sql")).bind(ahead.as_secs_f64());
        let rows: Vec<(String, i64)> = query.fetch_all(self.pool()).await?;
        let due = |(key, due_in)| DueKey {
            key: SemaphoreKey::new(key),
            due_in: Duration::from_micros(u64::try_from(due_in).unwrap_or(0)),
        };
        Ok(rows.into_iter().map(due).collect())
    }

    /// Deletes the rows of keys with nothing counted and no message for `after`.
    pub(crate) async fn forget_idle_keys(&self, after: Duration) -> Result<Swept, StoreError> {
        let query = sqlx::query_scalar(include_str!("../../queries/read_idle_keys.sql"));
        let idle: Vec<String> =
            query.bind(after.as_secs_f64()).bind(SWEEP_MAX).fetch_all(self.pool()).await?;
        let mut swept = Swept { forgotten: 0, more: idle.len() as i64 == SWEEP_MAX };
        for key in idle {
            let forget = Forget { key: &key, after };
            let ran = self.transaction("forget", &SemaphoreKey::new(key.as_str()), &forget).await?;
            swept.forgotten += u64::from(ran.value);
        }
        Ok(swept)
    }
}

impl Store {
    /// Keys in use whose rows have to learn after what silence clients are settled.
    pub(crate) async fn keys_to_judge(&self) -> Result<Vec<SemaphoreKey>, StoreError> {
        let query = sqlx::query_scalar(include_str!("../../queries/read_keys_to_judge.sql"));
        let keys: Vec<String> = query.fetch_all(self.pool()).await?;
        Ok(keys.into_iter().map(SemaphoreKey::new).collect())
    }

    /// Deletes rows of clients that hold nothing and were not heard for `after`.
    pub(crate) async fn forget_gone_clients(&self, after: Duration) -> Result<Swept, StoreError> {
        let query = sqlx::query(include_str!("../../queries/delete_gone_clients.sql"));
        let result = query.bind(after.as_secs_f64()).bind(SWEEP_MAX).execute(self.pool()).await?;
        let forgotten = result.rows_affected();
        Ok(Swept { forgotten, more: forgotten == SWEEP_MAX.unsigned_abs() })
    }
}

/// Deletes all rows of a key in one transaction, unless a message came meanwhile.
struct Forget<'a> {
    key: &'a str,
    after: Duration,
}

impl Body for Forget<'_> {
    type Output = bool;

    async fn run(&self, attempt: &mut Attempt) -> Result<Step<bool>, StoreError> {
        let query = sqlx::query_scalar(include_str!("../../queries/forget_key.sql"));
        let forgotten: i64 =
            query.bind(self.key).bind(self.after.as_secs_f64()).fetch_one(&mut *attempt.tx).await?;
        Ok(if forgotten > 0 { Step::Commit(true) } else { Step::RollBack(false) })
    }
}
