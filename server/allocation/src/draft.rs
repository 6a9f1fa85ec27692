//! The working copy of a plan, and the one place where blocks change: counters, batches and free rows follow.

use crate::fingerprint;
use crate::names::{BlockId, ClientId, DbTime, Group, Permits, Slot};
use crate::plan::{Audit, PendingWrite};
use crate::state::{Block, Client, GroupUsage, Kind, Semaphore, State, Status};
use crate::tally::{Retired, Tally};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) struct Draft {
    pub(crate) now: DbTime,
    pub(crate) semaphore: Semaphore,
    pub(crate) groups: BTreeMap<Group, GroupUsage>,
    pub(crate) clients: BTreeMap<ClientId, Client>,
    pub(crate) blocks: BTreeMap<Slot, Block>,
    /// Blocks of which everything came back in this transaction, as they were then.
    pub(crate) settled: BTreeMap<BlockId, Block>,
    /// What leases that nobody knows are said to use; counts against this round only.
    pub(crate) charged: Permits,
    pub(crate) pending: BTreeMap<i32, PendingWrite>,
    pub(crate) audit: Vec<Audit>,
    pub(crate) tally: Tally,
    /// Demand that was blocked is not stated by anybody any more, so marks may end.
    pub(crate) marks_may_end: bool,
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
            charged: 0,
            pending: BTreeMap::new(),
            audit: Vec::new(),
            tally: Tally::default(),
            marks_may_end: false,
            changed_slots: BTreeSet::new(),
            changed_groups: BTreeSet::new(),
            changed_clients: BTreeSet::new(),
        }
    }

    /// Numbers the round: above every number ever used, also after a restore from an older copy. A key whose round is
    /// ahead of the clock goes on by 1.
    pub(crate) fn number_round(&mut self) {
        self.semaphore.round = (self.semaphore.round + 1).max(self.now.as_round());
        self.semaphore.last_round_at = Some(self.now);
    }

    /// The open block of that name.
    pub(crate) fn block(&self, id: BlockId) -> Option<&Block> {
        self.blocks.get(&id.slot).filter(|block| block.id == id)
    }

    /// Adds a new block.
    pub(crate) fn insert(&mut self, block: Block) {
        self.changed_slots.insert(block.id.slot);
        self.count(None, Some(&block));
        self.tally.make(&block);
        if let Some(client) = self.clients.get_mut(&block.client) {
            client.last_block = block.id.round;
            if block.kind == Kind::Lease {
                client.leases.push(block.id.slot);
            }
        }
        self.blocks.insert(block.id.slot, block);
    }

    /// Changes an open block, and settles it if nothing of it counts any more.
    pub(crate) fn change(&mut self, slot: Slot, change: impl FnOnce(&mut Block)) {
        let Some(before) = self.blocks.remove(&slot) else { return };
        let mut block = before.clone();
        change(&mut block);
        if block.unclaimed() == 0 {
            block.batch = None;
        }
        if block == before {
            self.blocks.insert(slot, block);
            return;
        }
        self.changed_slots.insert(slot);
        self.tally.change(&before, &block);
        if let Some(n) = before.batch.filter(|_| block.batch.is_none()) {
            self.leave_batch(n);
        }
        if block.counted() > 0 {
            self.count(Some(&before), Some(&block));
            self.blocks.insert(slot, block);
        } else {
            self.count(Some(&before), None);
            self.settle(block);
        }
    }

    /// Has nothing drawn any more from a lease.
    pub(crate) fn retire(&mut self, slot: Slot, because: Retired) {
        if self.blocks.get(&slot).is_some_and(Block::is_live_lease) {
            self.tally.retire(because);
            self.change(slot, |lease| lease.status = Status::Retired);
        }
    }

    /// Settles an open block whatever still counts of it. Returns what did.
    pub(crate) fn write_off(&mut self, slot: Slot) -> Usage {
        let Some(mut block) = self.blocks.remove(&slot) else { return Usage::default() };
        self.changed_slots.insert(slot);
        self.count(Some(&block), None);
        self.tally.write_off(&block);
        if let Some(n) = block.batch.take() {
            self.leave_batch(n);
        }
        let usage = Usage::of(&block);
        self.settle(block);
        usage
    }

    /// Rows of a client's open blocks.
    pub(crate) fn slots_of(&self, client: &ClientId) -> Vec<Slot> {
        self.blocks.values().filter(|block| block.client == *client).map(|block| block.id.slot).collect()
    }

    fn settle(&mut self, block: Block) {
        self.free_slot(block.id.slot);
        if let Some(client) = self.clients.get_mut(&block.client) {
            client.leases.retain(|slot| *slot != block.id.slot);
        }
        if block.permits > 0 {
            self.settled.insert(block.id, block);
        }
    }

    /// Moves the counters of the key, of the group and of the client by what becomes of one block.
    fn count(&mut self, before: Option<&Block>, after: Option<&Block>) {
        let Some(block) = after.or(before) else { return };
        let counted = |block: Option<&Block>| block.map_or(0, Block::counted);
        let live = |block: Option<&Block>| i64::from(block.is_some_and(Block::is_live_lease));
        let print = |block: Option<&Block>| block.map_or(0, fingerprint::of_block);
        let (permits, leases) = (counted(after) - counted(before), live(after) - live(before));
        let usage = self.groups.get_mut(&block.group).expect("groups of blocks and demand are in the state");
        if permits != 0 || leases != 0 {
            let (of_key, of_group) = match block.kind {
                Kind::Grant => (&mut self.semaphore.grants, &mut usage.grants),
                Kind::Lease => (&mut self.semaphore.leases, &mut usage.leases),
            };
            *of_key += permits;
            *of_group += permits;
            self.semaphore.live_leases += leases;
            usage.live_leases += leases;
            self.changed_groups.insert(block.group.clone());
        }
        let (old, new) = (print(before), print(after));
        if old != new {
            let client = self.clients.get_mut(&block.client).expect("owners of blocks are in the state");
            client.open_blocks = client.open_blocks.wrapping_sub(old).wrapping_add(new);
            self.changed_clients.insert(block.client.clone());
        }
    }
}

/// Permits that count, of grants and of leases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) grants: Permits,
    pub(crate) leases: Permits,
}

impl Usage {
    pub(crate) fn of(block: &Block) -> Self {
        match block.kind {
            Kind::Grant => Self { grants: block.counted(), leases: 0 },
            Kind::Lease => Self { grants: 0, leases: block.counted() },
        }
    }
}

impl std::iter::Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(usages: I) -> Self {
        let add =
            |sum: Self, one: Self| Self { grants: sum.grants + one.grants, leases: sum.leases + one.leases };
        usages.fold(Self::default(), add)
    }
}
