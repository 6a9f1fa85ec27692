//! Batches: how grants with unclaimed permits are found when they are due, at a cost that does not depend on how many
//! blocks the key holds, and with no index on a deadline.
//!
//! The grants of one round share a deadline, so they share a batch: a row that lists their slots. The key's row knows
//! of each batch the earliest deadline and how many grants are still open; a batch with none is forgotten, and its row
//! is used again. A slot in a list counts only while its block says that it is in that batch.

use crate::draft::Draft;
use crate::names::{DbTime, Micros, Slot};
use crate::plan::PendingWrite;
use crate::state::Batch;

/// From this many batches on, grants whose deadlines are close share one.
const SHARE_FROM: usize = 32;
/// Most batches in the key's row.
pub(crate) const BATCHES_MAX: usize = 64;

impl Draft {
    /// The batch for grants made now.
    pub(crate) fn join_batch(&mut self, slots: Vec<Slot>, deadline: DbTime, timeout: Micros) -> i32 {
        let open = i32::try_from(slots.len()).unwrap_or(i32::MAX);
        let shared = self.batch_to_share(deadline, timeout);
        if let Some(batch) = shared.and_then(|at| self.semaphore.batches.get_mut(at)) {
            batch.open += open;
            batch.deadline = batch.deadline.min(deadline);
            let write = PendingWrite { slots: Vec::new(), append: true };
            let n = batch.n;
            self.pending.entry(n).or_insert(write).slots.extend(slots);
            return n;
        }
        let used = &self.semaphore.batches;
        let n = (0..).find(|n| used.iter().all(|batch| batch.n != *n)).unwrap_or(0);
        self.semaphore.batches.push(Batch { n, deadline, open });
        self.pending.insert(n, PendingWrite { slots, append: false });
        n
    }

    fn batch_to_share(&self, deadline: DbTime, timeout: Micros) -> Option<usize> {
        let batches = &self.semaphore.batches;
        if batches.len() < SHARE_FROM {
            return None;
        }
        let (at, latest) = batches.iter().enumerate().max_by_key(|(_, batch)| batch.deadline)?;
        let close = deadline - latest.deadline < timeout / 32;
        (close || batches.len() >= BATCHES_MAX).then_some(at)
    }

    /// One grant of the batch has no unclaimed permit any more.
    pub(crate) fn leave_batch(&mut self, n: i32) {
        let batches = &mut self.semaphore.batches;
        if let Some(batch) = batches.iter_mut().find(|batch| batch.n == n) {
            batch.open -= 1;
        }
        batches.retain(|batch| batch.open > 0);
    }
}
