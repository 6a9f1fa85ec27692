//! What nobody claims is found when it is due, and comes back.

use super::{Case, Violation, violated};
use crate::names::Slot;
use crate::state::{Block, Kind, Status};
use std::collections::{BTreeMap, BTreeSet};

/// After a round or a timer no grant that was due keeps unclaimed permits, and no batch is due any more.
pub(super) fn what_is_due_came_back(case: &Case) -> Result<(), Violation> {
    if !case.reclaims() {
        return Ok(());
    }
    let now = case.plan.now;
    let overdue = |block: &&Block| {
        block.deadline <= now && case.after(block).is_some_and(|after| after.unclaimed() > 0)
    };
    if let Some(block) = case.before.blocks.values().find(overdue) {
        return violated("P4", format!("{block:?} is due and keeps its permits"));
    }
    match case.plan.semaphore.batches.iter().find(|batch| batch.deadline <= now) {
        Some(batch) => violated("P4", format!("{batch:?} is due and was not looked at")),
        None => Ok(()),
    }
}

/// Every grant with unclaimed permits is in a batch that is due no later than the grant, and that lists its row.
pub(super) fn what_will_be_due_is_found(case: &Case) -> Result<(), Violation> {
    let written = case.plan.pending.iter();
    let lists = written.map(|(n, write)| (*n, (write.append, write.slots.iter().copied().collect())));
    let lists: Lists = lists.collect();
    match case.known().find(|block| block.unclaimed() > 0 && !is_found(case, &lists, block)) {
        Some(block) => violated("P4", format!("no batch finds {block:?} when it is due")),
        None => Ok(()),
    }
}

/// What the plan lists in each batch, and whether it is added to what was listed.
type Lists = BTreeMap<i32, (bool, BTreeSet<Slot>)>;

fn is_found(case: &Case, lists: &Lists, block: &Block) -> bool {
    let Some(n) = block.batch else { return false };
    let batch = case.plan.semaphore.batches.iter().find(|batch| batch.n == n);
    if batch.is_none_or(|batch| batch.deadline > block.deadline) {
        return false;
    }
    let was_there = case.before.blocks.get(&block.id.slot).is_some_and(|old| old.batch == Some(n));
    match lists.get(&n) {
        Some((append, slots)) => slots.contains(&block.id.slot) || (*append && was_there),
        None => was_there,
    }
}

/// The key's row knows how many grants of each batch have unclaimed permits.
pub(super) fn batches_count_their_grants(case: &Case) -> Result<(), Violation> {
    let mut expected = BTreeMap::<i32, i32>::new();
    for batch in &case.before.semaphore.batches {
        *expected.entry(batch.n).or_default() += batch.open;
    }
    for (slot, written) in &case.plan.blocks {
        if let Some(n) = case.before.blocks.get(slot).and_then(|old| old.batch) {
            *expected.entry(n).or_default() -= 1;
        }
        if let Some(n) = written.as_ref().and_then(|new| new.batch) {
            *expected.entry(n).or_default() += 1;
        }
    }
    expected.retain(|_, open| *open != 0);
    let counted: BTreeMap<_, _> =
        case.plan.semaphore.batches.iter().map(|batch| (batch.n, batch.open)).collect();
    if counted == expected && counted.len() == case.plan.semaphore.batches.len() {
        return Ok(());
    }
    violated("P4", format!("batches count {counted:?}, their grants are {expected:?}"))
}

/// After a round no lease is live that was silent for its ttl, and the next one that will be is found in time.
pub(super) fn silent_leases_are_retired(case: &Case) -> Result<(), Violation> {
    let live = || case.known().filter(|block| block.kind == Kind::Lease && block.status == Status::Active);
    let due = |lease: &Block| lease.reported_at + lease.ttl;
    let round = case.numbers_a_round();
    let paused =
        |lease: &Block| case.before.policy.as_ref().is_some_and(|policy| policy.pauses(&lease.group));
    if let Some(lease) = live().find(|lease| round && !paused(lease) && due(lease) <= case.plan.now) {
        return violated("P4", format!("{lease:?} is silent for its ttl and is not retired"));
    }
    let looked_at = case.plan.semaphore.leases_due;
    match live().find(|lease| looked_at.is_none_or(|at| at > due(lease))) {
        Some(lease) => violated("P4", format!("leases are looked at {looked_at:?}, too late for {lease:?}")),
        None => Ok(()),
    }
}
