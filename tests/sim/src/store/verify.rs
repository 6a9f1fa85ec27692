//! What must be true of a key's rows after every transaction, recomputed from the blocks alone.

use super::{MemoryStore, Rows};
use pgsemaphore_allocation::{
    Block, ClientId, Group, GroupUsage, Kind, SemaphoreKey, Slot, Status, block_fingerprint,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Something stored that the blocks contradict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What is stored, and what the blocks say instead.
    pub detail: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl MemoryStore {
    /// Recomputes from the blocks what is stored beside them; returns every difference.
    pub fn verify(&self, key: &SemaphoreKey) -> Vec<Difference> {
        let Some(rows) = self.rows(key) else { return Vec::new() };
        let mut differences = Differences(Vec::new());
        rows.verify_counters(&mut differences);
        rows.verify_blocks(&mut differences);
        rows.verify_leases(&mut differences);
        rows.verify_clients(&mut differences);
        rows.verify_batches(&mut differences);
        rows.verify_free_rows(&mut differences);
        differences.0
    }
}

struct Differences(Vec<Difference>);

impl Differences {
    fn unless(&mut self, holds: bool, detail: impl FnOnce() -> String) {
        if !holds {
            self.0.push(Difference { detail: detail() });
        }
    }
}

impl Rows {
    fn verify_counters(&self, differences: &mut Differences) {
        let mut groups = BTreeMap::<&Group, GroupUsage>::new();
        let mut sum = GroupUsage::default();
        for block in self.blocks.values() {
            for usage in [&mut sum, groups.entry(&block.group).or_default()] {
                match block.kind {
                    Kind::Grant => usage.grants += block.counted(),
                    Kind::Lease => usage.leases += block.counted(),
                }
                usage.live_leases += i64::from(block.is_live_lease());
            }
        }
        let counters = |usage: &GroupUsage| (usage.grants, usage.leases, usage.live_leases);
        let stored = (self.semaphore.grants, self.semaphore.leases, self.semaphore.live_leases);
        let blocks = counters(&sum);
        differences.unless(stored == blocks, || format!("the key counts {stored:?}, its blocks {blocks:?}"));
        let named: BTreeSet<_> = self.groups.keys().chain(groups.keys().copied()).collect();
        for group in named {
            let stored = self.groups.get(group).map(counters).unwrap_or_default();
            let blocks = groups.get(group).map(counters).unwrap_or_default();
            differences.unless(stored == blocks, || {
                format!("group {:?} counts {stored:?}, its blocks {blocks:?}", group.as_str())
            });
        }
    }

    fn verify_blocks(&self, differences: &mut Differences) {
        for (slot, block) in &self.blocks {
            let marks = 0 <= block.released
                && block.released <= block.used
                && block.used <= block.permits
                && block.counted() > 0;
            differences.unless(marks, || format!("marks of an open block: {block:?}"));
            differences.unless(block.id.slot == *slot, || format!("row {slot} holds {block:?}"));
            let whole = block.status != Status::Expired || block.permits == block.used;
            differences.unless(whole, || format!("an expired grant has unclaimed permits: {block:?}"));
            let known =
                self.clients.get(&block.client).is_some_and(|owner| owner.last_block >= block.id.round);
            differences.unless(known, || format!("no search for its owner's blocks finds {block:?}"));
            differences.unless(block.id.round <= self.semaphore.round, || {
                format!("round {} made {block:?}", self.semaphore.round)
            });
        }
    }

    /// The key's row knows when a live lease is silent for its ttl, or earlier; a stopped one is never live.
    fn verify_leases(&self, differences: &mut Differences) {
        for (slot, block) in &self.blocks {
            let grant = block.kind == Kind::Grant;
            let possible = match block.status {
                Status::Active => !block.stopped,
                Status::Expired => grant && !block.stopped,
                Status::Retired => !grant,
            };
            differences.unless(possible, || format!("row {slot} is {block:?}"));
            let due = block.reported_at + block.ttl;
            let in_time = self.semaphore.leases_due.is_some_and(|at| at <= due);
            differences.unless(in_time || !block.is_live_lease(), || {
                format!("leases are looked at {:?}, too late for {block:?}", self.semaphore.leases_due)
            });
        }
    }

    /// The row of a client lists exactly its open leases, and knows the sum of the fingerprints of its open blocks.
    fn verify_clients(&self, differences: &mut Differences) {
        let mut owned = BTreeMap::<&ClientId, (Vec<Slot>, u64)>::new();
        for (slot, block) in &self.blocks {
            let (leases, sum) = owned.entry(&block.client).or_default();
            *sum = sum.wrapping_add(block_fingerprint(block));
            leases.extend((block.kind == Kind::Lease).then_some(*slot));
        }
        let named: BTreeSet<_> = self.clients.keys().chain(owned.keys().copied()).collect();
        for id in named {
            let mut stored = self
                .clients
                .get(id)
                .map(|client| (client.leases.clone(), client.open_blocks))
                .unwrap_or_default();
            stored.0.sort_unstable();
            let blocks = owned.get(id).cloned().unwrap_or_default();
            differences.unless(stored == blocks, || {
                format!("client {:?} has leases and sum {stored:?}, its blocks {blocks:?}", id.as_str())
            });
        }
    }

    /// Each grant with unclaimed permits is listed in one batch, which is due no later than the grant.
    fn verify_batches(&self, differences: &mut Differences) {
        let mut open = BTreeMap::<i32, i32>::new();
        for block in self.blocks.values() {
            let waits = block.kind == Kind::Grant && block.used < block.permits;
            differences.unless(waits == block.batch.is_some(), || format!("batch of {block:?}"));
            let Some(n) = block.batch else { continue };
            *open.entry(n).or_default() += 1;
            differences.unless(self.finds(n, block), || format!("batch {n} does not find {block:?} in time"));
        }
        let stored: BTreeMap<_, _> =
            self.semaphore.batches.iter().map(|batch| (batch.n, batch.open)).collect();
        differences.unless(stored == open && stored.len() == self.semaphore.batches.len(), || {
            format!("batches hold {stored:?}, blocks say {open:?}")
        });
        differences.unless(stored.len() <= 64, || format!("{} batches", stored.len()));
    }

    fn finds(&self, n: i32, block: &Block) -> bool {
        let listed = self.pending.get(&n).is_some_and(|slots| slots.contains(&block.id.slot));
        let batch = self.semaphore.batches.iter().find(|batch| batch.n == n);
        listed && batch.is_some_and(|batch| batch.deadline <= block.deadline)
    }

    /// Each row that was ever used holds a block, or is free and counted once.
    fn verify_free_rows(&self, differences: &mut Differences) {
        let semaphore = &self.semaphore;
        let listed: BTreeSet<_> = semaphore.free_slots.iter().copied().collect();
        differences.unless(listed.len() == semaphore.free_slots.len() && listed.len() <= 256, || {
            format!("free rows listed: {:?}", semaphore.free_slots)
        });
        let free = |slot: &Slot| !self.blocks.contains_key(slot) && *slot < semaphore.next_slot;
        differences.unless(listed.iter().all(free), || format!("listed as free and not so: {listed:?}"));
        let used_rows = self.blocks.len() + listed.len();
        let known = i64::try_from(used_rows).unwrap_or(i64::MAX) + i64::from(semaphore.unlisted_slots);
        differences.unless(known == i64::from(semaphore.next_slot), || {
            format!("of {} rows that were used {known} are known", semaphore.next_slot)
        });
        differences.unless(semaphore.next_slot <= semaphore.slot_cap, || "rows that do not exist".to_owned());
    }
}
