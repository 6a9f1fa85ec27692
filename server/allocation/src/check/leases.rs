//! Who may hold a lease, and when the client must hear that it may not any more.

use super::accounting::counts;
use super::{Case, Violation, Work, violated};
use crate::names::{Group, Permits};
use crate::state::{Block, Extra, Kind, Policy, Provisioning, Semaphore, Status};
use std::collections::{BTreeMap, BTreeSet};

/// A lease goes to demand of a client that takes leases, in a group that may have them, and only where the client has
/// no other one to draw from.
pub(super) fn go_where_they_may(case: &Case) -> Result<(), Violation> {
    let Some(policy) = &case.before.policy else { return Ok(()) };
    let takers = case.calls.iter().filter(|call| call.takes_leases);
    let wanted: BTreeSet<_> = takers
        .flat_map(|call| call.demand.iter().map(move |demand| (&call.client, demand)))
        .filter(|(_, demand)| demand.count > 0)
        .map(|(client, demand)| (client, &demand.group))
        .collect();
    for lease in case.made().filter(|block| block.kind == Kind::Lease) {
        let asked = wanted.contains(&(&lease.client, &lease.group));
        let limited = case.before.groups.get(&lease.group).is_some_and(|group| group.limit.is_some());
        let another = |other: &Block| {
            is_live(other) && other.id != lease.id && other.group == lease.group && other.used < other.permits
        };
        if !asked
            || (limited && !policy.leases_within_group_limit)
            || lease.permits > policy.permits_per_lease
            || case.own(&lease.client).any(another)
        {
            return violated("P1", format!("{lease:?} may not be"));
        }
    }
    Ok(())
}

/// After a round or a timer all leases are retired that have no budget: of their mode, or of their group. What their
/// clients will give back then covers what is used beyond it. Where a report of this round used the budget up (a client
/// had drawn more than it said when it stopped), and leases were not all read, the next round sees it.
pub(super) fn that_may_not_stay_are_retired(case: &Case) -> Result<(), Violation> {
    let numbered = case.numbers_a_round();
    if case.work != Work::Timer && !numbered {
        return Ok(());
    }
    let live = case.plan.semaphore.live_leases;
    let policy = case.before.policy.as_ref().filter(|policy| policy.provisioning != Provisioning::None);
    let pauses =
        case.before.policy.as_ref().is_some_and(|policy| policy.paused || !policy.paused_groups.is_empty());
    if pauses {
        return Ok(()); // what is paused keeps its leases, so the key's counters say nothing
    }
    let Some(policy) = policy else {
        return if live == 0 {
            Ok(())
        } else {
            violated("P1", format!("{live} leases that nothing provisions"))
        };
    };
    let all_read = case.before.all_leases;
    let live = if all_read { live } else { case.before.semaphore.live_leases.min(live) };
    let usage = if all_read { &case.plan.semaphore } else { &case.before.semaphore };
    let beyond = beyond_budget(policy, usage);
    let coming_back = if all_read { coming_back(case) } else { BTreeMap::new() };
    if live > 0 && beyond > coming_back.values().sum() {
        return violated("P1", format!("{live} leases are live, and {beyond} permits above their budget"));
    }
    for (name, before) in &case.before.groups {
        let Some(ceiling) = before.limit else { continue };
        let after = case.plan.groups.get(name).unwrap_or(before);
        let usage = if all_read { after } else { before };
        let coming = coming_back.get(name).copied().unwrap_or(0);
        let stays = policy.leases_within_group_limit && usage.grants + usage.leases - ceiling <= coming;
        let live = if all_read { after.live_leases } else { before.live_leases.min(after.live_leases) };
        if live > 0 && !stays {
            return violated("P1", format!("leases of group {name:?} are live, its ceiling is {ceiling}"));
        }
    }
    Ok(())
}

/// After a round no lease is live of a client that may not be admitted to its group, unless that is paused.
pub(super) fn of_who_is_not_permitted_are_retired(case: &Case) -> Result<(), Violation> {
    let Some(policy) = case.before.policy.as_ref().filter(|_| case.numbers_a_round()) else {
        return Ok(());
    };
    let denied = |lease: &Block| {
        let owner = (lease.client.clone(), lease.group.clone());
        case.before.not_permitted.contains(&owner) && !policy.pauses(&lease.group)
    };
    match case.known().find(|block| is_live(block) && denied(block)) {
        Some(lease) => violated("P1", format!("{lease:?} is live and its client is not permitted")),
        None => Ok(()),
    }
}

/// Permits used above what leases may use.
fn beyond_budget(policy: &Policy, usage: &Semaphore) -> Permits {
    let (grants, leases) = (usage.grants, usage.leases);
    let Some(limit) = policy.limit else { return 0 };
    let above_limit = grants + leases - limit;
    match policy.provisioning {
        Provisioning::None | Provisioning::Strict => above_limit,
        Provisioning::Under { reserve } => above_limit.max(leases - reserve.clamp(0, (limit - 1).max(0))),
        Provisioning::Over { .. } if limit == 0 => leases,
        Provisioning::Over { extra: Extra::Permits(extra) } => leases - extra,
        Provisioning::Over { extra: Extra::Millionths(ratio) } => {
            let extra = i128::from(limit) * i128::from(ratio) / 1_000_000;
            leases - Permits::try_from(extra).unwrap_or(Permits::MAX)
        }
    }
    .max(0)
}

/// What clients of retired leases have not drawn and still count, by group, as far as those leases were read.
fn coming_back<'a>(case: &Case<'a>) -> BTreeMap<&'a Group, Permits> {
    let mut coming_back = BTreeMap::<_, Permits>::new();
    for lease in case.known().filter(|block| block.kind == Kind::Lease && block.status == Status::Retired) {
        *coming_back.entry(&lease.group).or_default() += counts(lease) - (lease.used - lease.released);
    }
    coming_back
}

fn is_live(block: &Block) -> bool {
    block.kind == Kind::Lease && block.status == Status::Active
}
