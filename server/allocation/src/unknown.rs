//! Blocks that their client does not know, although it says all that it holds: a database restored from an older copy
//! brought them back, or the client forgot them. Nobody will ever report them, so they are settled.

use crate::call::Call;
use crate::draft::{Draft, Usage};
use crate::names::{BlockId, Slot};
use crate::plan::Act;
use std::collections::BTreeSet;

/// Settles what the calls that say `all` do not name, of rounds that they have heard of.
pub(crate) fn settle<R>(draft: &mut Draft, calls: &[Call], admitted: &[Result<(), R>]) {
    let heard = calls.iter().zip(admitted).filter(|(call, admitted)| admitted.is_ok() && !call.applied);
    for (call, _) in heard.filter(|(call, _)| call.all) {
        let named: BTreeSet<BlockId> = call.reported().filter_map(BlockId::parse).collect();
        let unknown = |slot: &Slot| {
            draft
                .blocks
                .get(slot)
                .is_some_and(|block| block.id.round <= call.seen && !named.contains(&block.id))
        };
        let slots: Vec<Slot> = draft.slots_of(&call.client).into_iter().filter(unknown).collect();
        let usage: Usage = slots.into_iter().map(|slot| draft.write_off(slot)).sum();
        draft.record(&call.client, Act::UnknownToClient, usage);
    }
}
