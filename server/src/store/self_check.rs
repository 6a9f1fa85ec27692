//! Counters counted again, and what metrics say of the database as a whole. None of it takes part in a round.

use super::connections::Lent;
use super::transaction::commit_once;
use super::{Attempt, Body, SemaphoreUsage, Step, Store, StoreError};
use pgsemaphore_allocation::SemaphoreKey;
use sqlx::{FromRow, Postgres};

/// A look of a holder at its own tables: nothing waits for it, and it conflicts with nothing. It may look at all of a
/// table, where plans of rounds may not.
const GLANCE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; SET LOCAL statement_timeout = 1000; \
                      SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on";

/// A counter that differs from the blocks that it counts.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct Drift {
    /// The semaphore.
    pub key: String,
    /// The group; none: the key as a whole.
    pub grp: Option<String>,
    /// `grants`, `leases` or `live_leases`.
    pub counter: String,
    /// What it says.
    pub stored: i64,
    /// What the blocks say.
    pub actual: i64,
}

/// Some keys in their order, and what is wrong with their counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audited {
    /// The keys.
    pub keys: Vec<String>,
    /// Counters that differ.
    pub drift: Vec<Drift>,
}

/// What metrics say of the database as a whole.
#[derive(Debug, FromRow)]
pub(crate) struct Census {
    pub(crate) unheard_permits: i64,
    pub(crate) live_holders: i64,
}

impl Store {
    /// Counts again what the counters of one key say.
    pub async fn verify(&self, key: &str) -> Result<Vec<Drift>, StoreError> {
        Ok(verify(self.pool(), key, key).await?)
    }

    /// The same of up to `most` keys that come after `after`.
    pub async fn verify_after(&self, after: &str, most: i64) -> Result<Audited, StoreError> {
        let keys = self.keys_after(after, most).await?;
        let drift = match (keys.first(), keys.last()) {
            (Some(first), Some(last)) => verify(self.pool(), first, last).await?,
            _ => Vec::new(),
        };
        Ok(Audited { keys, drift })
    }

    /// Up to `most` keys that come after `after`.
    pub(crate) async fn keys_after(&self, after: &str, most: i64) -> Result<Vec<String>, StoreError> {
        Ok(keys_after(self.pool(), after, most).await?)
    }

    /// As [`Store::verify_after`], given up after a second.
    pub(crate) async fn glance_at_keys(&self, after: &str, most: i64) -> Result<Audited, StoreError> {
        let mut lent = self.begin_once(GLANCE).await?;
        let keys = keys_after(&mut *lent, after, most).await?;
        let drift = match (keys.first(), keys.last()) {
            (Some(first), Some(last)) => verify(&mut *lent, first, last).await?,
            _ => Vec::new(),
        };
        commit_once(lent).await?;
        Ok(Audited { keys, drift })
    }

    /// As [`Store::verify`], given up after a second.
    pub(crate) async fn glance_at(&self, key: &str) -> Result<Vec<Drift>, StoreError> {
        let mut lent = self.begin_once(GLANCE).await?;
        let drift = verify(&mut *lent, key, key).await?;
        commit_once(lent).await?;
        Ok(drift)
    }

    /// Makes the counters of a key what its blocks say, in one SERIALIZABLE transaction that rounds notice, and writes
    /// to the audit that `actor` asked for it. Gives what differed.
    pub async fn repair(&self, key: &str, actor: &str) -> Result<Vec<Drift>, StoreError> {
        let repair = Repair { key, actor };
        Ok(self.transaction("repair", &SemaphoreKey::new(key), &repair).await?.value)
    }

    /// What metrics say of the database as a whole, and of the keys that are `listed`; given up after a second.
    pub(crate) async fn census(
        &self,
        listed: &[String],
    ) -> Result<(Census, Vec<SemaphoreUsage>), StoreError> {
        let mut lent = self.begin_once(GLANCE).await?;
        let census = sqlx::query_as(include_str!("../../queries/read_census.sql"));
        let census = census.fetch_one(&mut *lent).await?;
        let keys = read_listed(&mut lent, listed).await?;
        commit_once(lent).await?;
        Ok((census, keys))
    }
}

async fn read_listed(lent: &mut Lent, listed: &[String]) -> Result<Vec<SemaphoreUsage>, sqlx::Error> {
    if listed.is_empty() {
        return Ok(Vec::new());
    }
    let query = sqlx::query_as(include_str!("../../queries/read_listed_keys.sql")).bind(listed);
    query.fetch_all(&mut **lent).await
}

async fn keys_after<'c>(
    database: impl sqlx::Executor<'c, Database = Postgres>,
    after: &str,
    most: i64,
) -> Result<Vec<String>, sqlx::Error> {
    let query = sqlx::query_scalar(include_str!("../../queries/read_keys_after.sql"));
    query.bind(after).bind(most).fetch_all(database).await
}

async fn verify<'c>(
    database: impl sqlx::Executor<'c, Database = Postgres>,
    first: &str,
    last: &str,
) -> Result<Vec<Drift>, sqlx::Error> {
    let query = sqlx::query_as(include_str!("../../queries/verify_keys.sql"));
    query.bind(first).bind(last).fetch_all(database).await
}

struct Repair<'a> {
    key: &'a str,
    actor: &'a str,
}

impl Body for Repair<'_> {
    type Output = Vec<Drift>;

    async fn run(&self, attempt: &mut Attempt) -> Result<Step<Vec<Drift>>, StoreError> {
        let repair = sqlx::query_as(include_str!("../../queries/repair_key.sql"));
        let repaired = repair.bind(self.key).bind(self.actor).fetch_all(&mut *attempt.tx).await?;
        Ok(Step::Commit(repaired))
    }
}
