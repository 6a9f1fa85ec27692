//! A holder's row among the holders, by which all know who runs, and since when clients could be heard.

use super::{Store, StoreError};
use crate::homes::Peer;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

impl Store {
    /// Says that the holder is alive. Gives all that are, this one included.
    pub(crate) async fn beat(&self, holder: &str, url: &str) -> Result<Vec<Peer>, StoreError> {
        let query = sqlx::query(include_str!("../../queries/write_heartbeat.sql"));
        let rows = query.bind(holder).bind(url).try_map(peer).fetch_all(self.vital()).await?;
        Ok(rows)
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

fn peer(row: PgRow) -> Result<Peer, sqlx::Error> {
    Ok(Peer {
        name: row.try_get("holder")?,
        url: row.try_get("url")?,
        database: row.try_get("database")?,
        steady: row.try_get("steady")?,
    })
}
