//! Step 4: permits for demand, oldest first across all clients.

use crate::blocked::{Lacking, Reason};
use crate::budget::{self, Usage};
use crate::call::{Call, Demand};
use crate::draft::Draft;
use crate::names::{BlockId, ClientId, DbTime, Group, Permits, Slot};
use crate::state::{Block, Kind, Policy, State, Status};
use crate::undelivered::Owned;
use std::collections::BTreeMap;

/// One demand entry at its place in the order.
pub(crate) struct Entry<'a> {
    oldest: DbTime,
    pub(crate) call: usize,
    pub(crate) demand: &'a Demand,
}

/// Grants what the limit leaves; says what each call still lacks.
pub(crate) fn allocate(
    draft: &mut Draft,
    state: &State,
    policy: &Policy,
    calls: &[Call],
    entries: &[Entry],
    owned: &mut Owned,
) -> BTreeMap<usize, Vec<Lacking>> {
    let mut lacking = BTreeMap::<usize, Vec<Lacking>>::new();
    let mut made = Vec::new();
    for entry in entries {
        let call = &calls[entry.call];
        let group = &entry.demand.group;
        let mut lacks = (entry.demand.count - owned.undelivered(draft, call, entry.call, group)).max(0);
        let obstacle = obstacle(state, policy, &call.client, group);
        let granted = match obstacle {
            Some(_) => 0,
            None => lacks.min(headroom(draft, policy, group).left()).max(0),
        };
        if granted > 0
            && let Some(slot) = draft.take_slot()
        {
            let block = new_grant(draft, policy, slot, call, group, granted);
            owned.add(&block);
            draft.insert(block);
            made.push(slot);
            lacks -= granted;
        }
        if lacks > 0 {
            let reason = obstacle.unwrap_or_else(|| headroom(draft, policy, group).reason());
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
pub(crate) fn in_order<'a, R>(now: DbTime, calls: &'a [Call], admitted: &[Result<(), R>]) -> Vec<Entry<'a>> {
    let mut entries = Vec::new();
    for (at, call) in calls.iter().enumerate().filter(|(at, _)| admitted[*at].is_ok()) {
        for demand in call.demand.iter().filter(|demand| demand.count > 0) {
            entries.push(Entry { oldest: now - call.waited - demand.oldest_age, call: at, demand });
        }
    }
    entries.sort_by_key(|entry| (entry.oldest, entry.call));
    entries
}

/// Why nothing is admitted whatever is left, if so.
pub(crate) fn obstacle(state: &State, policy: &Policy, client: &ClientId, group: &Group) -> Option<Reason> {
    let unresolved =
        || policy.limit.is_none() || state.groups.get(group).is_some_and(|usage| usage.unresolved);
    if policy.pauses(group) {
        Some(Reason::Paused)
    } else if state.not_permitted.contains(&(client.clone(), group.clone())) {
        Some(Reason::NotPermitted)
    } else {
        unresolved().then_some(Reason::LimitResolutionError)
    }
}

/// What the limit and the group's ceiling leave; negative after a lowering, `None` where unlimited.
struct Headroom {
    budget: Permits,
    group: Option<Permits>,
}

fn headroom(draft: &Draft, policy: &Policy, group: &Group) -> Headroom {
    let usage = &draft.groups[group];
    Headroom {
        budget: budget::for_grants(policy, Usage::new(&draft.semaphore, draft.charged)).unwrap_or(0),
        group: usage.limit.map(|limit| limit - usage.grants - usage.leases),
    }
}

impl Headroom {
    fn left(&self) -> Permits {
        self.group.map_or(self.budget, |group| group.min(self.budget))
    }

    fn reason(&self) -> Reason {
        match self.group {
            Some(group) if group.max(0) < self.budget.max(0) => Reason::GroupLimit,
            _ => Reason::Limit,
        }
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
        stopped: false,
        ttl: 0,
        reported_at: draft.now,
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
