//! Rows that are made ready before a round, outside its transaction.

use super::{MemoryStore, Rows};
use pgsemaphore_allocation::{Call, SemaphoreKey, Slot};

/// Rows are made this many at a time: few, so that small worlds grow too.
const GROWTH: Slot = 4;
/// Most rows that are listed as free, as the table's constraint says.
const FREE_LISTED_MAX: usize = 256;

impl MemoryStore {
    /// A round makes at most one block for each entry of demand.
    pub(super) fn make_room(&mut self, key: &SemaphoreKey, calls: &[Call]) {
        let entries = calls.iter().flat_map(|call| &call.demand).filter(|demand| demand.count > 0).count();
        let has_policy = self.limits.contains_key(key);
        if !has_policy || entries == 0 {
            return;
        }
        let rows = self.keys.entry(key.clone()).or_default();
        let available = rows.semaphore.available_slots();
        if available < entries && rows.semaphore.unlisted_slots > 0 {
            rows.list_free();
        }
        let available = rows.semaphore.available_slots();
        if available < entries {
            let missing = Slot::try_from(entries - available).unwrap_or(Slot::MAX);
            rows.semaphore.slot_cap += missing.max(GROWTH);
            rows.version += 1;
        }
    }
}

impl Rows {
    /// Finds free rows that the key's row does not list.
    fn list_free(&mut self) {
        let Self { semaphore, blocks, .. } = self;
        let listed = semaphore.free_slots.clone();
        let unlisted =
            (0..semaphore.next_slot).filter(|slot| !blocks.contains_key(slot) && !listed.contains(slot));
        let found: Vec<_> = unlisted.take(FREE_LISTED_MAX - listed.len().min(FREE_LISTED_MAX)).collect();
        semaphore.unlisted_slots -= Slot::try_from(found.len()).unwrap_or(Slot::MAX);
        semaphore.free_slots.extend(found);
        self.version += 1;
    }
}
