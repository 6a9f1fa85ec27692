//! Telling other holders, and reading what their hints are about.

use super::{Store, StoreError};
use pgsemaphore_allocation::SemaphoreKey;

impl Store {
    /// Notifies who listens to the holders' channel; one transaction for all payloads.
    pub(crate) async fn notify(&self, payloads: &[String]) -> Result<(), StoreError> {
        let query = sqlx::query(include_str!("../../queries/notify.sql")).bind(payloads);
        query.execute(self.pool()).await?;
        Ok(())
    }

    /// The versions of the rows that some keys have.
    pub(crate) async fn versions(
        &self,
        keys: impl Iterator<Item = &SemaphoreKey>,
    ) -> Result<Vec<(SemaphoreKey, i64)>, StoreError> {
        let query = sqlx::query_as(include_str!("../../queries/read_versions.sql"));
        let query = query.bind(keys.map(SemaphoreKey::as_str).collect::<Vec<_>>());
        let rows: Vec<(String, i64)> = query.fetch_all(self.pool()).await?;
        Ok(rows.into_iter().map(|(key, version)| (SemaphoreKey::new(key), version)).collect())
    }

    /// What differs when any policy or group limit changed.
    pub(crate) async fn policies_stamp(&self) -> Result<String, StoreError> {
        let query = sqlx::query_scalar(include_str!("../../queries/read_policies_stamp.sql"));
        Ok(query.fetch_one(self.pool()).await?)
    }

    /// Which policy wins for each key, and as of when.
    pub(crate) async fn winners(
        &self,
        keys: &[SemaphoreKey],
    ) -> Result<Vec<(SemaphoreKey, Option<i64>)>, StoreError> {
        let query = sqlx::query_as(include_str!("../../queries/read_winners.sql"));
        let query = query.bind(keys.iter().map(SemaphoreKey::as_str).collect::<Vec<_>>());
        let rows: Vec<(String, Option<i64>)> = query.fetch_all(self.pool()).await?;
        Ok(rows.into_iter().map(|(key, stamp)| (SemaphoreKey::new(key), stamp)).collect())
    }
}
