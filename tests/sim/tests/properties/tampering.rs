//! The ways to tamper, each leaving the rest of the plan consistent where it can.

use crate::invariants::left;
use crate::world::Case;
use pgsemaphore_allocation::{
    Answer, Block, BlockId, Kind, Outcome, Permits, Plan, Provisioning, Reason, Slot, Status, Verdict,
    VerdictStatus, Work,
};

/// Writes `change` to a block, and lets counters and verdicts follow.
pub(crate) fn change(case: &Case, plan: &Plan, slot: Slot, change: impl FnOnce(&mut Block)) -> Option<Plan> {
    let mut plan = plan.clone();
    let old = match plan.blocks.get(&slot) {
        Some(written) => written.clone()?,
        None => case.state.blocks.get(&slot)?.clone(),
    };
    let mut new = old.clone();
    change(&mut new);
    count(case, &mut plan, &old, -1);
    count(case, &mut plan, &new, 1);
    for verdict in answers(&mut plan).flat_map(|answer| &mut answer.verdicts) {
        if verdict.block.as_ref().is_some_and(|block| block.id == old.id) {
            verdict.status = VerdictStatus::Open(new.status);
            verdict.block = Some(new.clone());
        }
    }
    plan.blocks.insert(slot, Some(new));
    Some(plan)
}

pub(crate) fn count(case: &Case, plan: &mut Plan, block: &Block, sign: Permits) {
    let counted = sign * block.counted();
    let live = sign * i64::from(block.is_live_lease());
    let stored = || case.state.groups.get(&block.group).cloned().unwrap_or_default();
    let group = plan.groups.entry(block.group.clone()).or_insert_with(stored);
    let (of_key, of_group) = match block.kind {
        Kind::Grant => (&mut plan.semaphore.grants, &mut group.grants),
        Kind::Lease => (&mut plan.semaphore.leases, &mut group.leases),
    };
    *of_key += counted;
    *of_group += counted;
    plan.semaphore.live_leases += live;
    group.live_leases += live;
}

pub(crate) fn answers(plan: &mut Plan) -> impl Iterator<Item = &mut Answer> {
    plan.answers.iter_mut().filter_map(|outcome| match outcome {
        Outcome::Answered(answer) => Some(answer),
        Outcome::Refused(_) => None,
    })
}

pub(crate) fn made<'a>(case: &Case, plan: &'a Plan) -> impl Iterator<Item = &'a Block> {
    let known = |id: BlockId| case.state.blocks.get(&id.slot).is_some_and(|old| old.id == id);
    plan.blocks.values().flatten().filter(move |block| !known(block.id))
}

/// An open block that was read, with what the plan makes of it.
pub(crate) fn kept<'a>(case: &'a Case, plan: &'a Plan) -> impl Iterator<Item = (&'a Block, &'a Block)> {
    case.state.blocks.iter().filter_map(|(slot, old)| {
        let new = plan.blocks.get(slot).map_or(Some(old), Option::as_ref)?;
        (new.id == old.id).then_some((old, new))
    })
}

pub(crate) fn one_more_than_the_limit(case: &Case, plan: &Plan) -> Option<Plan> {
    let policy = case.state.policy.as_ref()?;
    let full = left(policy, policy.limit?, &plan.semaphore, Kind::Grant) <= 0;
    let block = made(case, plan).find(|block| block.kind == Kind::Grant).filter(|_| full)?;
    change(case, plan, block.id.slot, |block| block.permits += 1)
}

pub(crate) fn one_more_than_the_ceiling(case: &Case, plan: &Plan) -> Option<Plan> {
    let policy = case.state.policy.as_ref()?;
    let limit = policy.limit?;
    let full = |block: &&Block| {
        let ceiling = case.state.groups.get(&block.group).and_then(|usage| usage.limit);
        let used = plan.groups.get(&block.group).map_or(0, |usage| usage.grants + usage.leases);
        let room = left(policy, limit, &plan.semaphore, block.kind) > 0;
        ceiling.is_some_and(|ceiling| used >= ceiling) && room && block.permits < policy.permits_per_lease
    };
    let block = made(case, plan).find(full)?;
    change(case, plan, block.id.slot, |block| block.permits += 1)
}

pub(crate) fn grant_without_a_round(case: &Case, plan: &Plan) -> Option<Plan> {
    let (_, model) = kept(case, plan).next().filter(|_| case.work != Work::Round)?;
    let mut plan = plan.clone();
    if plan.semaphore.next_slot >= plan.semaphore.slot_cap {
        return None;
    }
    let id = BlockId { round: plan.semaphore.round + 1, slot: plan.semaphore.next_slot };
    let new = Block { id, permits: 1, used: 1, released: 0, batch: None, ..model.clone() };
    plan.semaphore.next_slot += 1;
    count(case, &mut plan, &new, 1);
    plan.blocks.insert(id.slot, Some(new));
    Some(plan)
}

pub(crate) fn miscount_the_key(_: &Case, plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    plan.semaphore.grants += 1;
    Some(plan)
}

pub(crate) fn miscount_a_group(_: &Case, plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    plan.groups.values_mut().next()?.grants -= 1;
    Some(plan)
}

pub(crate) fn move_to_another_group(case: &Case, plan: &Plan) -> Option<Plan> {
    let (_, block) = kept(case, plan).next()?;
    let other = case.state.groups.keys().find(|group| **group != block.group)?.clone();
    change(case, plan, block.id.slot, |block| block.group = other)
}

pub(crate) fn lower_a_claim(case: &Case, plan: &Plan) -> Option<Plan> {
    let (_, block) = kept(case, plan).find(|(old, new)| old.used == new.used && new.used > new.released)?;
    change(case, plan, block.id.slot, |block| block.used -= 1)
}

pub(crate) fn lower_a_release(case: &Case, plan: &Plan) -> Option<Plan> {
    let (_, block) = kept(case, plan).find(|(old, new)| old.released == new.released && new.released > 0)?;
    change(case, plan, block.id.slot, |block| block.released -= 1)
}

pub(crate) fn release_what_runs(case: &Case, plan: &Plan) -> Option<Plan> {
    let (_, block) = kept(case, plan).find(|(_, new)| new.used > new.released)?;
    change(case, plan, block.id.slot, |block| block.released += 1)
}

/// What the plan would be if releases were only clamped to the claims.
pub(crate) fn believe_every_release(case: &Case, plan: &Plan) -> Option<Plan> {
    let admitted =
        case.calls.iter().zip(&plan.answers).filter(|(_, outcome)| matches!(outcome, Outcome::Answered(_)));
    let mut reports = admitted.flat_map(|(call, _)| call.grants.iter().map(|report| (&call.client, report)));
    let (block, released) = reports.find_map(|(client, report)| {
        let (_, new) = kept(case, plan).find(|(_, new)| new.id.to_string() == report.id)?;
        let believed = report.released.min(new.used);
        (new.client == *client && believed > new.released).then_some((new, believed))
    })?;
    let plan = change(case, plan, block.id.slot, |block| block.released = released)?;
    Some(plan)
}

pub(crate) fn settle_what_runs(case: &Case, plan: &Plan) -> Option<Plan> {
    let (_, block) = kept(case, plan).find(|(_, new)| new.used > new.released && new.batch.is_none())?;
    let mut plan = plan.clone();
    count(case, &mut plan, block, -1);
    plan.semaphore.free_slots.push(block.id.slot);
    plan.blocks.insert(block.id.slot, None);
    Some(plan)
}

pub(crate) fn reclaim_too_early(case: &Case, plan: &Plan) -> Option<Plan> {
    let (_, block) = kept(case, plan).find(|(_, new)| new.unclaimed() > 0 && new.used > new.released)?;
    let mut plan = change(case, plan, block.id.slot, |block| {
        block.permits = block.used;
        block.status = Status::Expired;
        block.batch = None;
    })?;
    let batch = plan.semaphore.batches.iter_mut().find(|batch| Some(batch.n) == block.batch)?;
    batch.open -= 1;
    plan.semaphore.batches.retain(|batch| batch.open > 0);
    Some(plan)
}

pub(crate) fn share_a_row(case: &Case, plan: &Plan) -> Option<Plan> {
    let fresh = |block: &&Block| !case.state.blocks.contains_key(&block.id.slot);
    let new = made(case, plan).find(fresh)?.clone();
    let (_, other) = kept(case, plan).find(|(_, other)| other.batch.is_none())?;
    let mut plan = plan.clone();
    plan.blocks.remove(&new.id.slot);
    count(case, &mut plan, other, -1);
    let slot = other.id.slot;
    plan.blocks.insert(slot, Some(Block { id: BlockId { slot, ..new.id }, ..new }));
    Some(plan)
}

pub(crate) fn list_a_used_row(case: &Case, plan: &Plan) -> Option<Plan> {
    let (_, block) = kept(case, plan).next()?;
    let mut plan = plan.clone();
    plan.semaphore.free_slots.push(block.id.slot);
    Some(plan)
}

/// A timer that does nothing.
pub(crate) fn keep_what_is_due(case: &Case, plan: &Plan) -> Option<Plan> {
    let due = case.work == Work::Timer && !case.state.due.is_empty();
    due.then(|| Plan {
        semaphore: case.state.semaphore.clone(),
        groups: Default::default(),
        blocks: Default::default(),
        pending: Default::default(),
        ..plan.clone()
    })
}

pub(crate) fn forget_a_batch(_: &Case, plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    plan.semaphore.batches.pop()?;
    Some(plan)
}

pub(crate) fn delay_a_batch(case: &Case, plan: &Plan) -> Option<Plan> {
    let (_, block) = kept(case, plan).find(|(_, block)| block.batch.is_some())?;
    let mut plan = plan.clone();
    let batch = plan.semaphore.batches.iter_mut().find(|batch| Some(batch.n) == block.batch)?;
    batch.deadline = block.deadline + 1;
    Some(plan)
}

pub(crate) fn lose_a_list(_: &Case, plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    plan.pending.values_mut().next()?.slots.pop()?;
    Some(plan)
}

pub(crate) fn miscount_a_batch(_: &Case, plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    plan.semaphore.batches.first_mut()?.open += 1;
    Some(plan)
}

pub(crate) fn ignore_releases(case: &Case, plan: &Plan) -> Option<Plan> {
    let (old, _) = kept(case, plan).find(|(old, new)| old.released < new.released)?;
    let released = old.released;
    change(case, plan, old.id.slot, |block| block.released = released)
}

pub(crate) fn leave_out_a_grant(case: &Case, plan: &Plan) -> Option<Plan> {
    let id = made(case, plan).next()?.id.to_string();
    let mut plan = plan.clone();
    answers(&mut plan).for_each(|answer| answer.verdicts.retain(|verdict| verdict.id != id));
    Some(plan)
}

pub(crate) fn leave_out_a_verdict(case: &Case, plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    let told = case.calls.iter().zip(&mut plan.answers);
    for (call, outcome) in told {
        let (Outcome::Answered(answer), Some(report)) = (outcome, call.grants.first()) else { continue };
        answer.verdicts.retain(|verdict| verdict.id != report.id);
        return Some(plan);
    }
    None
}

pub(crate) fn tamper_verdict(
    plan: &Plan,
    which: impl Fn(&Verdict) -> bool,
    tamper: impl FnOnce(&mut Verdict),
) -> Option<Plan> {
    let mut plan = plan.clone();
    let mut verdicts = answers(&mut plan).flat_map(|answer| &mut answer.verdicts);
    tamper(verdicts.find(|verdict| which(verdict))?);
    drop(verdicts);
    Some(plan)
}

pub(crate) fn is_open(verdict: &Verdict) -> bool {
    verdict.block.is_some() && matches!(verdict.status, VerdictStatus::Open(_))
}

pub(crate) fn say_twice(_: &Case, plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    let answer = answers(&mut plan).find(|answer| !answer.verdicts.is_empty())?;
    answer.verdicts.push(answer.verdicts[0].clone());
    Some(plan)
}

pub(crate) fn deny_a_grant(_: &Case, plan: &Plan) -> Option<Plan> {
    tamper_verdict(plan, is_open, |verdict| {
        verdict.status = VerdictStatus::NotFound;
        verdict.block = None;
    })
}

pub(crate) fn say_settled(_: &Case, plan: &Plan) -> Option<Plan> {
    tamper_verdict(plan, is_open, |verdict| {
        verdict.status = VerdictStatus::Settled;
        if let Some(block) = &mut verdict.block {
            (block.used, block.released) = (block.permits, block.permits);
        }
    })
}

pub(crate) fn say_other_counts(_: &Case, plan: &Plan) -> Option<Plan> {
    tamper_verdict(plan, is_open, |verdict| {
        if let Some(block) = &mut verdict.block {
            block.used += 1;
        }
    })
}

pub(crate) fn say_another_round(_: &Case, plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    answers(&mut plan).next()?.round += 1;
    Some(plan)
}

pub(crate) fn reuse_the_round(case: &Case, plan: &Plan) -> Option<Plan> {
    let numbered = case.work == Work::Round && case.state.policy.is_some();
    let mut plan = plan.clone();
    plan.semaphore.round = case.state.semaphore.round;
    (numbered && made(case, &plan).next().is_none()).then_some(plan)
}

/// The plan of the same round with all ages turned round, if somebody older goes without for it. With leases somebody
/// older may have one instead.
pub(crate) fn serve_the_youngest(case: &Case, plan: &Plan) -> Option<Plan> {
    let provisioning = case.state.policy.as_ref()?.provisioning;
    if provisioning != Provisioning::None && case.calls.iter().any(|call| call.takes_leases) {
        return None;
    }
    let mut calls = case.calls.clone();
    for demand in calls.iter_mut().flat_map(|call| &mut call.demand) {
        demand.oldest_age = 10_000_000_000 - demand.oldest_age;
    }
    let turned = Case { work: case.work, state: case.state.clone(), calls }.plan();
    let callers: std::collections::BTreeSet<_> = case.calls.iter().map(|call| &call.client).collect();
    let one_call_each = callers.len() == case.calls.len();
    let ages =
        case.calls.iter().flat_map(|call| call.demand.iter().map(|demand| call.waited + demand.oldest_age));
    let distinct = ages.clone().count() == ages.collect::<std::collections::BTreeSet<_>>().len();
    let shares = |plan: &Plan| -> Vec<_> {
        let mut shares: Vec<_> = made(case, plan)
            .map(|block| (block.client.clone(), block.group.clone(), block.permits))
            .collect();
        shares.sort();
        shares
    };
    let same_waits = case.calls.iter().all(|call| call.waited == 0);
    (one_call_each && distinct && same_waits && shares(&turned) != shares(plan)).then_some(turned)
}

fn tamper_lack(plan: &Plan, tamper: impl FnOnce(&mut Answer)) -> Option<Plan> {
    let mut plan = plan.clone();
    tamper(answers(&mut plan).find(|answer| !answer.blocked.is_empty())?);
    Some(plan)
}

pub(crate) fn lack_less(_: &Case, plan: &Plan) -> Option<Plan> {
    tamper_lack(plan, |answer| answer.blocked[0].count -= 1)
}

pub(crate) fn lack_nothing(_: &Case, plan: &Plan) -> Option<Plan> {
    tamper_lack(plan, |answer| answer.blocked.clear())
}

pub(crate) fn say_a_wrong_reason(_: &Case, plan: &Plan) -> Option<Plan> {
    tamper_lack(plan, |answer| {
        let reason = &mut answer.blocked[0].reason;
        *reason = match reason {
            Reason::Paused | Reason::NotPermitted | Reason::LimitResolutionError => Reason::Limit,
            Reason::GroupLimit | Reason::Limit => Reason::LimitResolutionError,
        };
    })
}

pub(crate) fn hide_contention(_: &Case, plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    let by_limit = |answer: &Answer| answer.blocked.iter().any(|lacks| lacks.reason == Reason::Limit);
    answers(&mut plan).find(|answer| by_limit(answer))?.contended = false;
    Some(plan)
}

pub(crate) fn keep_other_reasons(case: &Case, plan: &Plan) -> Option<Plan> {
    let numbered = case.work == Work::Round && case.state.policy.is_some();
    let mut plan = plan.clone();
    plan.clients.values_mut().find(|client| !client.blocked.is_empty())?.blocked.clear();
    numbered.then_some(plan)
}
