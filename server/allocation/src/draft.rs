//! The working copy of a plan, and the one place where blocks change: counters, batches and free rows follow.

use crate::names::{BlockId, ClientId, DbTime, Group, Slot};
use crate::plan::PendingWrite;
use crate::state::{Block, Client, GroupUsage, Kind, Semaphore, State};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) struct Draft {
    pub(crate) now: DbTime,
    pub(crate) semaphore: Semaphore,
    pub(crate) groups: BTreeMap<Group, GroupUsage>,
    pub(crate) clients: BTreeMap<ClientId, Client>,
    pub(crate) blocks: BTreeMap<Slot, Block>,
    /// Blocks of which everything came back in this transaction, as they were then.
    pub(crate) settled: BTreeMap<BlockId, Block>,
    pub(crate) pending: BTreeMap<i32, PendingWrite>,
    pub(crate) changed_slots: BTreeSet<Slot>,
    pub(crate) changed_groups: BTreeSet<Group>,
    pub(crate) changed_clients: BTreeSet<ClientId>,
}

impl Draft {
    pub(crate) fn new(state: &State) -> Self {
        Self {
            now: state.now,
            semaphore: state.semaphore.clone(),
            groups: state.groups.clone(),
            clients: state.clients.clone(),
            blocks: state.blocks.clone(),
            settled: BTreeMap::new(),
            pending: BTreeMap::new(),
            changed_slots: BTreeSet::new(),
            changed_groups: BTreeSet::new(),
            changed_clients: BTreeSet::new(),
        }
    }

    /// Numbers the round: above every number ever used, also after a restore from an older copy.
    pub(crate) fn number_round(&mut self) {
        let clock = u64::try_from(self.now.0).unwrap_or(0);
        self.semaphore.round = (self.semaphore.round + 1).max(clock);
        self.semaphore.last_round_at = Some(self.now);
    }

    /// The open block of that name.
    pub(crate) fn block(&self, id: BlockId) -> Option<&Block> {
        self.blocks.get(&id.slot).filter(|block| block.id == id)
    }

    /// Adds a new block.
    pub(crate) fn insert(&mut self, block: Block) {
        let client = self.clients.get_mut(&block.client).expect("clients of calls are in the state");
        client.last_block = block.id.round;
        self.changed_clients.insert(block.client.clone());
        self.changed_slots.insert(block.id.slot);
        self.count(&block.group, block.kind, block.counted());
        self.blocks.insert(block.id.slot, block);
    }

    /// Changes an open block, and settles it if nothing of it counts any more.
    pub(crate) fn change(&mut self, slot: Slot, change: impl FnOnce(&mut Block)) {
        let Some(before) = self.blocks.get(&slot) else { return };
        let mut block = before.clone();
        change(&mut block);
        if block == *before {
            return;
        }
        let (counted_before, batch) = (before.counted(), before.batch);
        if batch.is_some() && block.unclaimed() == 0 {
            block.batch = None;
        }
        self.changed_slots.insert(slot);
        self.count(&block.group, block.kind, block.counted() - counted_before);
        if let Some(n) = batch.filter(|_| block.batch.is_none()) {
            self.leave_batch(n);
        }
        if block.counted() > 0 {
            self.blocks.insert(slot, block);
            return;
        }
        self.blocks.remove(&slot);
        self.free_slot(slot);
        if block.permits > 0 {
            self.settled.insert(block.id, block);
        }
    }

    fn count(&mut self, group: &Group, kind: Kind, delta: i64) {
        if delta == 0 {
            return;
        }
        let usage = self.groups.get_mut(group).expect("groups of blocks and demand are in the state");
        match kind {
            Kind::Grant => {
                usage.grants += delta;
                self.semaphore.grants += delta;
            }
            Kind::Lease => {
                usage.leases += delta;
                self.semaphore.leases += delta;
            }
        }
        self.changed_groups.insert(group.clone());
    }
}
