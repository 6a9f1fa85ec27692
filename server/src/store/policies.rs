//! Policies: read, replaced and merged through the functions that psql users call, so that one validator judges all.

use super::{Store, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sqlx::postgres::PgDatabaseError;
use sqlx::types::Json;
use std::collections::BTreeMap;

/// How the semaphores that a pattern matches behave; null is an unset field.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Policy {
    /// An exact key, or a prefix that ends in `*`. The exact one wins, then the longest prefix.
    #[schema(read_only)]
    pub pattern: String,
    /// Permits in use at once, 0 to 2^31 - 1; 0 stops admission. Required, unless `limit_function` is set.
    pub limit: Option<i64>,
    /// Name of an SQL function `(key text) returns integer`, called once a round instead of `limit`.
    pub limit_function: Option<String>,
    /// Ceilings of groups under the shared limit.
    pub group_limits: BTreeMap<String, i64>,
    /// Nothing is admitted; releases go on.
    pub paused: bool,
    /// Groups in which nothing is admitted.
    pub paused_groups: Vec<String>,
    /// Name of an SQL function `(key text, grp text) returns integer`; NULL is no ceiling.
    pub group_limit_function: Option<String>,
    /// Name of an SQL function `(key text, client_id text, grp text) returns boolean`.
    pub can_grant_function: Option<String>,
    /// A round waits this long for more requests, as its callers do: 0 to 60000, by default 0. Raise it to save transactions.
    pub round_wait_ms: i64,
    /// Rounds of one key start no closer than this: 0 to 3600000, by default 100. Raise it where busy keys load the database.
    pub round_period_ms: i64,
    /// Demand that fits is served at once while nobody else waits.
    pub eager: bool,
    /// Unclaimed permits come back after this: 100 to 86400000.
    pub grant_timeout_ms: i64,
    /// What leases may use: `none`, `strict`, `under` or `over`.
    pub provisioning: String,
    /// Permits reserved for leases; belongs to `under`.
    pub lease_reserve: Option<i64>,
    /// Permits for leases beyond the limit; belongs to `over`.
    pub lease_extra: Option<i64>,
    /// The same as a fraction of the limit, 0 to 1000 with at most 6 decimals; belongs to `over`.
    #[schema(value_type = Option<f64>)]
    pub lease_extra_ratio: Option<Box<RawValue>>,
    /// Largest lease: 1 to 1000000.
    pub permits_per_lease: i64,
    /// A lease that nobody reports for this long is retired: 500 to 30 days.
    pub lease_ttl_ms: i64,
    /// May groups with a ceiling of their own hold leases: `excluded` or `within_group_limit`.
    pub limited_groups: String,
    /// A client that is silent for this long is declared dead: 5000 to 30 days.
    pub settle_lost_clients_after_ms: Option<i64>,
    /// Who changed the policy last.
    #[schema(read_only)]
    pub set_by: String,
    /// When that was, in UTC.
    #[schema(read_only)]
    pub set_at: String,
}

/// A page of policies in the order of their patterns.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct PolicyPage {
    /// The policies.
    pub policies: Vec<Policy>,
    /// Ask for the next page with this as `after`; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Why a policy was not changed.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// A field breaks a rule.
    #[error("{detail}")]
    Invalid {
        /// Path of the field, its parts joined by `/`; empty for the policy as a whole.
        field: String,
        /// What is wrong and what to do.
        detail: String,
    },
    /// No policy has this pattern.
    #[error("no policy has this pattern")]
    NotFound,
    /// The database did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for PolicyError {
    fn from(error: sqlx::Error) -> Self {
        let refused =
            error.as_database_error().and_then(|refused| refused.try_downcast_ref::<PgDatabaseError>());
        match refused.map(|refused| (refused.code(), refused.column(), refused.message())) {
            Some(("P0002", _, _)) => Self::NotFound,
            // PostgreSQL's own errors of this code name no column; only the validator's text may leave.
            Some(("22023", Some(field), detail)) => {
                Self::Invalid { field: field.to_owned(), detail: detail.trim_start_matches(": ").to_owned() }
            }
            _ => StoreError::from(error).into(),
        }
    }
}

impl Store {
    /// The policy of exactly this pattern.
    pub async fn policy(&self, pattern: &str) -> Result<Option<Policy>, StoreError> {
        let policy = sqlx::query_scalar(include_str!("../../queries/get_policy.sql"))
            .bind(pattern)
            .fetch_optional(self.pool())
            .await?;
        Ok(policy.map(|Json(policy)| policy))
    }

    /// Up to `limit` policies whose patterns come after `after`.
    pub async fn policies(&self, after: &str, limit: u16) -> Result<PolicyPage, StoreError> {
        let mut policies: Vec<Policy> = sqlx::query_scalar(include_str!("../../queries/list_policies.sql"))
            .bind(after)
            .bind(i64::from(limit) + 1)
            .fetch_all(self.pool())
            .await?
            .into_iter()
            .map(|Json(policy)| policy)
            .collect();
        let more = policies.len() > usize::from(limit);
        policies.truncate(limit.into());
        let next = policies.last().filter(|_| more).map(|last| last.pattern.clone());
        Ok(PolicyPage { policies, next })
    }

    /// Replaces a policy by the JSON object `policy`: fields left out take their defaults, group limits are kept.
    pub async fn put_policy(&self, pattern: &str, policy: &str, actor: &str) -> Result<Policy, PolicyError> {
        let Json(policy) = sqlx::query_scalar(include_str!("../../queries/put_policy.sql"))
            .bind(pattern)
            .bind(policy)
            .bind(actor)
            .fetch_one(self.pool())
            .await?;
        Ok(policy)
    }

    /// Changes the fields in the JSON object `changes` of a policy, which is created if need be.
    pub async fn merge_policy(
        &self,
        pattern: &str,
        changes: &str,
        actor: &str,
    ) -> Result<Policy, PolicyError> {
        let Json(policy) = sqlx::query_scalar(include_str!("../../queries/merge_policy.sql"))
            .bind(pattern)
            .bind(changes)
            .bind(actor)
            .fetch_one(self.pool())
            .await?;
        Ok(policy)
    }

    /// Deletes a policy and its group limits.
    pub async fn delete_policy(&self, pattern: &str, actor: &str) -> Result<(), PolicyError> {
        let deleted: bool = sqlx::query_scalar(include_str!("../../queries/delete_policy.sql"))
            .bind(pattern)
            .bind(actor)
            .fetch_one(self.pool())
            .await?;
        if deleted { Ok(()) } else { Err(PolicyError::NotFound) }
    }

    /// Sets the ceiling of a group in a policy that exists; `None` removes it.
    pub async fn set_group_limit(
        &self,
        pattern: &str,
        group: &str,
        limit: Option<i64>,
        actor: &str,
    ) -> Result<(), PolicyError> {
        sqlx::query(include_str!("../../queries/set_group_limit.sql"))
            .bind(pattern)
            .bind(group)
            .bind(limit)
            .bind(actor)
            .execute(self.pool())
            .await?;
        Ok(())
    }
}
