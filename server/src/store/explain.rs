//! All that is needed to say why work waits, read in one snapshot.

use super::transaction::commit_once;
use super::usage::LIST_MAX;
use super::{Policy, Store, StoreError, Usage};
use serde::Serialize;
use sqlx::FromRow;
use sqlx::types::Json;

/// Usage of a key, the policy that governs it, and who holds its permits.
#[derive(Debug, Clone)]
pub struct Situation {
    /// Usage of the key.
    pub usage: Usage,
    /// The policy that wins for it.
    pub policy: Option<Policy>,
    /// Who holds permits, most first.
    pub held: Vec<Held>,
    /// Holders that run. Without one nobody's demand is looked at.
    pub live_holders: i64,
    /// Time since the last round of the key; none before its first.
    pub last_round_ms_ago: Option<i64>,
}

/// What a client holds of a key in one group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, FromRow)]
pub struct Held {
    /// The client.
    pub client_id: String,
    /// The group.
    pub group: String,
    /// Permits of its open grants that are not released.
    pub grants: i64,
    /// Permits of its open leases that still count.
    pub leases: i64,
    /// It was not heard for over 10 minutes.
    pub unheard: bool,
    /// Time since its last message; up to 20 s too much.
    pub last_seen_ms_ago: i64,
}

impl Store {
    /// What there is to say of a key; `None` where there is neither a policy nor state.
    ///
    /// # Errors
    /// What the database said.
    pub async fn situation(&self, key: &str) -> Result<Option<Situation>, StoreError> {
        let most = i64::try_from(LIST_MAX).unwrap_or(i64::MAX);
        let mut lent = self.begin_once("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let usage = sqlx::query_as(include_str!("../../queries/get_usage.sql")).bind(key).bind(most);
        let usage: Option<Usage> = usage.fetch_optional(&mut *lent).await?;
        let pattern = usage.as_ref().and_then(|usage| usage.pattern.as_deref());
        let policy = sqlx::query_scalar(include_str!("../../queries/get_policy.sql")).bind(pattern);
        let policy: Option<Json<Policy>> = policy.fetch_optional(&mut *lent).await?;
        let held = sqlx::query_as(include_str!("../../queries/list_held.sql")).bind(key).bind(most);
        let held = held.fetch_all(&mut *lent).await?;
        let rounds = sqlx::query_as(include_str!("../../queries/read_rounds.sql")).bind(key);
        let (live_holders, last_round_ms_ago) = rounds.fetch_one(&mut *lent).await?;
        commit_once(lent).await?;
        let policy = policy.map(|Json(policy)| policy);
        Ok(usage.map(|usage| Situation {
            usage: usage.finished(),
            policy,
            held,
            live_holders,
            last_round_ms_ago,
        }))
    }
}
