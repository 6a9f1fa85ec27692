//! Step 4: permits for demand, oldest first across all clients.

use crate::blocked::{Lacking, Reason};
use crate::call::{Call, Demand};
use crate::draft::Draft;
use crate::names::{BlockId, ClientId, DbTime, Group, Permits, Slot};
use crate::state::{Block, Kind, Policy, Status};
use std::collections::{BTreeMap, BTreeSet};

/// One demand entry at its place in the order.
struct Entry<'a> {
    oldest: DbTime,
    call: usize,
    demand: &'a Demand,
}

/// Grants what the limit leaves; says what each call still lacks.
pub(crate) fn allocate<R>(
    draft: &mut Draft,
    policy: &Policy,
    calls: &[Call],
    admitted: &[Result<(), R>],
) -> BTreeMap<usize, Vec<Lacking>> {
    let mut undelivered = Undelivered::new(draft, calls);
    let mut lacking = BTreeMap::<usize, Vec<Lacking>>::new();
    let mut made = Vec::new();
    for entry in in_order(draft.now, calls, admitted) {
        let call = &calls[entry.call];
        let group = &entry.demand.group;
        let mut lacks = (entry.demand.count - undelivered.permits(draft, call, entry.call, group)).max(0);
        let granted = lacks.min(headroom(draft, policy, group).left()).max(0);
        if granted > 0
            && let Some(slot) = draft.take_slot()
        {
            let block = new_grant(draft, policy, slot, call, group, granted);
            undelivered.add(&block);
            draft.insert(block);
            made.push(slot);
            lacks -= granted;
        }
        if lacks > 0 {
            let reason = headroom(draft, policy, group).reason();
            lacking.entry(entry.call).or_default().push(Lacking {
                group: group.clone(),
                count: lacks,
                reason,
            });
        }
    }
    file_in_batch(draft, policy, made);
    lacking
}

/// Oldest first, then by arrival.
fn in_order<'a, R>(now: DbTime, calls: &'a [Call], admitted: &[Result<(), R>]) -> Vec<Entry<'a>> {
    let mut entries = Vec::new();
    for (at, call) in calls.iter().enumerate().filter(|(at, _)| admitted[*at].is_ok()) {
        for demand in call.demand.iter().filter(|demand| demand.count > 0) {
            entries.push(Entry { oldest: now - call.waited - demand.oldest_age, call: at, demand });
        }
    }
    entries.sort_by_key(|entry| (entry.oldest, entry.call));
    entries
}

/// What the limit and the group's ceiling leave; negative after a lowering, `None` where unlimited or unresolved.
struct Headroom {
    budget: Option<Permits>,
    group: Option<Permits>,
}

fn headroom(draft: &Draft, policy: &Policy, group: &Group) -> Headroom {
    let usage = &draft.groups[group];
    Headroom {
        budget: policy.limit.map(|limit| limit - draft.semaphore.grants - draft.semaphore.leases),
        group: usage.limit.map(|limit| limit - usage.grants - usage.leases),
    }
}

impl Headroom {
    fn left(&self) -> Permits {
        let budget = self.budget.unwrap_or(0);
        self.group.map_or(budget, |group| group.min(budget))
    }

    fn reason(&self) -> Reason {
        match (self.budget, self.group) {
            (None, _) => Reason::LimitResolutionError,
            (Some(budget), Some(group)) if group.max(0) < budget.max(0) => Reason::GroupLimit,
            _ => Reason::Limit,
        }
    }
}

/// Blocks that calls have not heard of: their permits cover demand, and this round's replies deliver them again.
struct Undelivered {
    reported: Vec<BTreeSet<BlockId>>,
    by_owner: BTreeMap<(ClientId, Group), Vec<Slot>>,
}

impl Undelivered {
    fn new(draft: &Draft, calls: &[Call]) -> Self {
        let reported =
            |call: &Call| call.grants.iter().filter_map(|report| BlockId::parse(&report.id)).collect();
        let mut new = Self { reported: calls.iter().map(reported).collect(), by_owner: BTreeMap::new() };
        draft.blocks.values().for_each(|block| new.add(block));
        new
    }

    fn add(&mut self, block: &Block) {
        let owner = (block.client.clone(), block.group.clone());
        self.by_owner.entry(owner).or_default().push(block.id.slot);
    }

    fn permits(&self, draft: &Draft, call: &Call, at: usize, group: &Group) -> Permits {
        let slots = self.by_owner.get(&(call.client.clone(), group.clone())).into_iter().flatten();
        let blocks = slots.filter_map(|slot| draft.blocks.get(slot));
        blocks
            .filter(|block| block.id.round > call.seen && !self.reported[at].contains(&block.id))
            .map(|block| block.permits)
            .sum()
    }
}

fn new_grant(
    draft: &Draft,
    policy: &Policy,
    slot: Slot,
    call: &Call,
    group: &Group,
    permits: Permits,
) -> Block {
    Block {
        id: BlockId { round: draft.semaphore.round, slot },
        kind: Kind::Grant,
        client: call.client.clone(),
        group: group.clone(),
        permits,
        used: 0,
        released: 0,
        status: Status::Active,
        deadline: draft.now + policy.grant_timeout,
        batch: None,
        created_at: draft.now,
    }
}

fn file_in_batch(draft: &mut Draft, policy: &Policy, made: Vec<Slot>) {
    if made.is_empty() {
        return;
    }
    let n = draft.join_batch(made.clone(), draft.now + policy.grant_timeout, policy.grant_timeout);
    for slot in made {
        if let Some(block) = draft.blocks.get_mut(&slot) {
            block.batch = Some(n);
        }
    }
}
