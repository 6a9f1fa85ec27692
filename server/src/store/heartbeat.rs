//! A holder's row among the holders, by which all know since when clients could be heard.

use super::{Store, StoreError};

impl Store {
    /// Says that the holder is alive.
    pub(crate) async fn beat(&self, holder: &str, url: &str) -> Result<(), StoreError> {
        let query = sqlx::query(include_str!("../../queries/write_heartbeat.sql"));
        query.bind(holder).bind(url).execute(self.vital()).await?;
        Ok(())
    }

    /// Says that the holder ends.
    pub(crate) async fn leave(&self, holder: &str) -> Result<(), StoreError> {
        sqlx::query(include_str!("../../queries/delete_holder.sql"))
            .bind(holder)
            .execute(self.vital())
            .await?;
        Ok(())
    }
}
