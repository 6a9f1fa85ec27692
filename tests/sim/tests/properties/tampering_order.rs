//! The ways to tamper with numbers of rounds, and with the order of blocks.

use crate::tampering::{change, kept, made};
use crate::tampering_leases::{is_eligible, is_silent, plan_of};
use crate::world::Case;
use pgsemaphore_allocation::{Block, Call, Outcome, Plan, Refused, Status};
use std::collections::BTreeSet;

const DAY: u64 = 24 * 3600 * 1_000_000;

pub(crate) fn move_the_round(case: &Case, plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    let clock = u64::try_from(case.state.now.0).ok()?;
    plan.semaphore.round = plan.semaphore.round.max(clock) + 2 * DAY;
    Some(plan)
}

/// As if the caller had seen less.
pub(crate) fn accept_any_seen(case: &Case, plan: &Plan) -> Option<Plan> {
    let far = |outcome: &Outcome| matches!(outcome, Outcome::Refused(Refused::SeenTooFarAhead { .. }));
    let tampered = plan_of(case, |_, calls| {
        let refused = calls.iter_mut().zip(&plan.answers).filter(|(_, outcome)| far(outcome));
        refused.for_each(|(call, _)| call.seen = 0);
    });
    plan.answers.iter().any(far).then_some(tampered)
}

/// The permits go where they should, in rows that are in the opposite order of the demand.
pub(crate) fn hand_rows_to_the_youngest(case: &Case, plan: &Plan) -> Option<Plan> {
    let clients: BTreeSet<_> = case.calls.iter().map(|call| &call.client).collect();
    let tampered = plan_of(case, |_, calls| {
        for call in calls.iter_mut() {
            call.waited = -call.waited;
            call.demand.iter_mut().for_each(|demand| demand.oldest_age = -demand.oldest_age);
        }
    });
    let given = |plan: &Plan| {
        let owner = |block: &Block| (block.client.clone(), block.group.clone(), block.kind, block.permits);
        made(case, plan).map(owner).collect::<BTreeSet<_>>()
    };
    let alone = clients.len() == case.calls.len();
    (alone && given(plan) == given(&tampered) && is_out_of_order(case, &tampered)).then_some(tampered)
}

fn is_out_of_order(case: &Case, plan: &Plan) -> bool {
    let since = |block: &Block| {
        let call: &Call = case.calls.iter().find(|call| call.client == block.client)?;
        let demand = call.demand.iter().find(|demand| demand.group == block.group)?;
        Some(call.waited + demand.oldest_age)
    };
    let older =
        |one: &Block, other: &Block| one.kind == other.kind && one.id > other.id && since(one) > since(other);
    made(case, plan).any(|one| made(case, plan).any(|other| older(one, other)))
}

/// A lease is retired for want of budget in the place of a newer one.
pub(crate) fn retire_an_older_lease(case: &Case, plan: &Plan) -> Option<Plan> {
    let over = |(old, new): &(&Block, &Block)| {
        let retired = old.is_live_lease() && new.status == Status::Retired && !new.stopped;
        retired && !is_silent(case, new) && is_eligible(case, new)
    };
    let (_, newer) = kept(case, plan).filter(over).max_by_key(|(_, new)| new.id)?;
    let budget = |lease: &Block| {
        let denied = case.state.not_permitted.contains(&(lease.client.clone(), lease.group.clone()));
        let same = lease.group == newer.group || case.state.groups[&lease.group].limit.is_none();
        same && lease.id < newer.id && lease.is_live_lease() && !denied && !is_silent(case, lease)
    };
    let denied = case.state.not_permitted.contains(&(newer.client.clone(), newer.group.clone()));
    let mut older = kept(case, plan).map(|(_, new)| new).filter(|lease| budget(lease));
    let older = older.next().filter(|_| !denied)?;
    let plan = change(case, plan, newer.id.slot, |lease| lease.status = Status::Active)?;
    let mut plan = change(case, &plan, older.id.slot, |lease| lease.status = Status::Retired)?;
    let due = newer.reported_at + newer.ttl;
    plan.semaphore.leases_due = Some(plan.semaphore.leases_due.map_or(due, |at| at.min(due)));
    Some(plan)
}
