//! What counts against a key, as people and programs read it. One call is one statement: one snapshot.

use super::{Store, StoreError};
use serde::{Deserialize, Serialize};
use sqlx::FromRow;
use utoipa::ToSchema;

/// Longest list of groups, of clients and of blocked demand.
pub(super) const LIST_MAX: usize = 1_000;

/// Usage of one semaphore.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow, ToSchema)]
pub struct Usage {
    /// Protocol version: 1.
    #[sqlx(skip)]
    pub v: u64,
    /// The semaphore.
    pub key: String,
    /// Pattern of the policy that governs it.
    pub pattern: Option<String>,
    /// Its limit; of a `limit_function` the last one resolved, null before that and without policy.
    pub limit: Option<i32>,
    /// Permits that leases may use beyond the limit.
    pub extra: i64,
    /// Permits of open grants that are not released, unclaimed ones included.
    pub grants: i64,
    /// Permits of open leases that still count.
    pub leases: i64,
    /// What is left of the limit; negative when usage is above it.
    pub available: Option<i64>,
    /// Some client's demand lacks permits of the shared limit.
    pub contended: bool,
    /// Number of the latest round, 0 before the first.
    pub round: i64,
    /// Per group, bytewise.
    #[sqlx(json)]
    pub groups: Vec<GroupUsage>,
    /// Per client, bytewise.
    #[sqlx(json)]
    pub clients: Vec<ClientUsage>,
    /// Demand that stays queued, longest first.
    #[sqlx(json)]
    pub blocked: Vec<BlockedUsage>,
    /// True when one of the lists was cut at 1000 entries, else absent.
    #[sqlx(skip)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// What a group uses of a semaphore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupUsage {
    /// The group.
    pub group: String,
    /// Its own ceiling in the policy.
    pub limit: Option<i64>,
    /// Permits of its open grants that are not released.
    pub grants: i64,
    /// Permits of its open leases that still count.
    pub leases: i64,
    /// Some client's demand lacks permits of the group's ceiling.
    pub contended: bool,
}

/// What a client holds of a semaphore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClientUsage {
    /// The client.
    pub client_id: String,
    /// Highest generation of it heard on this key.
    pub generation: i64,
    /// Permits of its open grants that are not released.
    pub grants: i64,
    /// Permits of its open leases that still count.
    pub leases: i64,
    /// Time since its last message; up to 20 s too much.
    pub last_seen_ms_ago: i64,
}

/// Demand that stays queued, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockedUsage {
    /// Whose demand.
    pub client_id: String,
    /// In which group.
    pub group: String,
    /// Items that lack a permit.
    pub count: i64,
    /// `paused`, `not_permitted`, `limit_resolution_error`, `group_limit` or `limit`.
    pub reason: String,
    /// Since when.
    pub since_ms_ago: i64,
}

/// Usage of one semaphore in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, FromRow, ToSchema)]
pub struct SemaphoreUsage {
    /// The semaphore.
    pub key: String,
    /// Its limit; null without policy.
    pub limit: Option<i32>,
    /// Permits of open grants that are not released.
    pub grants: i64,
    /// Permits of open leases that still count.
    pub leases: i64,
    /// What is left of the limit.
    pub available: Option<i64>,
    /// Some client's demand lacks permits of the shared limit.
    pub contended: bool,
}

/// A page of semaphores in the order of their keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SemaphorePage {
    /// Protocol version: 1.
    pub v: u64,
    /// The semaphores.
    pub semaphores: Vec<SemaphoreUsage>,
    /// Ask for the next page with this as `after`; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Store {
    /// Usage of one key; `None` where there is neither a policy nor state.
    pub async fn usage(&self, key: &str) -> Result<Option<Usage>, StoreError> {
        let usage: Option<Usage> = sqlx::query_as(include_str!("../../queries/get_usage.sql"))
            .bind(key)
            .bind(i64::try_from(LIST_MAX).unwrap_or(i64::MAX))
            .fetch_optional(self.pool())
            .await?;
        Ok(usage.map(Usage::finished))
    }

    /// Up to `limit` keys that start with `prefix` and come after `after`.
    pub async fn semaphores(
        &self,
        prefix: &str,
        after: &str,
        limit: u16,
    ) -> Result<SemaphorePage, StoreError> {
        let mut semaphores: Vec<SemaphoreUsage> =
            sqlx::query_as(include_str!("../../queries/list_semaphores.sql"))
                .bind(prefix)
                .bind(after)
                .bind(i64::from(limit) + 1)
                .fetch_all(self.pool())
                .await?;
        let more = semaphores.len() > usize::from(limit);
        semaphores.truncate(limit.into());
        let next = semaphores.last().filter(|_| more).map(|last| last.key.clone());
        Ok(SemaphorePage { v: queue_wire::VERSION, semaphores, next })
    }
}

impl Usage {
    pub(super) fn finished(mut self) -> Self {
        self.v = queue_wire::VERSION;
        self.truncated =
            [self.groups.len(), self.clients.len(), self.blocked.len()].iter().any(|n| *n > LIST_MAX);
        self.groups.truncate(LIST_MAX);
        self.clients.truncate(LIST_MAX);
        self.blocked.truncate(LIST_MAX);
        self
    }
}
