//! Telling other holders.

use super::{Store, StoreError};

impl Store {
    /// Notifies who listens to the holders' channel; one transaction for all payloads.
    pub(crate) async fn notify(&self, payloads: &[String]) -> Result<(), StoreError> {
        let query = sqlx::query(include_str!("../../queries/notify.sql")).bind(payloads);
        query.execute(self.pool()).await?;
        Ok(())
    }
}
