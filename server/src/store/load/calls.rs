//! What nearly every transaction looks at, in one statement.

use super::Reader;
use super::groups::GroupRow;
use crate::store::StoreError;
use crate::store::rows::{BlockRow, ClientRow, corrupt};
use pgsemaphore_allocation::{BlockId, Call, ClientId, Slot};
use sqlx::{FromRow as _, Row as _};
use std::collections::BTreeSet;

impl Reader<'_> {
    /// Clients that speak, blocks that they report or hold as leases, and groups of the demand and of those blocks. Clients
    /// without a row get one before the round.
    pub(super) async fn read_calls(&mut self) -> Result<(), StoreError> {
        if self.calls.is_empty() {
            return Ok(());
        }
        let clients: BTreeSet<&str> = self.calls.iter().map(|call| call.client.as_str()).collect();
        let reported = self.calls.iter().flat_map(Call::reported).filter_map(BlockId::parse);
        let slots: BTreeSet<Slot> = reported.map(|id| id.slot).collect();
        let demanded = self.calls.iter().flat_map(|call| &call.demand);
        let groups: BTreeSet<&str> = demanded.map(|demand| demand.group.as_str()).collect();
        let query = sqlx::query(include_str!("../../../queries/read_calls.sql"))
            .bind(self.key.as_str())
            .bind(clients.iter().copied().collect::<Vec<_>>())
            .bind(slots.into_iter().collect::<Vec<_>>())
            .bind(groups.into_iter().collect::<Vec<_>>())
            .bind(self.pattern);
        for row in query.fetch_all(&mut *self.attempt.tx).await? {
            match row.try_get("what")? {
                "client" => self.keep_client(ClientRow::from_row(&row)?)?,
                "block" => self.keep_block(BlockRow::from_row(&row)?)?,
                "group" => self.keep_group(GroupRow::from_row(&row)?),
                _ => return Err(corrupt("kind")),
            }
        }
        let known = |id: &&str| self.state.clients.contains_key(&ClientId::new(*id));
        self.missing.clients = clients.into_iter().filter(|id| !known(id)).map(str::to_owned).collect();
        Ok(())
    }
}
