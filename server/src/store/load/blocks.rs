//! Blocks: those that are reported, due, unheard of, or leases.

use super::Reader;
use crate::store::StoreError;
use crate::store::rows::{BlockRow, round_to};
use pgsemaphore_allocation::{ClientId, Slot, must_read_all_blocks};
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

    /// Blocks that are due.
    pub(super) async fn read_listed(&mut self) -> Result<(), StoreError> {
        let due = self.state.due.values().flatten().copied();
        let slots: BTreeSet<Slot> = due.filter(|slot| !self.state.blocks.contains_key(slot)).collect();
        if slots.is_empty() {
            return Ok(());
        }
        let query = sqlx::query_as(include_str!("../../../queries/read_blocks.sql")).bind(self.key.as_str());
        let query = query.bind(slots.into_iter().collect::<Vec<_>>());
        let rows = query.fetch_all(&mut *self.attempt.tx).await?;
        rows.into_iter().try_for_each(|row| self.keep_block(row))
    }

    /// Blocks that a calling client has not heard of, where its latest block is one of those.
    pub(super) async fn read_unseen(&mut self) -> Result<(), StoreError> {
        let last_block = |id: &ClientId| self.state.clients.get(id).map_or(0, |client| client.last_block);
        let behind = self.calls.iter().filter(|call| last_block(&call.client) > call.seen);
        let (ids, seen) = behind.map(|call| (call.client.to_string(), round_to(call.seen))).unzip();
        self.read_blocks_after(ids, seen).await
    }

    /// All blocks of clients that may lose them whether or not they report them.
    pub(super) async fn read_all_of_some(&mut self) -> Result<(), StoreError> {
        let ids = must_read_all_blocks(&self.state, self.calls);
        let (ids, seen) = ids.into_iter().map(|id| (id.to_string(), -1)).unzip();
        self.read_blocks_after(ids, seen).await
    }

    async fn read_blocks_after(&mut self, ids: Vec<String>, seen: Vec<i64>) -> Result<(), StoreError> {
        if ids.is_empty() {
            return Ok(());
        }
        let query = sqlx::query_as(include_str!("../../../queries/read_unseen_blocks.sql"));
        let query = query.bind(self.key.as_str()).bind(ids).bind(seen);
        let rows = query.fetch_all(&mut *self.attempt.tx).await?;
        rows.into_iter().try_for_each(|row| self.keep_block(row))
    }

    /// All open leases of the key.
    pub(super) async fn read_leases(&mut self) -> Result<(), StoreError> {
        let query = sqlx::query_as(include_str!("../../../queries/read_leases.sql")).bind(self.key.as_str());
        let rows = query.fetch_all(&mut *self.attempt.tx).await?;
        self.state.all_leases = true;
        rows.into_iter().try_for_each(|row| self.keep_block(row))
    }

    pub(super) fn keep_block(&mut self, row: BlockRow) -> Result<(), StoreError> {
        let block = row.block()?;
        self.state.blocks.insert(block.id.slot, block);
        Ok(())
    }
}
