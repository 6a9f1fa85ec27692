//! P4 of leases: which of them a round retires, and which it leaves alone.

use super::budget::{Usage, ceilings};
use super::rows::{is_reported, made, usage_of_group};
use super::{Committed, Verdict, violated};
use crate::store::{Limits, Rows};
use pgsemaphore_allocation::{Block, Kind, Permits, Provisioning, Status, Work};

/// A round retires leases that are silent or not eligible, and recalls what is over budget.
pub(super) fn of_what_may_not_stay(committed: &Committed, after: &Rows) -> Verdict {
    let Some(limits) = committed.limits.filter(|_| committed.work == Work::Round) else { return Ok(()) };
    let live = |block: &&Block| block.kind == Kind::Lease && block.status == Status::Active;
    let outlives =
        |lease: &&Block| lease.reported_at + lease.ttl <= committed.now || !is_eligible(lease, limits);
    if let Some(lease) = after.blocks.values().filter(live).find(outlives) {
        return violated("P4", format!("{lease:?} is silent or not eligible, and not retired"));
    }
    if limits.policy.limit.is_some() {
        let excess = ceilings(&limits.policy).excess_of_leases(Usage::of(after.blocks.values()));
        recalled(excess, after.blocks.values())?;
    }
    for (group, ceiling) in &limits.groups {
        let excess = usage_of_group(after, group).both() - ceiling;
        recalled(excess, after.blocks.values().filter(|block| block.group == *group))?;
    }
    Ok(())
}

fn is_eligible(lease: &Block, limits: &Limits) -> bool {
    let limited = limits.groups.contains_key(&lease.group);
    let provisioned = limits.policy.provisioning != Provisioning::None;
    provisioned && (!limited || limits.policy.leases_within_group_limit)
}

/// What retired leases have not drawn covers the excess, or no lease is left to retire.
fn recalled<'a>(excess: Permits, blocks: impl Iterator<Item = &'a Block>) -> Verdict {
    let leases: Vec<&Block> = blocks.filter(|block| block.kind == Kind::Lease).collect();
    let live = leases.iter().any(|lease| lease.status == Status::Active);
    let recalled = leases.iter().filter(|lease| lease.status == Status::Retired && !lease.stopped);
    let coming: Permits = recalled.map(|lease| lease.permits - lease.used).sum();
    if live && coming < excess {
        return violated("P4", format!("leases are {excess} over budget, and {coming} are recalled"));
    }
    Ok(())
}

/// A lease is retired only where it is silent, not eligible, or among the newest of those that are over a budget which
/// other retired ones do not cover.
pub(super) fn for_a_reason(committed: &Committed, before: &Rows, after: &Rows) -> Verdict {
    let now_retired = |new: &&Block| {
        let old = before.blocks.get(&new.id.slot).filter(|old| old.id == new.id);
        new.status == Status::Retired && !new.stopped && old.is_some_and(|old| old.status == Status::Active)
    };
    let resumed = |lease: &&Block| super::declared::is_resumed(committed, lease);
    let retired: Vec<&Block> =
        after.blocks.values().filter(now_retired).filter(|lease| !resumed(lease)).collect();
    let Some(limits) = committed.limits.filter(|_| committed.work != Work::Sync) else {
        return match retired.first().filter(|_| committed.work != Work::Timer) {
            Some(lease) => violated("P4", format!("{:?} retires {lease:?}", committed.work)),
            None => Ok(()),
        };
    };
    let over: Vec<&Block> = retired
        .into_iter()
        .filter(|lease| !is_silent(committed, before, lease) && is_eligible(lease, limits))
        .collect();
    let new: Vec<&Block> = made(before, after).collect();
    let kept: Vec<&Block> =
        after.blocks.values().filter(|block| !new.iter().any(|made| made.id == block.id)).collect();
    let needless = |lease: &&&Block| !is_needed(lease, &over, &kept, limits);
    match over.iter().find(needless) {
        Some(lease) => violated("P4", format!("{lease:?} is retired, and nothing asks for it")),
        None => Ok(()),
    }
}

fn is_silent(committed: &Committed, before: &Rows, lease: &Block) -> bool {
    let silent = |old: &Block| old.reported_at + old.ttl <= committed.now;
    committed.work == Work::Round
        && !is_reported(committed, lease)
        && before.blocks.get(&lease.id.slot).is_some_and(silent)
}

/// Whether the key's budget or the group's ceiling asks for this one of the leases that are retired as `over` it.
fn is_needed(lease: &Block, over: &[&Block], kept: &[&Block], limits: &Limits) -> bool {
    let asks = |excess: Permits, concerned: &[&Block]| {
        let leases = || concerned.iter().filter(|block| block.kind == Kind::Lease);
        let newer_one_stays = leases().any(|other| other.status == Status::Active && other.id > lease.id);
        let later = |other: &Block| over.iter().any(|over| over.id == other.id && over.id <= lease.id);
        let earlier =
            leases().filter(|other| other.status == Status::Retired && !other.stopped && !later(other));
        let coming: Permits = earlier.map(|other| other.permits - other.used).sum();
        !newer_one_stays && coming < excess
    };
    let of_key = ceilings(&limits.policy).excess_of_leases(Usage::of(kept.iter().copied()));
    let of_key = if limits.policy.limit.is_some() { of_key } else { 0 };
    let group: Vec<&Block> = kept.iter().copied().filter(|block| block.group == lease.group).collect();
    let usage = Usage::of(group.iter().copied()).both();
    let of_group = limits.groups.get(&lease.group).map_or(0, |ceiling| usage - ceiling);
    asks(of_key, kept) || asks(of_group, &group)
}
