//! The order of blocks: within a round it is the order of their demand, and leases are taken back from its end.

use super::{Case, Violation, fencing, violated};
use crate::names::{ClientId, DbTime, Group};
use crate::state::{Block, Kind, Provisioning, Status};
use std::collections::BTreeMap;

/// Of the blocks of one kind that a round makes, the one for older demand has the lower row.
pub(super) fn of_rows_is_of_demand(case: &Case) -> Result<(), Violation> {
    let places = places(case);
    for kind in [Kind::Grant, Kind::Lease] {
        let made = case.made().filter(|block| block.kind == kind);
        let mut made: Vec<_> = made.filter_map(|block| Some((block, places.get(&owner(block))?))).collect();
        made.sort_by_key(|(block, _)| block.id);
        if let Some(pair) = made.windows(2).find(|pair| pair[0].1 > pair[1].1) {
            return violated(
                "P5",
                format!("{:?} is before {:?}, whose demand is older", pair[0].0, pair[1].0),
            );
        }
    }
    Ok(())
}

fn owner(block: &Block) -> (&ClientId, &Group) {
    (&block.client, &block.group)
}

/// How old demand is, and in which call it came. Of two calls of one client it is unknown for which a block was made,
/// so these have no place.
fn places<'a>(case: &Case<'a>) -> BTreeMap<(&'a ClientId, &'a Group), (DbTime, usize)> {
    let mut calls_of = BTreeMap::<_, usize>::new();
    case.calls.iter().for_each(|call| *calls_of.entry(&call.client).or_default() += 1);
    let alone = case.calls.iter().enumerate().filter(|(_, call)| calls_of[&call.client] == 1);
    let place = |(at, call): (usize, &'a crate::Call)| {
        let demand = call.demand.iter().filter(|demand| demand.count > 0);
        demand.map(move |demand| {
            let since = case.plan.now - call.waited - demand.oldest_age;
            ((&call.client, &demand.group), (since, at))
        })
    };
    alone.flat_map(place).collect()
}

/// A lease that is retired for want of budget leaves no newer lease of its group live, of those that were there before;
/// where the group has no ceiling, no newer one of the key.
pub(super) fn newest_leases_are_retired_first(case: &Case) -> Result<(), Violation> {
    let leases = || case.before.blocks.values().filter_map(|old| Some((old, case.after(old)?)));
    let stays = |(old, new): &(&Block, &Block)| is_live(old) && is_live(new) && !is_paused(case, old);
    let over = leases().filter(|(old, new)| is_live(old) && is_over_budget(case, new));
    let over: Vec<&Block> = over.map(|(_, new)| new).collect();
    let ceiling = |group: &Group| case.before.groups.get(group).is_some_and(|group| group.limit.is_some());
    let same = |one: &Block, other: &Block| one.group == other.group || !ceiling(&one.group);
    let newer = |lease: &&Block| over.iter().find(|over| same(over, lease) && over.id < lease.id);
    let mut staying = leases().filter(stays).map(|(_, lease)| lease);
    match staying.find_map(|lease| Some((lease, newer(&lease)?))) {
        Some((lease, older)) => {
            violated("P1", format!("{older:?} is retired, and {lease:?}, which is newer, is not"))
        }
        None => Ok(()),
    }
}

fn is_live(block: &Block) -> bool {
    block.kind == Kind::Lease && block.status == Status::Active
}

fn is_paused(case: &Case, lease: &Block) -> bool {
    case.before.policy.as_ref().is_some_and(|policy| policy.pauses(&lease.group))
}

/// Whether a lease is retired and nothing but a budget asks for that.
fn is_over_budget(case: &Case, lease: &Block) -> bool {
    let Some(policy) = case.before.policy.as_ref().filter(|_| lease.status == Status::Retired) else {
        return false;
    };
    let limited = case.before.groups.get(&lease.group).is_some_and(|group| group.limit.is_some());
    let denied = case.before.not_permitted.contains(&(lease.client.clone(), lease.group.clone()));
    let silent = case.numbers_a_round() && lease.reported_at + lease.ttl <= case.plan.now;
    let eligible =
        policy.provisioning != Provisioning::None && (policy.leases_within_group_limit || !limited);
    eligible && !denied && !silent && !lease.stopped && fencing::succession(case, &lease.client).is_none()
}
