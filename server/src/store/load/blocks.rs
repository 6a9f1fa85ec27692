//! Blocks: those that are reported, due, unheard of, or leases.

use super::Reader;
use crate::store::StoreError;
use crate::store::rows::{BlockRow, round_to};
use pgsemaphore_allocation::{BlockId, Call, ClientId, Slot};
use std::collections::BTreeSet;

impl Reader<'_> {
    /// Which slots are listed in batches that are due.
    pub(super) async fn read_due(&mut self) -> Result<(), StoreError> {
        let batches = self.state.semaphore.batches.iter().filter(|batch| batch.deadline <= self.state.now);
        let due: Vec<i32> = batches.map(|batch| batch.n).collect();
        if due.is_empty() {
            return Ok(());
        }
        let query = sqlx::query_as(include_str!("../../../queries/read_pending.sql")).bind(self.key.as_str());
        let rows: Vec<(i32, Vec<i32>)> = query.bind(due).fetch_all(&mut *self.attempt.tx).await?;
        self.state.due = rows.into_iter().collect();
        Ok(())
    }

    /// Blocks that are reported or due, and the leases of calling clients.
    pub(super) async fn read_named(&mut self) -> Result<(), StoreError> {
        let reported = self.calls.iter().flat_map(reported).map(|id| id.slot);
        let calling = self.calls.iter().filter_map(|call| self.state.clients.get(&call.client));
        let leases = calling.flat_map(|client| client.leases.iter().copied());
        let due = self.state.due.values().flatten().copied();
        let slots: BTreeSet<Slot> = reported.chain(leases).chain(due).collect();
        if slots.is_empty() {
            return Ok(());
        }
        let query = sqlx::query_as(include_str!("../../../queries/read_blocks.sql")).bind(self.key.as_str());
        let query = query.bind(slots.into_iter().collect::<Vec<_>>());
        let rows = query.fetch_all(&mut *self.attempt.tx).await?;
        self.keep(rows)
    }

    /// Blocks that a calling client has not heard of, where its latest block is one of those.
    pub(super) async fn read_unseen(&mut self) -> Result<(), StoreError> {
        let last_block = |id: &ClientId| self.state.clients.get(id).map_or(0, |client| client.last_block);
        let behind = self.calls.iter().filter(|call| last_block(&call.client) > call.seen);
        let (ids, seen): (Vec<_>, Vec<_>) =
            behind.map(|call| (call.client.as_str(), round_to(call.seen))).unzip();
        if ids.is_empty() {
            return Ok(());
        }
        let query = sqlx::query_as(include_str!("../../../queries/read_unseen_blocks.sql"));
        let query = query.bind(self.key.as_str()).bind(ids).bind(seen);
        let rows = query.fetch_all(&mut *self.attempt.tx).await?;
        self.keep(rows)
    }

    /// All open leases of the key.
    pub(super) async fn read_leases(&mut self) -> Result<(), StoreError> {
        let query = sqlx::query_as(include_str!("../../../queries/read_leases.sql")).bind(self.key.as_str());
        let rows = query.fetch_all(&mut *self.attempt.tx).await?;
        self.state.all_leases = true;
        self.keep(rows)
    }

    fn keep(&mut self, rows: Vec<BlockRow>) -> Result<(), StoreError> {
        for row in rows {
            let block = row.block()?;
            self.state.blocks.insert(block.id.slot, block);
        }
        Ok(())
    }
}

fn reported(call: &Call) -> impl Iterator<Item = BlockId> {
    let grants = call.grants.iter().map(|report| &report.id);
    grants.chain(call.leases.iter().map(|report| &report.id)).filter_map(|id| BlockId::parse(id))
}
