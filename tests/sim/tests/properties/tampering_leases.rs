//! The ways to tamper with leases.

use crate::invariants::left;
use crate::tampering::{answers, change, count, is_open, kept, made, tamper_verdict};
use crate::world::Case;
use pgsemaphore_allocation::{
    Block, BlockId, Call, Kind, Plan, Provisioning, State, Status, VerdictStatus, Work,
};

fn made_lease<'a>(case: &Case, plan: &'a Plan) -> Option<&'a Block> {
    made(case, plan).find(|block| block.kind == Kind::Lease)
}

fn makes(case: &Case, plan: &Plan, which: impl Fn(&Block) -> bool) -> bool {
    made(case, plan).any(|block| block.kind == Kind::Lease && which(block))
}

/// The plan that the allocation makes of something else.
pub(crate) fn plan_of(case: &Case, tamper: impl FnOnce(&mut State, &mut Vec<Call>)) -> Plan {
    let (mut state, mut calls) = (case.state.clone(), case.calls.clone());
    tamper(&mut state, &mut calls);
    Case { work: case.work, state, calls }.plan()
}

pub(crate) fn one_more_than_the_budget(case: &Case, plan: &Plan) -> Option<Plan> {
    let policy = case.state.policy.as_ref()?;
    let lease = made_lease(case, plan).filter(|lease| lease.permits < policy.permits_per_lease)?;
    let full = left(policy, policy.limit?, &plan.semaphore, Kind::Lease) == 0;
    full.then(|| change(case, plan, lease.id.slot, |lease| lease.permits += 1))?
}

pub(crate) fn lease_without_support(case: &Case, _: &Plan) -> Option<Plan> {
    let tampered = plan_of(case, |_, calls| calls.iter_mut().for_each(|call| call.takes_leases = true));
    let takes = |lease: &Block| {
        case.calls.iter().any(|call| {
            let mut demand = call.demand.iter().filter(|demand| demand.count > 0);
            call.takes_leases && call.client == lease.client && demand.any(|d| d.group == lease.group)
        })
    };
    makes(case, &tampered, |lease| !takes(lease)).then_some(tampered)
}

pub(crate) fn lease_in_a_limited_group(case: &Case, _: &Plan) -> Option<Plan> {
    let within = |state: &mut State| {
        state.policy.iter_mut().for_each(|policy| policy.leases_within_group_limit = true);
    };
    let tampered = plan_of(case, |state, _| within(state));
    let excluded = !case.state.policy.as_ref()?.leases_within_group_limit;
    let limited = |lease: &Block| case.state.groups[&lease.group].limit.is_some();
    (excluded && makes(case, &tampered, limited)).then_some(tampered)
}

pub(crate) fn lease_larger_than_allowed(case: &Case, _: &Plan) -> Option<Plan> {
    let largest = case.state.policy.as_ref()?.permits_per_lease;
    let tampered = plan_of(case, |state, _| {
        state.policy.iter_mut().for_each(|policy| policy.permits_per_lease = 1_000);
    });
    makes(case, &tampered, |lease| lease.permits > largest).then_some(tampered)
}

/// One lease becomes two of the same client in the same group.
pub(crate) fn two_leases_at_once(case: &Case, plan: &Plan) -> Option<Plan> {
    let lease = made_lease(case, plan).filter(|lease| lease.permits > 1)?;
    let mut plan = change(case, plan, lease.id.slot, |lease| lease.permits -= 1)?;
    let slot = plan.semaphore.next_slot;
    if slot >= plan.semaphore.slot_cap {
        return None;
    }
    plan.semaphore.next_slot += 1;
    let second = Block { id: BlockId { slot, ..lease.id }, permits: 1, ..lease.clone() };
    count(case, &mut plan, &second, 1);
    plan.blocks.insert(slot, Some(second));
    Some(plan)
}

/// As if its client had said that it stopped.
pub(crate) fn free_a_retired_lease(case: &Case, plan: &Plan) -> Option<Plan> {
    let early = |new: &Block| new.status == Status::Retired && !new.stopped && new.used < new.permits;
    let (_, lease) = kept(case, plan).find(|(_, new)| early(new))?;
    change(case, plan, lease.id.slot, |lease| lease.stopped = true)
}

pub(crate) fn forget_a_retired_lease(case: &Case, plan: &Plan) -> Option<Plan> {
    let (_, lease) = kept(case, plan).find(|(_, new)| new.status == Status::Retired)?;
    let mut plan = plan.clone();
    count(case, &mut plan, lease, -1);
    plan.semaphore.free_slots.push(lease.id.slot);
    plan.blocks.insert(lease.id.slot, None);
    Some(plan)
}

pub(crate) fn ignore_stopped(case: &Case, plan: &Plan) -> Option<Plan> {
    let (_, lease) =
        kept(case, plan).find(|(old, new)| !old.stopped && new.stopped && new.used < new.permits)?;
    change(case, plan, lease.id.slot, |lease| lease.stopped = false)
}

pub(crate) fn revive_a_lease(case: &Case, plan: &Plan) -> Option<Plan> {
    let (old, _) = kept(case, plan).find(|(old, _)| old.status == Status::Retired)?;
    change(case, plan, old.id.slot, |lease| lease.status = Status::Active)
}

/// A lease that was retired in this transaction, and not because its client stopped, stays live. It is the oldest one:
/// what the younger ones give back does not suffice for a budget.
fn keep_live(case: &Case, plan: &Plan, which: impl Fn(&Block) -> bool) -> Option<Plan> {
    let retired = |old: &Block, new: &Block| {
        old.status == Status::Active && new.status == Status::Retired && !new.stopped && which(new)
    };
    let retired = kept(case, plan).filter(|(old, new)| retired(old, new));
    let (_, lease) = retired.min_by_key(|(old, _)| old.id)?;
    let mut plan = change(case, plan, lease.id.slot, |lease| lease.status = Status::Active)?;
    let due = lease.reported_at + lease.ttl;
    plan.semaphore.leases_due = Some(plan.semaphore.leases_due.map_or(due, |at| at.min(due)));
    Some(plan)
}

/// Whether something is, so that leases may stay that nothing provisions.
fn is_paused(case: &Case) -> bool {
    case.state.policy.as_ref().is_some_and(|policy| policy.paused || !policy.paused_groups.is_empty())
}

pub(crate) fn is_silent(case: &Case, lease: &Block) -> bool {
    lease.reported_at + lease.ttl <= case.state.now
}

pub(crate) fn is_eligible(case: &Case, lease: &Block) -> bool {
    let Some(policy) = &case.state.policy else { return false };
    let limited = case.state.groups[&lease.group].limit.is_some();
    policy.provisioning != Provisioning::None && (!limited || policy.leases_within_group_limit)
}

pub(crate) fn keep_a_silent_lease(case: &Case, plan: &Plan) -> Option<Plan> {
    keep_live(case, plan, |lease| case.work == Work::Round && is_silent(case, lease))
}

pub(crate) fn keep_a_lease_that_may_not_be(case: &Case, plan: &Plan) -> Option<Plan> {
    if is_paused(case) {
        return None;
    }
    keep_live(case, plan, |lease| !is_silent(case, lease) && !is_eligible(case, lease))
}

pub(crate) fn keep_a_lease_over_budget(case: &Case, plan: &Plan) -> Option<Plan> {
    if is_paused(case) {
        return None;
    }
    // A timer retires no lease for its silence.
    let silent = |lease: &Block| case.work == Work::Round && is_silent(case, lease);
    keep_live(case, plan, |lease| !silent(lease) && is_eligible(case, lease))
}

pub(crate) fn look_at_leases_too_late(case: &Case, plan: &Plan) -> Option<Plan> {
    let leases = made(case, plan).chain(kept(case, plan).map(|(_, new)| new));
    let live = leases.filter(|block| block.is_live_lease() && !is_silent(case, block));
    let due = live.map(|lease| lease.reported_at + lease.ttl).min()?;
    let mut plan = plan.clone();
    plan.semaphore.leases_due = Some(due + 1);
    Some(plan)
}

pub(crate) fn miscount_live_leases(_: &Case, plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    plan.semaphore.live_leases += 1;
    Some(plan)
}

pub(crate) fn lower_a_draw(case: &Case, plan: &Plan) -> Option<Plan> {
    let lowered = |old: &Block, new: &Block| {
        new.kind == Kind::Lease && !new.stopped && old.used == new.used && new.used > new.released
    };
    let (_, lease) = kept(case, plan).find(|(old, new)| lowered(old, new))?;
    change(case, plan, lease.id.slot, |lease| lease.used -= 1)
}

pub(crate) fn deny_a_lease(_: &Case, plan: &Plan) -> Option<Plan> {
    tamper_verdict(
        plan,
        |verdict| verdict.kind == Kind::Lease && is_open(verdict),
        |verdict| {
            verdict.status = VerdictStatus::Settled;
            verdict.block = None;
        },
    )
}

pub(crate) fn hide_a_contended_group(_: &Case, plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    answers(&mut plan).find(|answer| !answer.contended_groups.is_empty())?.contended_groups.clear();
    Some(plan)
}

/// `settled` instead of `retired` of a lease that the client does not hold, or the other way round.
pub(crate) fn mistake_an_unknown_lease(_: &Case, plan: &Plan) -> Option<Plan> {
    tamper_verdict(
        plan,
        |verdict| verdict.kind == Kind::Lease && verdict.block.is_none(),
        |verdict| {
            verdict.status = match verdict.status {
                VerdictStatus::Settled => VerdictStatus::Open(Status::Retired),
                _ => VerdictStatus::Settled,
            };
        },
    )
}
