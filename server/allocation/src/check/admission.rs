//! Who is let in, and in what order.

use super::{Case, Violation, Work, violated};
use crate::answers::Outcome;
use crate::blocked::Reason;
use crate::names::{DbTime, Group, Permits};
use crate::state::{Block, Kind};
use std::collections::BTreeMap;

/// A round has a number that was never used; a block is made by its round; nothing else makes blocks.
pub(super) fn rounds_rise(case: &Case) -> Result<(), Violation> {
    let (old, new) = (case.before.semaphore.round, case.plan.semaphore.round);
    let numbered = case.work == Work::Round && case.before.policy.is_some();
    if new < old || (numbered && new == old) {
        return violated("P7", format!("round {new} after {old}"));
    }
    match case.made().find(|block| !numbered || block.id.round != new) {
        Some(block) => violated("P1", format!("round {new} makes {block:?}")),
        None => Ok(()),
    }
}

/// No round admits work that takes the usage above a ceiling.
pub(super) fn ceilings_hold(case: &Case) -> Result<(), Violation> {
    let mut admitted = BTreeMap::<&Group, Permits>::new();
    for block in case.made() {
        *admitted.entry(&block.group).or_default() += block.permits;
    }
    if admitted.is_empty() {
        return Ok(());
    }
    let limit = case.before.policy.as_ref().and_then(|policy| policy.limit);
    let usage = case.plan.semaphore.grants + case.plan.semaphore.leases;
    if limit.is_none_or(|limit| usage > limit) {
        return violated("P1", format!("usage {usage} is above the limit {limit:?}"));
    }
    for group in admitted.into_keys() {
        let ceiling = case.before.groups.get(group).and_then(|usage| usage.limit);
        let usage = case.plan.groups.get(group).map_or(0, |usage| usage.grants + usage.leases);
        if ceiling.is_some_and(|ceiling| usage > ceiling) {
            return violated(
                "P1",
                format!("usage {usage} of group {group:?} is above its ceiling {ceiling:?}"),
            );
        }
    }
    Ok(())
}

/// Nobody gets a permit while older demand lacks one of the shared limit.
pub(super) fn oldest_is_served_first(case: &Case) -> Result<(), Violation> {
    let mut starved: Option<(DbTime, usize)> = None;
    let mut last_served: Option<(DbTime, usize)> = None;
    for (at, (call, outcome)) in case.calls.iter().zip(&case.plan.answers).enumerate() {
        let Outcome::Answered(answer) = outcome else { continue };
        for demand in &call.demand {
            let place = (case.plan.now - call.waited - demand.oldest_age, at);
            let lacks = answer.blocked.iter().find(|lacks| lacks.group == demand.group);
            if lacks.is_some_and(|lacks| lacks.reason == Reason::Limit) {
                starved = Some(starved.map_or(place, |other| other.min(place)));
            }
            let own = |block: &Block| block.client == call.client && block.group == demand.group;
            if case.made().any(own) && !shared_owner(case, at) {
                last_served = Some(last_served.map_or(place, |other| other.max(place)));
            }
        }
    }
    match (starved, last_served) {
        (Some(starved), Some(served)) if starved < served => {
            violated("P5", format!("demand of {served:?} was served before that of {starved:?}"))
        }
        _ => Ok(()),
    }
}

/// Two calls of one client in a round: what was made can't be told apart.
fn shared_owner(case: &Case, at: usize) -> bool {
    let client = &case.calls[at].client;
    case.calls.iter().filter(|call| call.client == *client).count() > 1
}

/// After a round or a timer no grant that was due keeps unclaimed permits.
pub(super) fn what_is_due_came_back(case: &Case) -> Result<(), Violation> {
    let reclaims = match case.work {
        Work::Round => case.before.policy.is_some(),
        Work::Timer => true,
        Work::Sync => false,
    };
    let overdue = |block: &&Block| {
        let unclaimed = block.kind == Kind::Grant && block.used < block.permits;
        unclaimed && block.deadline <= case.plan.now && case.after(block) == Some(block)
    };
    if let Some(block) = case.before.blocks.values().filter(|_| reclaims).find(overdue) {
        return violated("P4", format!("{block:?} is due and keeps its permits"));
    }
    let lost = |block: &&Block| {
        let n = block.batch.and_then(|n| case.plan.semaphore.batches.iter().find(|batch| batch.n == n));
        block.unclaimed() > 0 && n.is_none_or(|batch| batch.deadline > block.deadline)
    };
    match case.plan.blocks.values().flatten().find(lost) {
        Some(block) => violated("P4", format!("no batch finds {block:?} when it is due")),
        None => Ok(()),
    }
}
