//! What is counted is what the blocks say, and nothing is freed twice.

use super::{Case, Violation, violated};
use crate::names::{Group, Permits};
use crate::state::{Block, Kind, Status};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
struct Usage {
    grants: Permits,
    leases: Permits,
}

impl Usage {
    fn add(&mut self, block: &Block, sign: Permits) {
        let counted = sign * (block.permits - block.released);
        match block.kind {
            Kind::Grant => self.grants += counted,
            Kind::Lease => self.leases += counted,
        }
    }
}

/// Counters of the key and of each group move by exactly what their blocks do.
pub(super) fn counters_follow_blocks(case: &Case) -> Result<(), Violation> {
    let mut total = Usage::default();
    let mut groups = BTreeMap::<&Group, Usage>::new();
    let mut tally = |block, sign| {
        total.add(block, sign);
        groups.entry(&block.group).or_default().add(block, sign);
    };
    for (slot, after) in &case.plan.blocks {
        if let Some(old) = case.before.blocks.get(slot) {
            tally(old, -1);
        }
        if let Some(new) = after {
            tally(new, 1);
        }
    }
    let (old, new) = (&case.before.semaphore, &case.plan.semaphore);
    let moved = Usage { grants: new.grants - old.grants, leases: new.leases - old.leases };
    if moved != total || new.grants < 0 || new.leases < 0 {
        return violated("P3", format!("the key's counters move by {moved:?}, its blocks by {total:?}"));
    }
    let named: BTreeSet<_> = groups.keys().copied().chain(case.plan.groups.keys()).collect();
    for group in named {
        let old = case.before.groups.get(group).cloned().unwrap_or_default();
        let new = case.plan.groups.get(group).unwrap_or(&old);
        let moved = Usage { grants: new.grants - old.grants, leases: new.leases - old.leases };
        let blocks = groups.get(group).copied().unwrap_or_default();
        if moved != blocks || new.grants < 0 || new.leases < 0 {
            return violated(
                "P3",
                format!("counters of group {group:?} move by {moved:?}, its blocks by {blocks:?}"),
            );
        }
    }
    Ok(())
}

/// Claimed and released never fall, and released <= claimed <= permits.
pub(super) fn marks_only_move_forward(case: &Case) -> Result<(), Violation> {
    for block in case.plan.blocks.values().flatten() {
        if !(0 <= block.released && block.released <= block.used && block.used <= block.permits) {
            return violated("P3", format!("marks out of order: {block:?}"));
        }
    }
    for (old, new) in case.changed() {
        let Some(new) = new else { continue };
        let same = new.client == old.client && new.group == old.group && new.kind == old.kind;
        if !same || new.used < old.used || new.released < old.released || new.permits > old.permits {
            return violated("P3", format!("{old:?} went back to {new:?}"));
        }
    }
    Ok(())
}

/// Permits come back only where their owner reported them released, or where they were never claimed in time.
pub(super) fn nothing_is_freed_without_a_reason(case: &Case) -> Result<(), Violation> {
    for (old, new) in case.changed() {
        let (claimed, released) = reported(case, old);
        let due = old.deadline <= case.plan.now && case.work != super::Work::Sync;
        let used = old.used.max(claimed.min(old.permits));
        let may_release = old.released.max(released.min(used));
        let must_stay = if due && old.kind == Kind::Grant { used } else { old.permits } - may_release;
        let counted = new.map_or(0, |block| block.permits - block.released);
        if counted < must_stay {
            return violated("P2", format!("{old:?} counts {counted}, must count at least {must_stay}"));
        }
        let shrunk = new.is_some_and(|block| block.permits < old.permits && block.status != Status::Expired);
        if shrunk {
            return violated("P2", format!("{old:?} lost permits and is not expired"));
        }
    }
    Ok(())
}

/// The most that the block's owner reported in these calls.
fn reported(case: &Case, block: &Block) -> (Permits, Permits) {
    let id = block.id.to_string();
    let own = case.calls.iter().filter(|call| call.client == block.client);
    let reports = own.flat_map(|call| &call.grants).filter(|report| report.id == id);
    reports.fold((0, 0), |(claimed, released), report| {
        (claimed.max(report.claimed), released.max(report.released))
    })
}

/// A new block takes a row that is free, and a free row is known as such.
pub(super) fn rows_are_not_shared(case: &Case) -> Result<(), Violation> {
    let (old, new) = (&case.before.semaphore, &case.plan.semaphore);
    for block in case.made() {
        let slot = block.id.slot;
        let freed = case.before.blocks.contains_key(&slot);
        let free = freed || old.free_slots.contains(&slot) || (old.next_slot <= slot && slot < old.slot_cap);
        if !free || new.free_slots.contains(&slot) || slot >= new.next_slot {
            return violated("P2", format!("{block:?} shares its row"));
        }
    }
    let listed: BTreeSet<_> = new.free_slots.iter().collect();
    if listed.len() != new.free_slots.len() {
        return violated("P2", "a row is listed as free twice");
    }
    let in_use =
        |slot| case.plan.blocks.get(slot).map_or(case.before.blocks.contains_key(slot), Option::is_some);
    match new.free_slots.iter().find(|slot| in_use(slot)) {
        Some(slot) => violated("P2", format!("row {slot} is listed as free and in use")),
        None => Ok(()),
    }
}
