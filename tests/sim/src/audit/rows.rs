//! P1, P3 and the deadline's part of P4: what a commit may do to rows.

use super::{Audit, Committed, Verdict, violated};
use crate::store::Rows;
use pgsemaphore_allocation::{Block, Group, Permits, Work};
use std::collections::BTreeSet;

/// Blocks that were not there before.
pub(super) fn made<'a>(before: &'a Rows, after: &'a Rows) -> impl Iterator<Item = &'a Block> {
    let known = |block: &Block| before.blocks.get(&block.id.slot).is_some_and(|old| old.id == block.id);
    after.blocks.values().filter(move |block| !known(block))
}

pub(super) fn ceilings_hold(committed: &Committed, before: &Rows, after: &Rows) -> Verdict {
    let groups: BTreeSet<&Group> = made(before, after).map(|block| &block.group).collect();
    if groups.is_empty() {
        return Ok(());
    }
    let usage = |group: Option<&Group>| -> Permits {
        let blocks = after.blocks.values().filter(|block| group.is_none_or(|group| block.group == *group));
        blocks.map(|block| block.permits - block.released).sum()
    };
    let limit = committed.limits.and_then(|limits| limits.policy.limit).unwrap_or(0);
    if usage(None) > limit {
        return violated("P1", format!("usage {} is above the limit {limit}", usage(None)));
    }
    for group in groups {
        let ceiling = committed.limits.and_then(|limits| limits.groups.get(group)).copied();
        if ceiling.is_some_and(|ceiling| usage(Some(group)) > ceiling) {
            let usage = usage(Some(group));
            return violated("P1", format!("usage {usage} of '{group}' is above its ceiling {ceiling:?}"));
        }
    }
    Ok(())
}

pub(super) fn nothing_is_overdue(committed: &Committed, after: &Rows) -> Verdict {
    let overdue = |block: &&Block| block.used < block.permits && block.deadline <= committed.now;
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
            if block.used > said.claimed || block.released > said.released {
                return violated("P3", format!("its owner said {said:?} of {block:?}"));
            }
        }
        for old in before.blocks.values() {
            let new = self.rows.blocks.get(&old.id.slot).filter(|block| block.id == old.id);
            let back = |new: &Block| new.used < old.used || new.released < old.released;
            if new.is_some_and(|new| back(new) || new.permits > old.permits) {
                return violated("P3", format!("{old:?} went back to {new:?}"));
            }
            let kept = new.map_or(0, |block| block.permits);
            if kept < old.permits && !self.may_shrink(committed, old, new) {
                return violated("P3", format!("{old:?} became {new:?}"));
            }
        }
        Ok(())
    }

    fn may_shrink(&self, committed: &Committed, old: &Block, new: Option<&Block>) -> bool {
        let said = self.said_of(old);
        let overdue = old.deadline <= committed.now && committed.reclaims();
        match new {
            Some(new) => overdue && new.permits == new.used,
            None if overdue => said.released >= old.used,
            None => said.released >= old.permits,
        }
    }

    fn said_of(&self, block: &Block) -> super::Marks {
        let key = (block.client.as_str().to_owned(), block.id.to_string());
        self.said.get(&key).copied().unwrap_or_default()
    }

    pub(super) fn names_are_given_once(&mut self, committed: &Committed, before: &Rows) -> Verdict {
        for block in made(before, &self.rows) {
            let numbered = committed.work == Work::Round && block.id.round == self.rows.semaphore.round;
            if !numbered || !self.named.insert(block.id.to_string()) {
                return violated(
                    "P3",
                    format!("{:?} makes {block:?}, a name that was given", committed.work),
                );
            }
        }
        Ok(())
    }
}
