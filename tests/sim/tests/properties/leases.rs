//! Who gets a lease, and which leases are retired, told from the rows before and after each transaction.

use crate::invariants::{left, made};
use crate::world::Case;
use pgsemaphore_allocation::{
    Block, BlockId, Call, ClientId, Group, Kind, Permits, Policy, Provisioning, Semaphore, Status, Work,
};
use pgsemaphore_sim::Rows;
use std::collections::BTreeSet;

pub(crate) fn hold(case: &Case, before: &Rows, after: &Rows) -> Result<(), String> {
    for lease in made(before, after).filter(|block| block.kind == Kind::Lease) {
        goes_where_it_may(case, lease, after)?;
    }
    nothing_is_withheld(case, before, after)?;
    let retired: Vec<_> = retired(case, before, after).collect();
    if let Some(policy) = case.state.policy.as_ref().filter(|_| case.work != Work::Sync) {
        needed(case, policy, &retired, before, after)?;
        what_must_go_is_gone(case, policy, before, after)
    } else if retired.is_empty() || case.work == Work::Timer {
        Ok(())
    } else {
        Err(format!("{:?} without a policy retires {retired:?}", case.work))
    }
}

fn goes_where_it_may(case: &Case, lease: &Block, after: &Rows) -> Result<(), String> {
    let policy = case.state.policy.as_ref().ok_or("a lease without a policy")?;
    let asks = case.calls.iter().any(|call| call.client == lease.client && wants(call, &lease.group));
    let others = after.blocks.values().filter(|other| other.id != lease.id);
    let mut others = others.filter(|other| other.client == lease.client && other.group == lease.group);
    let small = (1..=policy.permits_per_lease).contains(&lease.permits);
    if asks
        && small
        && may_enter(case, policy, &lease.client, &lease.group)
        && may_have(case, policy, &lease.group)
        && !others.any(can_draw)
    {
        return Ok(());
    }
    Err(format!("{lease:?} may not be"))
}

fn wants(call: &Call, group: &Group) -> bool {
    call.takes_leases && call.demand.iter().any(|demand| demand.group == *group && demand.count > 0)
}

/// Nothing stands in the way of the client in the group, whatever is left.
fn may_enter(case: &Case, policy: &Policy, client: &ClientId, group: &Group) -> bool {
    let denied = case.state.not_permitted.contains(&(client.clone(), group.clone()));
    !policy.pauses(group) && !denied && !case.state.groups[group].unresolved
}

fn may_have(case: &Case, policy: &Policy, group: &Group) -> bool {
    policy.leases_within_group_limit || case.state.groups[group].limit.is_none()
}

fn can_draw(block: &Block) -> bool {
    block.is_live_lease() && block.used < block.permits
}

/// Who may have a lease and has none to draw from goes without only where the budget, or the group's, is used up.
fn nothing_is_withheld(case: &Case, before: &Rows, after: &Rows) -> Result<(), String> {
    let Some(policy) = case.state.policy.as_ref().filter(|_| case.work == Work::Round) else { return Ok(()) };
    let leases = before.blocks.values().filter(|block| block.kind == Kind::Lease);
    let leases: BTreeSet<_> = leases.map(|lease| lease.id.to_string()).collect();
    let charged = case.calls.iter().flat_map(|call| &call.leases).any(|report| !leases.contains(&report.id));
    let room = policy.limit.map_or(0, |limit| left(policy, limit, &after.semaphore, Kind::Lease));
    if room <= 0 || charged || policy.provisioning == Provisioning::None {
        return Ok(());
    }
    for (call, outcome) in case.calls.iter().zip(&case.plan().answers) {
        if !matches!(outcome, pgsemaphore_allocation::Outcome::Answered(_)) {
            continue;
        }
        for demand in call.demand.iter().filter(|demand| wants(call, &demand.group)) {
            let own = |block: &&Block| block.client == call.client && block.group == demand.group;
            let served = after.blocks.values().filter(own).any(can_draw);
            let usage = after.groups.get(&demand.group).cloned().unwrap_or_default();
            let ceiling = case.state.groups[&demand.group].limit.unwrap_or(Permits::MAX);
            let full = usage.grants + usage.leases >= ceiling;
            let enters = may_enter(case, policy, &call.client, &demand.group);
            if !served && !full && enters && may_have(case, policy, &demand.group) {
                return Err(format!("{demand:?} gets no lease of {room}"));
            }
        }
    }
    Ok(())
}

/// Leases that this transaction retired, and not because their client stopped or has a successor.
fn retired<'a>(case: &Case, before: &'a Rows, after: &'a Rows) -> impl Iterator<Item = &'a Block> {
    let said: BTreeSet<_> =
        case.calls.iter().flat_map(|call| &call.leases).map(|said| (&said.id, said.stopped)).collect();
    let said: Vec<String> =
        said.into_iter().filter(|(_, stopped)| *stopped).map(|(id, _)| id.clone()).collect();
    let live = before.blocks.values().filter(|block| block.is_live_lease());
    let now = live.filter_map(|old| after.blocks.get(&old.id.slot).filter(|new| new.id == old.id));
    let speaker = |rows: &Rows, lease: &Block| {
        rows.clients.get(&lease.client).and_then(|client| client.incarnation.clone())
    };
    now.filter(move |new| {
        let stopped = new.stopped && said.contains(&new.id.to_string());
        new.status == Status::Retired && !stopped && speaker(before, new) == speaker(after, new)
    })
}

/// Usage at the moment at which leases were judged: without what was made after it.
fn judged(before: &Rows, after: &Rows) -> Semaphore {
    let mut usage = after.semaphore.clone();
    for block in made(before, after) {
        match block.kind {
            Kind::Grant => usage.grants -= block.permits,
            Kind::Lease => usage.leases -= block.permits,
        }
    }
    usage
}

fn excess(policy: &Policy, before: &Rows, after: &Rows) -> Permits {
    let usage = judged(before, after);
    policy.limit.map_or(0, |limit| -left(policy, limit, &usage, Kind::Lease))
}

fn group_excess(case: &Case, group: &Group, before: &Rows, after: &Rows) -> Permits {
    let Some(ceiling) = case.state.groups.get(group).and_then(|usage| usage.limit) else {
        return Permits::MIN;
    };
    let new = made(before, after).filter(|block| block.group == *group).map(|block| block.permits);
    let usage = after.groups.get(group).cloned().unwrap_or_default();
    usage.grants + usage.leases - new.sum::<Permits>() - ceiling
}

/// What retired leases will give back, all or those of a group, one of them left out.
fn coming(after: &Rows, group: Option<&Group>, without: Option<BlockId>) -> Permits {
    let leases = after.blocks.values().filter(|block| block.kind == Kind::Lease && !block.stopped);
    let retired = leases.filter(|lease| lease.status == Status::Retired && Some(lease.id) != without);
    let concerned = retired.filter(|lease| group.is_none_or(|group| lease.group == *group));
    concerned.map(|lease| lease.permits - lease.used).sum()
}

fn has_to_go(case: &Case, policy: &Policy, lease: &Block) -> bool {
    if policy.pauses(&lease.group) {
        return false;
    }
    let silent = case.work == Work::Round && lease.reported_at + lease.ttl <= case.state.now;
    let denied = case.state.not_permitted.contains(&(lease.client.clone(), lease.group.clone()));
    let limited = case.state.groups.get(&lease.group).is_some_and(|group| group.limit.is_some());
    silent
        || denied
        || policy.provisioning == Provisioning::None
        || (limited && !policy.leases_within_group_limit)
}

/// A lease is retired for a reason: for a budget the newest first, and no more than needed.
fn needed(
    case: &Case,
    policy: &Policy,
    retired: &[&Block],
    before: &Rows,
    after: &Rows,
) -> Result<(), String> {
    let mut for_budget: Vec<_> = retired.iter().filter(|lease| !has_to_go(case, policy, lease)).collect();
    for_budget.sort_by_key(|lease| lease.id);
    let Some(oldest) = for_budget.first() else { return Ok(()) };
    let key = excess(policy, before, after);
    let needed = coming(after, None, Some(oldest.id)) < key
        || coming(after, Some(&oldest.group), Some(oldest.id))
            < group_excess(case, &oldest.group, before, after);
    if !needed {
        return Err(format!("no budget needs to retire {oldest:?}"));
    }
    let live: Vec<_> = before.blocks.values().filter(|old| old.is_live_lease()).collect();
    let live =
        live.into_iter().filter_map(|old| after.blocks.get(&old.id.slot).filter(|new| new.id == old.id));
    for younger in live.filter(|block| block.is_live_lease() && !policy.pauses(&block.group)) {
        for lease in for_budget.iter().filter(|lease| lease.id < younger.id) {
            if lease.group == younger.group || group_excess(case, &lease.group, before, after) <= 0 {
                return Err(format!("{lease:?} is retired before {younger:?}"));
            }
        }
    }
    Ok(())
}

/// After a round or a timer whatever has to go is gone, as far as the rows that were read show it.
fn what_must_go_is_gone(case: &Case, policy: &Policy, before: &Rows, after: &Rows) -> Result<(), String> {
    let active = |block: &&Block| block.is_live_lease() && !policy.pauses(&block.group);
    let mut live = after.blocks.values().filter(active);
    if let Some(lease) = live.clone().find(|lease| has_to_go(case, policy, lease)) {
        return Err(format!("{lease:?} is not retired"));
    }
    if !case.state.all_leases {
        return Ok(());
    }
    let over = excess(policy, before, after);
    if over > coming(after, None, None) && live.next().is_some() {
        return Err(format!("{over} permits above the budget and leases are live"));
    }
    for lease in after.blocks.values().filter(active) {
        let over = group_excess(case, &lease.group, before, after);
        if over > coming(after, Some(&lease.group), None) {
            return Err(format!("{over} permits above the group's ceiling and {lease:?} is live"));
        }
    }
    Ok(())
}
