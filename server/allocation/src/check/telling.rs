//! What calls are told is what is written.

use super::accounting::counts;
use super::{Case, Violation, Work, fencing, violated};
use crate::answers::{Answer, Outcome, Verdict, VerdictStatus};
use crate::blocked::{Lacking, Reason};
use crate::call::Call;
use crate::names::{BlockId, ClientId, Group, Permits};
use crate::state::{Block, Kind, Provisioning, Status};
use std::collections::{BTreeMap, BTreeSet};

/// Demand that gets nothing is blocked, with its exact count.
pub(super) fn every_demand_is_explained(case: &Case) -> Result<(), Violation> {
    if case.plan.answers.len() != case.calls.len() {
        return violated("P6", format!("{} answers to {} calls", case.plan.answers.len(), case.calls.len()));
    }
    if case.work != Work::Round {
        return Ok(());
    }
    for (call, outcome) in case.calls.iter().zip(&case.plan.answers) {
        let Outcome::Answered(answer) = outcome else { continue };
        let on_their_way = on_their_way(case, call);
        let lacking: BTreeMap<_, _> =
            answer.blocked.iter().map(|lacks| (&lacks.group, lacks.count)).collect();
        for demand in &call.demand {
            let covered = on_their_way.get(&demand.group).copied().unwrap_or(0);
            let blocked = lacking.get(&demand.group).copied().unwrap_or(0);
            if covered + blocked < demand.count || (blocked > 0 && covered + blocked != demand.count) {
                return violated(
                    "P6",
                    format!("{demand:?} has {covered} permits on the way and {blocked} blocked"),
                );
            }
        }
    }
    Ok(())
}

/// Demand lacks permits only where there are none: the reason names what is used up at the end of the round, and
/// that it is the shared limit is told to everybody.
pub(super) fn reasons_are_true(case: &Case) -> Result<(), Violation> {
    let answers = case.plan.answers.iter().filter_map(|outcome| match outcome {
        Outcome::Answered(answer) => Some(answer),
        Outcome::Refused(_) => None,
    });
    let lacking: Vec<_> = answers.clone().flat_map(|answer| &answer.blocked).collect();
    let charged = charged(case);
    if let Some(lacks) = lacking.iter().find(|lacks| !is_used_up(case, charged, lacks)) {
        return violated("P6", format!("there are permits for {lacks:?}"));
    }
    let by_limit = lacking.iter().any(|lacks| lacks.reason == Reason::Limit);
    if by_limit && !answers.clone().all(|answer| answer.contended) {
        return violated("P6", "demand is blocked by the limit and the reply does not say contended");
    }
    Ok(())
}

/// What stands in the way of demand whatever is left comes before what is used up, in the order of the reasons; and
/// nothing is admitted where something does.
pub(super) fn obstacles_come_first(case: &Case) -> Result<(), Violation> {
    for (call, outcome) in case.calls.iter().zip(&case.plan.answers) {
        let Outcome::Answered(answer) = outcome else { continue };
        for lacks in &answer.blocked {
            let expected = obstacle(case, &call.client, &lacks.group);
            let used_up = matches!(lacks.reason, Reason::Limit | Reason::GroupLimit);
            if expected.map_or(!used_up, |expected| expected != lacks.reason) {
                return violated("P6", format!("{lacks:?} of {:?}, where {expected:?} holds", call.client));
            }
        }
    }
    match case.made().find(|block| obstacle(case, &block.client, &block.group).is_some()) {
        Some(block) => violated("P1", format!("{block:?} is made where nothing may be admitted")),
        None => Ok(()),
    }
}

fn obstacle(case: &Case, client: &ClientId, group: &Group) -> Option<Reason> {
    let policy = case.before.policy.as_ref()?;
    let unresolved = case.before.groups.get(group).is_some_and(|usage| usage.unresolved);
    let denied = case.before.not_permitted.iter().any(|(who, at)| who == client && at == group);
    let in_order = [
        (policy.paused || policy.paused_groups.contains(group), Reason::Paused),
        (denied, Reason::NotPermitted),
        (policy.limit.is_none() || unresolved, Reason::LimitResolutionError),
    ];
    in_order.into_iter().find(|(holds, _)| *holds).map(|(_, reason)| reason)
}

/// A reply names exactly the contended groups in which its client holds a lease; a group is contended at least where a
/// reply of this round says so.
pub(super) fn contended_groups_are_told(case: &Case) -> Result<(), Violation> {
    let until = |group: &Group| {
        case.plan.groups.get(group).or_else(|| case.before.groups.get(group))?.contended_until
    };
    let contended = |group: &Group| until(group).is_some_and(|until| until > case.plan.now);
    for (call, outcome) in case.calls.iter().zip(&case.plan.answers) {
        let Outcome::Answered(answer) = outcome else { continue };
        let mut lacking = answer.blocked.iter().filter(|lacks| lacks.reason == Reason::GroupLimit);
        if let Some(lacks) = lacking.find(|lacks| !contended(&lacks.group)) {
            return violated("P6", format!("{lacks:?}, and its group is not contended"));
        }
        let leases = case.own(&call.client).filter(|block| block.kind == Kind::Lease);
        let expected: BTreeSet<_> =
            leases.map(|lease| &lease.group).filter(|group| contended(group)).collect();
        if !answer.contended_groups.iter().eq(expected.iter().copied()) {
            return violated("P6", format!("contended groups {expected:?} are not what the reply says"));
        }
    }
    Ok(())
}

fn is_used_up(case: &Case, charged: Permits, lacks: &Lacking) -> bool {
    let limit = case.before.policy.as_ref().and_then(|policy| policy.limit);
    let before = case.before.groups.get(&lacks.group);
    let ceiling = before.and_then(|usage| usage.limit);
    let group = case.plan.groups.get(&lacks.group).or(before).map_or(0, |usage| usage.grants + usage.leases);
    let usage = &case.plan.semaphore;
    let total = usage.grants + usage.leases + charged;
    let of_mode = |limit: Permits| match case.before.policy.as_ref().map(|policy| policy.provisioning) {
        Some(Provisioning::Over { .. }) => usage.grants >= limit,
        Some(Provisioning::Under { reserve }) => {
            total >= limit || usage.grants >= limit - reserve.clamp(0, (limit - 1).max(0))
        }
        _ => total >= limit,
    };
    lacks.count > 0
        && match lacks.reason {
            Reason::Paused | Reason::NotPermitted | Reason::LimitResolutionError => true,
            Reason::GroupLimit => ceiling.is_some_and(|ceiling| group >= ceiling),
            Reason::Limit => limit.is_some_and(of_mode),
        }
}

/// What a client is told to be blocked is kept for people to read; of nobody else it changes.
pub(super) fn what_is_blocked_is_kept(case: &Case) -> Result<(), Violation> {
    let mut told = BTreeMap::<_, BTreeMap<_, _>>::new();
    let answered = case.calls.iter().zip(&case.plan.answers).filter(|_| case.work == Work::Round);
    for (call, outcome) in answered.filter(|(call, _)| call.asks) {
        let Outcome::Answered(answer) = outcome else { continue };
        let entries = told.entry(&call.client).or_default();
        for lacks in &answer.blocked {
            let kept = entries.entry(&lacks.group).or_insert(lacks);
            if kept.reason != Reason::Limit {
                *kept = lacks;
            }
        }
    }
    let before = |id| case.before.clients.get(id).map_or(&[][..], |client| &client.blocked);
    let mut written = case.plan.clients.iter().filter(|(id, new)| {
        let dead = new.blocked.is_empty() && fencing::is_fenced_anew(case, id);
        !told.contains_key(id) && new.blocked != before(id) && !dead
    });
    if let Some((id, _)) = written.next() {
        return violated("P6", format!("what blocks {id:?} changes, and it was told nothing"));
    }
    for (client, entries) in told {
        let after = case.plan.clients.get(client).map_or(before(client), |client| &client.blocked);
        if !after.iter().map(|entry| &entry.lacking).eq(entries.into_values()) {
            return violated("P6", format!("what blocks {client:?} is not what it was told"));
        }
    }
    Ok(())
}

/// Permits that this call's reply delivers, and that were not reported in it.
fn on_their_way<'a>(case: &Case<'a>, call: &Call) -> BTreeMap<&'a Group, Permits> {
    let known: BTreeSet<_> = call.reported().filter_map(BlockId::parse).collect();
    let mut permits = BTreeMap::<_, Permits>::new();
    for block in case.unheard(call).filter(|block| !known.contains(&block.id)) {
        *permits.entry(&block.group).or_default() += match (block.kind, block.status) {
            (Kind::Grant, _) => block.permits,
            (Kind::Lease, Status::Active) => block.permits - block.used,
            (Kind::Lease, _) => 0,
        };
    }
    permits
}

/// The most that leases which the round did not find can have been charged.
fn charged(case: &Case) -> Permits {
    let per_lease = case.before.policy.as_ref().map_or(0, |policy| policy.permits_per_lease);
    let exists = |id: &str| {
        let lease = BlockId::parse(id).and_then(|id| case.before.blocks.get(&id.slot).filter(|b| b.id == id));
        lease.is_some_and(|block| block.kind == Kind::Lease)
    };
    let charge = |call: &Call| {
        let unknown = call.leases.iter().filter(|report| !exists(&report.id));
        unknown.map(|report| report.drawn).sum::<Permits>().min(per_lease)
    };
    case.calls.iter().filter(|call| call.asks && !call.applied).map(charge).sum()
}

/// Each reported block has one verdict, each unheard one is delivered, and all say what the rows say.
pub(super) fn every_verdict_is_what_is_written(case: &Case) -> Result<(), Violation> {
    for (call, outcome) in case.calls.iter().zip(&case.plan.answers) {
        let Outcome::Answered(answer) = outcome else { continue };
        let told: BTreeSet<_> = answer.verdicts.iter().map(|verdict| verdict.id.as_str()).collect();
        if told.len() != answer.verdicts.len() {
            return violated("P7", "a block appears twice in one reply");
        }
        if let Some(id) = call.reported().find(|id| !told.contains(id)) {
            return violated("P7", format!("no verdict for {id:?}"));
        }
        delivered(case, call, &told)?;
        check_answer(case, call, answer)?;
    }
    Ok(())
}

fn delivered(case: &Case, call: &Call, told: &BTreeSet<&str>) -> Result<(), Violation> {
    match case.unheard(call).find(|block| !told.contains(block.id.to_string().as_str())) {
        Some(block) => violated("P4", format!("the reply does not deliver {block:?}")),
        None => Ok(()),
    }
}

fn check_answer(case: &Case, call: &Call, answer: &Answer) -> Result<(), Violation> {
    if answer.round != case.plan.semaphore.round {
        return violated("P7", format!("the reply says round {}", answer.round));
    }
    match answer.verdicts.iter().find(|verdict| !is_true(case, call, verdict)) {
        Some(verdict) => violated("P7", format!("{verdict:?} is not what is written")),
        None => Ok(()),
    }
}

fn is_true(case: &Case, call: &Call, verdict: &Verdict) -> bool {
    let id = BlockId::parse(&verdict.id);
    let own = |block: &&Block| block.client == call.client && Some(block.id) == id;
    let before = id.and_then(|id| case.before.blocks.get(&id.slot)).filter(own);
    let made = id.and_then(|id| case.plan.blocks.get(&id.slot)?.as_ref()).filter(own);
    let after = before.and_then(|block| case.after(block)).or(made);
    match (verdict.status, &verdict.block) {
        (VerdictStatus::Open(status), Some(block)) => after == Some(block) && status == block.status,
        (VerdictStatus::Settled, Some(block)) => {
            let back = |old: &Block| counts(block) == 0 || case.is_written_off(old);
            before.is_some_and(back) && after.is_none() && own(&block)
        }
        (VerdictStatus::NotFound, None) => {
            verdict.kind == Kind::Grant && after.is_none_or(|block| block.kind == Kind::Lease)
        }
        (VerdictStatus::Settled | VerdictStatus::Open(Status::Retired), None) => {
            let mut reports = call.leases.iter().filter(|report| report.id == verdict.id);
            let stopped = reports.any(|report| report.stopped);
            verdict.kind == Kind::Lease
                && stopped == (verdict.status == VerdictStatus::Settled)
                && after.is_none_or(|block| block.kind == Kind::Grant)
        }
        _ => false,
    }
}
