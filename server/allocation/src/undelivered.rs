//! Which blocks a client holds in a group, and which of them a call has not heard of.

use crate::call::Call;
use crate::draft::Draft;
use crate::names::{BlockId, ClientId, Group, Permits, Slot};
use crate::state::{Block, Kind};
use std::collections::{BTreeMap, BTreeSet};

/// Blocks by owner, and what each call reports.
pub(crate) struct Owned {
    reported: Vec<BTreeSet<BlockId>>,
    by_owner: BTreeMap<(ClientId, Group), Vec<Slot>>,
}

impl Owned {
    pub(crate) fn new(draft: &Draft, calls: &[Call]) -> Self {
        let reported = |call: &Call| call.reported().filter_map(BlockId::parse).collect();
        let mut new = Self { reported: calls.iter().map(reported).collect(), by_owner: BTreeMap::new() };
        draft.blocks.values().for_each(|block| new.add(block));
        new
    }

    pub(crate) fn add(&mut self, block: &Block) {
        let owner = (block.client.clone(), block.group.clone());
        self.by_owner.entry(owner).or_default().push(block.id.slot);
    }

    /// Open blocks of the call's client in a group.
    pub(crate) fn blocks<'a>(
        &'a self,
        draft: &'a Draft,
        call: &Call,
        group: &Group,
    ) -> impl Iterator<Item = &'a Block> {
        let slots = self.by_owner.get(&(call.client.clone(), group.clone())).into_iter().flatten();
        slots.filter_map(|slot| draft.blocks.get(slot))
    }

    /// Permits on their way to the call's client, which cover demand: this round's replies deliver them again. Those of
    /// a retired lease are not drawn any more, so they cover nothing.
    pub(crate) fn undelivered(&self, draft: &Draft, call: &Call, at: usize, group: &Group) -> Permits {
        self.blocks(draft, call, group)
            .filter(|block| block.id.round > call.seen && !self.reported[at].contains(&block.id))
            .map(|block| match block.kind {
                Kind::Grant => block.permits,
                Kind::Lease if block.is_live_lease() => block.undrawn(),
                Kind::Lease => 0,
            })
            .sum()
    }
}
