//! What is counted is what the blocks say, and nothing is freed twice.

use super::{Case, Violation, violated};
use crate::names::{ClientId, Group, Permits};
use crate::state::{Block, Kind, Status};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
struct Usage {
    grants: Permits,
    leases: Permits,
    live: i64,
}

impl Usage {
    fn add(&mut self, block: &Block, sign: Permits) {
        let counted = sign * counts(block);
        match block.kind {
            Kind::Grant => self.grants += counted,
            Kind::Lease => self.leases += counted,
        }
        if block.kind == Kind::Lease && block.status == Status::Active {
            self.live += sign;
        }
    }
}

/// What may run on a block: all of it that did not come back; of a lease whose client drew its last permit, what it drew.
pub(super) fn counts(block: &Block) -> Permits {
    let may_run = if block.kind == Kind::Lease && block.stopped { block.used } else { block.permits };
    may_run - block.released
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
    let moved = Usage {
        grants: new.grants - old.grants,
        leases: new.leases - old.leases,
        live: new.live_leases - old.live_leases,
    };
    if moved != total || new.grants < 0 || new.leases < 0 {
        return violated("P3", format!("the key's counters move by {moved:?}, its blocks by {total:?}"));
    }
    let named: BTreeSet<_> = groups.keys().copied().chain(case.plan.groups.keys()).collect();
    for group in named {
        let old = case.before.groups.get(group).cloned().unwrap_or_default();
        let new = case.plan.groups.get(group).unwrap_or(&old);
        let moved = Usage {
            grants: new.grants - old.grants,
            leases: new.leases - old.leases,
            live: new.live_leases - old.live_leases,
        };
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
        let revived = old.stopped && !new.stopped || old.status != Status::Active && new.status != old.status;
        if !same || revived || new.used < old.used || new.released < old.released || new.permits > old.permits
        {
            return violated("P3", format!("{old:?} went back to {new:?}"));
        }
    }
    Ok(())
}

/// Permits come back where their owner reported them released, or undrawn in a lease that it stopped, or where they
/// were not claimed in time: those, at once, and no others.
pub(super) fn what_comes_back_has_a_reason(case: &Case) -> Result<(), Violation> {
    let reports = Reports::of(case);
    for old in case.before.blocks.values() {
        let new = case.after(old);
        if case.is_written_off(old) {
            match new {
                Some(block) => return violated("P4", format!("{block:?} is of nobody and still counts")),
                None => continue,
            }
        }
        let Marks { used, released, stopped } = reports.believed(old);
        let over = match old.kind {
            Kind::Grant => old.deadline <= case.plan.now && case.reclaims(),
            Kind::Lease => stopped,
        };
        let must_count = if over { used } else { old.permits } - released;
        let counted = new.map_or(0, counts);
        if counted < must_count {
            return violated("P2", format!("{old:?} counts {counted}, must count {must_count}"));
        }
        if counted > must_count {
            return violated("P4", format!("{old:?} counts {counted}, of which {must_count} are in use"));
        }
        let shrunk = new.is_some_and(|block| block.permits < old.permits && block.status != Status::Expired);
        if shrunk {
            return violated("P2", format!("{old:?} lost permits and is not expired"));
        }
    }
    Ok(())
}

#[derive(Default, Clone, Copy)]
struct Marks {
    used: Permits,
    released: Permits,
    stopped: bool,
}

/// What each message says of each block, its entries merged by maximum.
struct Reports<'a>(BTreeMap<(&'a ClientId, Kind, &'a str), BTreeMap<usize, Marks>>);

impl<'a> Reports<'a> {
    fn of(case: &'a Case) -> Self {
        let mut reports = Self(BTreeMap::new());
        for (at, call) in case.admitted().enumerate().filter(|(_, call)| !call.applied) {
            for report in &call.grants {
                let said = Marks { used: report.claimed, released: report.released, stopped: false };
                reports.add((&call.client, Kind::Grant, &report.id), at, said);
            }
            for report in &call.leases {
                let said = Marks { used: report.drawn, released: report.released, stopped: report.stopped };
                reports.add((&call.client, Kind::Lease, &report.id), at, said);
            }
        }
        reports
    }

    fn add(&mut self, block: (&'a ClientId, Kind, &'a str), message: usize, said: Marks) {
        let all = self.0.entry(block).or_default().entry(message).or_default();
        all.used = all.used.max(said.used);
        all.released = all.released.max(said.released);
        all.stopped |= said.stopped;
    }

    /// Where the marks of a block stand once its owner's messages are believed as far as the block goes. What a
    /// message claims beyond the block never ran, so what it releases is first of all that. A lease that was
    /// stopped and of which all came back is settled: messages after that are of a lease that is no more.
    fn believed(&self, block: &Block) -> Marks {
        let mut marks = Marks { used: block.used, released: block.released, stopped: block.stopped };
        let id = block.id.to_string();
        let messages = self.0.get(&(&block.client, block.kind, id.as_str()));
        for said in messages.into_iter().flat_map(BTreeMap::values) {
            let ran = said.released - (said.used - block.permits).max(0);
            marks.used = marks.used.max(said.used.min(block.permits));
            marks.released = marks.released.max(ran.min(marks.used));
            marks.stopped |= said.stopped;
            if marks.stopped && marks.released == marks.used {
                break;
            }
        }
        marks
    }
}

/// A new block takes a row that is free, and a free row is known as such.
pub(super) fn rows_are_not_shared(case: &Case) -> Result<(), Violation> {
    let (old, new) = (&case.before.semaphore, &case.plan.semaphore);
    let was_listed: BTreeSet<_> = old.free_slots.iter().collect();
    let listed: BTreeSet<_> = new.free_slots.iter().collect();
    for block in case.made() {
        let slot = block.id.slot;
        let freed = case.before.blocks.contains_key(&slot);
        let free = freed || was_listed.contains(&slot) || (old.next_slot <= slot && slot < old.slot_cap);
        if !free || listed.contains(&slot) || slot >= new.next_slot {
            return violated("P2", format!("{block:?} shares its row"));
        }
    }
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
