//! Step 5: leases, from what grants left.

use crate::blocked::Lacking;
use crate::budget::{self, Usage};
use crate::call::Call;
use crate::draft::Draft;
use crate::grants::{Entry, obstacle};
use crate::names::{BlockId, ClientId, Group, Permits, Slot};
use crate::state::{Block, Kind, Policy, Provisioning, State, Status};
use crate::undelivered::Owned;
use std::collections::{BTreeMap, BTreeSet};

/// Shares what is left among the candidates, oldest demand first, and takes it off what they lack.
pub(crate) fn allocate(
    draft: &mut Draft,
    state: &State,
    policy: &Policy,
    calls: &[Call],
    entries: &[Entry],
    owned: &mut Owned,
    lacking: &mut BTreeMap<usize, Vec<Lacking>>,
) {
    if policy.provisioning == Provisioning::None {
        return;
    }
    let mut asking = BTreeMap::<_, Vec<usize>>::new();
    for entry in entries {
        asking.entry(owner(calls, entry)).or_default().push(entry.call);
    }
    let mut owners = BTreeSet::new();
    let candidates: Vec<&Entry> = entries
        .iter()
        .filter(|entry| obstacle(state, policy, &calls[entry.call].client, &entry.demand.group).is_none())
        .filter(|entry| is_candidate(draft, policy, &calls[entry.call], entry, owned))
        .filter(|entry| owners.insert(owner(calls, entry)))
        .collect();
    for (at, entry) in candidates.iter().enumerate() {
        let Some(left) = budget::for_leases(policy, Usage::new(&draft.semaphore, draft.charged)) else {
            return;
        };
        let waiting = Permits::try_from(candidates.len() - at).unwrap_or(Permits::MAX);
        let share = left.max(0).saturating_add(waiting - 1) / waiting;
        let group = &entry.demand.group;
        let permits = policy.permits_per_lease.min(share).min(ceiling_left(draft, group));
        if permits <= 0 {
            continue;
        }
        let Some(slot) = draft.take_slot() else { return };
        let lease = new_lease(draft, policy, slot, &calls[entry.call], group, permits);
        owned.add(&lease);
        draft.insert(lease);
        for call in &asking[&owner(calls, entry)] {
            take_off(lacking, *call, group, permits);
        }
    }
}

/// Whose demand it is, and in which group: two calls of one client count as one candidate.
fn owner<'a>(calls: &'a [Call], entry: &Entry<'a>) -> (&'a ClientId, &'a Group) {
    (&calls[entry.call].client, &entry.demand.group)
}

/// Demand of a client that can hold leases, in a group that may have them, without undrawn permits in a live one.
fn is_candidate(draft: &Draft, policy: &Policy, call: &Call, entry: &Entry, owned: &Owned) -> bool {
    let group = &entry.demand.group;
    let limited = draft.groups.get(group).is_some_and(|usage| usage.limit.is_some());
    call.takes_leases
        && (!limited || policy.leases_within_group_limit)
        && !owned.blocks(draft, call, group).any(|block| block.is_live_lease() && block.undrawn() > 0)
}

fn ceiling_left(draft: &Draft, group: &Group) -> Permits {
    let usage = &draft.groups[group];
    usage.limit.map_or(Permits::MAX, |limit| limit - usage.grants - usage.leases)
}

fn take_off(lacking: &mut BTreeMap<usize, Vec<Lacking>>, call: usize, group: &Group, permits: Permits) {
    let Some(entries) = lacking.get_mut(&call) else { return };
    for lacks in entries.iter_mut().filter(|lacks| lacks.group == *group) {
        lacks.count -= permits.min(lacks.count);
    }
    entries.retain(|lacks| lacks.count > 0);
}

fn new_lease(
    draft: &mut Draft,
    policy: &Policy,
    slot: Slot,
    call: &Call,
    group: &Group,
    permits: Permits,
) -> Block {
    let due = draft.now + policy.lease_ttl;
    let semaphore = &mut draft.semaphore;
    semaphore.leases_due = Some(semaphore.leases_due.map_or(due, |earlier| earlier.min(due)));
    if semaphore.live_leases == 0 {
        semaphore.leases_judged_by = policy.stamp;
    }
    Block {
        id: BlockId { round: semaphore.round, slot },
        kind: Kind::Lease,
        client: call.client.clone(),
        group: group.clone(),
        permits,
        used: 0,
        released: 0,
        status: Status::Active,
        deadline: due,
        batch: None,
        created_at: draft.now,
        stopped: false,
        ttl: policy.lease_ttl,
        reported_at: draft.now,
    }
}
