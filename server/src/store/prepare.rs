//! Makes blank rows before a round, each statement in a READ COMMITTED transaction of its own.
//!
//! An INSERT inside a SERIALIZABLE round conflicts with every reader of the same index leaf, other keys included; an
//! UPDATE of a row that exists does not. Rows that a round then doesn't use stay blank and are used by a later one.

use super::load::Missing;
use super::{Store, StoreError};
use pgsemaphore_allocation::{SemaphoreKey, Slot};

/// Rows that exist now, whatever the key's row says.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Prepared {
    pub(crate) slot_cap: Slot,
    pub(crate) batch_cap: i32,
}

impl Store {
    /// Makes the rows that are missing, and the key's row if need be.
    pub(crate) async fn prepare(
        &self,
        key: &SemaphoreKey,
        missing: &Missing,
    ) -> Result<Prepared, StoreError> {
        let pool = self.pool();
        sqlx::query(include_str!("../../queries/make_key.sql")).bind(key.as_str()).execute(pool).await?;
        if !missing.clients.is_empty() {
            let query = sqlx::query(include_str!("../../queries/make_clients.sql")).bind(key.as_str());
            query.bind(&missing.clients).execute(pool).await?;
        }
        if !missing.groups.is_empty() {
            let query = sqlx::query(include_str!("../../queries/make_groups.sql")).bind(key.as_str());
            query.bind(missing.groups.iter().map(String::as_str).collect::<Vec<_>>()).execute(pool).await?;
        }
        if missing.slot_cap > 0 {
            let query = sqlx::query(include_str!("../../queries/make_slots.sql")).bind(key.as_str());
            query.bind(0).bind(missing.slot_cap - 1).execute(pool).await?;
        }
        if missing.batch_cap > 0 {
            let query = sqlx::query(include_str!("../../queries/make_pending.sql")).bind(key.as_str());
            query.bind(0).bind(missing.batch_cap - 1).execute(pool).await?;
        }
        Ok(Prepared { slot_cap: missing.slot_cap, batch_cap: missing.batch_cap })
    }
}
