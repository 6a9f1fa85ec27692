//! Step 3: unclaimed permits of grants past their deadline come back.

use crate::draft::Draft;
use crate::names::Slot;
use crate::plan::PendingWrite;
use crate::state::{State, Status};

/// Reclaims what is due at `now`. A grant that is claimed whole is not concerned.
pub(crate) fn reclaim(draft: &mut Draft, state: &State) {
    for (n, listed) in &state.due {
        for slot in listed {
            let due = |block: &&crate::Block| block.batch == Some(*n) && block.deadline <= draft.now;
            if draft.blocks.get(slot).filter(due).is_some() {
                draft.change(*slot, |grant| {
                    grant.permits = grant.used;
                    grant.status = Status::Expired;
                });
            }
        }
        keep_rest(draft, *n, listed);
    }
}

/// What of a due batch is not due yet stays in it.
fn keep_rest(draft: &mut Draft, n: i32, listed: &[Slot]) {
    let open = |slot: &&Slot| draft.blocks.get(*slot).is_some_and(|block| block.batch == Some(n));
    let mut rest: Vec<Slot> = listed.iter().filter(open).copied().collect();
    rest.sort_unstable();
    rest.dedup();
    let earliest = rest.iter().filter_map(|slot| draft.blocks.get(slot)).map(|block| block.deadline).min();
    let batch = draft.semaphore.batches.iter_mut().find(|batch| batch.n == n);
    if let (Some(batch), Some(earliest)) = (batch, earliest) {
        batch.deadline = earliest;
        draft.pending.insert(n, PendingWrite { slots: rest, append: false });
    }
}
