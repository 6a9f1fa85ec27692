//! Which row a new block takes. Rows are used again, so that no index changes.

use crate::draft::Draft;
use crate::names::Slot;

/// Most free rows that the key's row lists; it is rewritten in each round.
const FREE_LISTED_MAX: usize = 256;

impl Draft {
    /// Has the next blocks take free rows in ascending order. Blocks are made for the oldest demand first, so
    /// [`BlockId`](crate::BlockId)s are in the order of the blocks, also within one round.
    pub(crate) fn sort_free_slots(&mut self) {
        self.semaphore.free_slots.sort_unstable_by_key(|slot| std::cmp::Reverse(*slot));
    }

    /// A free row. The store made enough of them before the round.
    pub(crate) fn take_slot(&mut self) -> Option<Slot> {
        let semaphore = &mut self.semaphore;
        if let Some(slot) = semaphore.free_slots.pop() {
            return Some(slot);
        }
        let slot = semaphore.next_slot;
        (slot < semaphore.slot_cap).then(|| {
            semaphore.next_slot += 1;
            slot
        })
    }

    pub(crate) fn free_slot(&mut self, slot: Slot) {
        self.semaphore.free_slots.push(slot);
    }

    /// Keeps the list of free rows short; what it leaves out is found by a scan when the list has run out.
    pub(crate) fn shorten_free_list(&mut self) {
        let free = &mut self.semaphore.free_slots;
        let unlisted = free.len().saturating_sub(FREE_LISTED_MAX);
        free.truncate(FREE_LISTED_MAX);
        self.semaphore.unlisted_slots += i32::try_from(unlisted).unwrap_or(i32::MAX);
    }
}
