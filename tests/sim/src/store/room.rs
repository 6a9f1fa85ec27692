//! Free rows for the blocks that a round may make: at most a grant for each entry of demand, and a lease where the
//! policy provisions them.

use super::{Limits, MemoryStore, Rows};
use pgsemaphore_allocation::{Call, Provisioning, Semaphore, SemaphoreKey, Slot};

/// Rows are made this many at a time: few, so that small worlds grow too.
const GROWTH: Slot = 4;

impl MemoryStore {
    /// Makes rows where there are too few: before the round, outside its transaction.
    pub(super) fn make_room(&mut self, key: &SemaphoreKey, calls: &[Call]) {
        let wanted = wanted(self.limits.get(key), calls);
        if wanted == 0 {
            return;
        }
        let rows = self.keys.entry(key.clone()).or_default();
        let unlisted = usize::try_from(rows.semaphore.unlisted_slots).unwrap_or(0);
        let available = rows.semaphore.available_slots() + unlisted;
        if available < wanted {
            let missing = Slot::try_from(wanted - available).unwrap_or(Slot::MAX);
            rows.semaphore.slot_cap += missing.max(GROWTH);
            rows.version += 1;
        }
    }
}

impl Rows {
    /// The key's row with as many free rows listed as a round may need. The row that is written lists fewer again; if
    /// that bound held here too, a key whose rounds make more blocks than it lists would grow for ever.
    pub(super) fn semaphore_with_room(&self, limits: Option<&Limits>, calls: &[Call]) -> Semaphore {
        let mut semaphore = self.semaphore.clone();
        let missing = wanted(limits, calls).saturating_sub(semaphore.available_slots());
        if missing == 0 || semaphore.unlisted_slots == 0 {
            return semaphore;
        }
        let listed = &self.semaphore.free_slots;
        let free = |slot: &Slot| !self.blocks.contains_key(slot) && !listed.contains(slot);
        let found: Vec<_> = (0..semaphore.next_slot).filter(free).take(missing).collect();
        semaphore.unlisted_slots -= Slot::try_from(found.len()).unwrap_or(Slot::MAX);
        semaphore.free_slots.extend(found);
        semaphore
    }
}

/// Blocks that a round may make.
fn wanted(limits: Option<&Limits>, calls: &[Call]) -> usize {
    let Some(Limits { policy, .. }) = limits else { return 0 };
    let entries = calls.iter().flat_map(|call| &call.demand).filter(|demand| demand.count > 0).count();
    if policy.provisioning == Provisioning::None { entries } else { entries * 2 }
}
