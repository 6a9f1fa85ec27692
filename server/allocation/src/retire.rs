//! Step 3, leases: those that are silent, not eligible any more, or over budget are retired.
//!
//! A retired lease counts whole until its client says that it stopped, so retiring frees nothing by itself; it makes the
//! client hear of it. Leases are judged all together, which reads all of them: [`must_read_leases`] says when.

use crate::budget::{self, Usage};
use crate::draft::Draft;
use crate::names::{DbTime, Group, Permits, Slot};
use crate::plan::Work;
use crate::state::{Block, GroupUsage, Policy, Provisioning, Semaphore, State, Status};
use crate::tally::Retired;
use std::collections::BTreeMap;

/// Whether a transaction has to read all open leases of the key: one may have to be retired. Says yes only where a
/// lease is due, the policy changed, or a budget is exceeded, so that a round in quiet times reads what its calls name.
pub fn must_read_leases(
    work: Work,
    now: DbTime,
    semaphore: &Semaphore,
    policy: Option<&Policy>,
    groups: &BTreeMap<Group, GroupUsage>,
) -> bool {
    if semaphore.live_leases == 0 || work == Work::Sync {
        return false;
    }
    let Some(policy) = policy else { return work == Work::Timer };
    if policy.paused {
        return false;
    }
    let silent = work == Work::Round && semaphore.leases_due.is_some_and(|due| due <= now);
    let over = budget::for_leases(policy, Usage::new(semaphore, 0)).is_some_and(|left| left < 0);
    let judged = policy.stamp == semaphore.leases_judged_by && policy.provisioning != Provisioning::None;
    silent
        || over
        || !judged
        || groups.iter().any(|(name, group)| {
            group.live_leases > 0 && !policy.pauses(name) && group_objects(policy, group)
        })
}

fn group_objects(policy: &Policy, group: &GroupUsage) -> bool {
    let over = |limit: Permits| group.grants + group.leases > limit;
    group.limit.is_some_and(|limit| !policy.leases_within_group_limit || over(limit))
}

/// Retires what has to be: of who may not be admitted, and, if all leases were read, of all. Nothing that is paused.
pub(crate) fn retire(draft: &mut Draft, state: &State, work: Work) {
    let Some(policy) = &state.policy else {
        return if state.all_leases {
            retire_if(draft, Retired::NotEligible, |_, _| true)
        };
    };
    let paused = |lease: &Block| policy.pauses(&lease.group);
    retire_if(draft, Retired::NotEligible, |_, lease| {
        !paused(lease) && state.not_permitted.contains(&(lease.client.clone(), lease.group.clone()))
    });
    if !state.all_leases {
        return;
    }
    if work == Work::Round {
        let silent = |draft: &Draft, lease: &Block| lease.reported_at + lease.ttl <= draft.now;
        retire_if(draft, Retired::Silent, |draft, lease| !paused(lease) && silent(draft, lease));
    }
    retire_if(draft, Retired::NotEligible, |draft, lease| {
        let ceiling = draft.groups.get(&lease.group).and_then(|group| group.limit);
        let excluded = ceiling.is_some() && !policy.leases_within_group_limit;
        !paused(lease) && (policy.provisioning == Provisioning::None || excluded)
    });
    retire_over_ceilings(draft, policy);
    // What is charged to this round alone retires nothing: it is gone with the next one.
    if let Some(left) = budget::for_leases(policy, Usage::new(&draft.semaphore, 0)) {
        retire_newest(draft, policy, -left, |_| true);
    }
    draft.semaphore.leases_judged_by = policy.stamp;
    let live = draft.blocks.values().filter(|block| block.is_live_lease());
    draft.semaphore.leases_due = live.map(|lease| lease.reported_at + lease.ttl).min();
}

fn retire_over_ceilings(draft: &mut Draft, policy: &Policy) {
    let excess = |group: &GroupUsage| group.limit.map_or(0, |limit| group.grants + group.leases - limit);
    let active = draft.groups.iter().filter(|(name, _)| !policy.pauses(name));
    let over = active.map(|(name, group)| (name.clone(), excess(group)));
    let over: Vec<_> = over.filter(|(_, excess)| *excess > 0).collect();
    for (group, excess) in over {
        retire_newest(draft, policy, excess, |lease| lease.group == group);
    }
}

fn retire_if(draft: &mut Draft, because: Retired, must: impl Fn(&Draft, &Block) -> bool) {
    let live = draft.blocks.values().filter(|block| block.is_live_lease() && must(draft, block));
    let slots: Vec<Slot> = live.map(|lease| lease.id.slot).collect();
    slots.into_iter().for_each(|slot| draft.retire(slot, because));
}

/// Retires the newest first that are not paused, until what retired leases have not drawn covers the excess.
fn retire_newest(draft: &mut Draft, policy: &Policy, excess: Permits, concerned: impl Fn(&Block) -> bool) {
    let leases =
        || draft.blocks.values().filter(|block| block.kind == crate::Kind::Lease && concerned(block));
    let mut coming =
        leases().filter(|lease| lease.status == Status::Retired).map(Block::undrawn).sum::<Permits>();
    let live = leases().filter(|lease| lease.is_live_lease() && !policy.pauses(&lease.group));
    let mut live: Vec<_> = live.map(|lease| (lease.id, lease.undrawn())).collect();
    live.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
    for (id, undrawn) in live {
        if coming >= excess {
            return;
        }
        draft.retire(id.slot, Retired::OverBudget);
        coming += undrawn;
    }
}
