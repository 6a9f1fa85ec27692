//! P1, P3 and the deadline's part of P4: what a commit may do to rows.

use super::budget::{Usage, ceilings};
use super::{Audit, Committed, Verdict, violated};
use crate::store::Rows;
use pgsemaphore_allocation::{Block, Group, Kind, Status, Work};
use std::collections::BTreeSet;

/// Blocks that were not there before.
pub(super) fn made<'a>(before: &'a Rows, after: &'a Rows) -> impl Iterator<Item = &'a Block> {
    let known = |block: &Block| before.blocks.get(&block.id.slot).is_some_and(|old| old.id == block.id);
    after.blocks.values().filter(move |block| !known(block))
}

pub(super) fn ceilings_hold(committed: &Committed, before: &Rows, after: &Rows) -> Verdict {
    let new: Vec<&Block> = made(before, after).collect();
    let Some(first) = new.first() else { return Ok(()) };
    let Some(limits) = committed.limits else {
        return violated("P1", format!("{first:?} is made without a policy"));
    };
    let (usage, most) = (Usage::of(after.blocks.values()), ceilings(&limits.policy));
    let has = |kind: Kind| new.iter().any(|block| block.kind == kind);
    let above = usage.both() > most.both
        || (has(Kind::Grant) && usage.grants > most.grants)
        || (has(Kind::Lease) && usage.leases > most.leases);
    if above {
        return violated("P1", format!("{usage:?} is above {most:?}"));
    }
    let groups: BTreeSet<&Group> = new.iter().map(|block| &block.group).collect();
    for group in groups {
        let ceiling = limits.groups.get(group).copied();
        let usage = usage_of_group(after, group).both();
        if ceiling.is_some_and(|ceiling| usage > ceiling) {
            return violated("P1", format!("usage {usage} of '{group}' is above its ceiling {ceiling:?}"));
        }
    }
    Ok(())
}

pub(super) fn usage_of_group(rows: &Rows, group: &Group) -> Usage {
    Usage::of(rows.blocks.values().filter(|block| block.group == *group))
}

pub(super) fn nothing_is_overdue(committed: &Committed, after: &Rows) -> Verdict {
    let overdue = |block: &&Block| {
        block.kind == Kind::Grant && block.used < block.permits && block.deadline <= committed.now
    };
    match after.blocks.values().find(overdue).filter(|_| committed.reclaims()) {
        Some(block) => violated("P4", format!("{block:?} is overdue")),
        None => Ok(()),
    }
}

impl Audit {
    /// Marks move forward, as far as their owner said; permits come back for a reason.
    pub(super) fn marks_are_what_was_said(&self, committed: &Committed, before: &Rows) -> Verdict {
        for block in self.rows.blocks.values() {
            let said = self.said_of(block);
            let stopped = block.stopped && !said.stopped;
            if block.used > said.used || block.released > said.released || stopped {
                return violated("P3", format!("its owner said {said:?} of {block:?}"));
            }
        }
        for old in before.blocks.values() {
            let new = self.rows.blocks.get(&old.id.slot).filter(|block| block.id == old.id);
            if new.is_some_and(|new| goes_back(old, new)) {
                return violated("P3", format!("{old:?} went back to {new:?}"));
            }
            let kept = new.map_or(0, |block| block.permits);
            if kept < old.permits && !self.may_shrink(committed, old, new) {
                return violated("P3", format!("{old:?} became {new:?}"));
            }
            if new.is_some_and(|new| new.reported_at != old.reported_at && !is_reported(committed, new)) {
                return violated("P3", format!("nobody reported {old:?}, which became {new:?}"));
            }
        }
        Ok(())
    }

    fn may_shrink(&self, committed: &Committed, old: &Block, new: Option<&Block>) -> bool {
        let said = self.said_of(old);
        if new.is_none() && super::declared::is_written_off(committed, old) {
            return true;
        }
        let overdue = old.deadline <= committed.now && committed.reclaims();
        match (old.kind, new) {
            (Kind::Lease, Some(_)) => false,
            (Kind::Lease, None) => {
                said.released >= old.permits || (said.stopped && said.released >= old.used)
            }
            (Kind::Grant, Some(new)) => overdue && new.permits == new.used,
            (Kind::Grant, None) if overdue => said.released >= old.used,
            (Kind::Grant, None) => said.released >= old.permits,
        }
    }

    fn said_of(&self, block: &Block) -> super::Marks {
        let key = (block.kind, block.client.as_str().to_owned(), block.id.to_string());
        self.said.get(&key).copied().unwrap_or_default()
    }

    pub(super) fn names_are_given_once(&mut self, committed: &Committed, before: &Rows) -> Verdict {
        for block in made(before, &self.rows) {
            let numbered = committed.work == Work::Round && block.id.round == self.rows.semaphore.round;
            if !numbered || self.named.insert(block.id.to_string(), block.kind).is_some() {
                return violated(
                    "P3",
                    format!("{:?} makes {block:?}, a name that was given", committed.work),
                );
            }
        }
        Ok(())
    }
}

fn goes_back(old: &Block, new: &Block) -> bool {
    let counts = new.used < old.used || new.released < old.released || new.permits > old.permits;
    let status = old.status != Status::Active && new.status != old.status;
    counts || status || (old.stopped && !new.stopped) || old.kind != new.kind
}

/// Only a report is a heartbeat.
pub(super) fn is_reported(committed: &Committed, block: &Block) -> bool {
    let id = block.id.to_string();
    committed
        .calls
        .iter()
        .filter(|call| call.message.client_id == block.client.as_str() && call.is_heard() && !call.applied)
        .any(|call| call.message.leases.iter().flatten().any(|report| report.id == id))
}
