//! Policies that a file declares: applied in one transaction, all of them or none.

use super::transaction::commit_once;
use super::{PolicyError, Store, StoreError};
use sqlx::FromRow;

/// What became of one policy of the file.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct Applied {
    /// What was done.
    pub outcome: Outcome,
    /// Who changed the policy last before that; none where it did not exist.
    pub set_by: Option<String>,
    /// When that was, in UTC.
    pub set_at: Option<String>,
}

/// What applying a policy did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::Type)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum Outcome {
    /// There was none.
    Created,
    /// It said something else, and was last changed by applying a file, or force was used.
    Changed,
    /// It says the same; it was not written.
    Unchanged,
    /// It says something else because somebody changed it by other means; it was not written.
    LeftAlone,
}

/// Why nothing was applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// One policy was refused.
    #[error("{pattern}: {error}")]
    Policy {
        /// Which one.
        pattern: String,
        /// Why.
        error: PolicyError,
    },
    /// The database did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// Makes policies, each a pattern and a JSON object, what they are declared to be: fields left out take their
    /// defaults, group limits left out are kept. One that was last changed by an actor whose name does not start with
    /// `apply:` is left alone, unless by `force`. Answers in the order of `policies`, which should be sorted.
    ///
    /// # Errors
    /// [`ApplyError`]; no policy was changed then.
    pub async fn apply_policies(
        &self,
        policies: &[(String, String)],
        force: bool,
        actor: &str,
    ) -> Result<Vec<Applied>, ApplyError> {
        let mut lent = self.begin_once("BEGIN").await.map_err(StoreError::from)?;
        let mut applied = Vec::with_capacity(policies.len());
        for (pattern, policy) in policies {
            let query = sqlx::query_as(include_str!("../../queries/apply_policy.sql"))
                .bind(pattern)
                .bind(policy)
                .bind(force)
                .bind(actor);
            let outcome = query.fetch_one(&mut *lent).await;
            applied.push(outcome.map_err(|error| ApplyError::Policy {
                pattern: pattern.clone(),
                error: PolicyError::from(error),
            })?);
        }
        commit_once(lent).await.map_err(StoreError::from)?;
        Ok(applied)
    }
}
