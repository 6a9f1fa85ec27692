//! P5 and P6: what a round must give to each entry of demand, and what it must say.

use super::entries::{Entry, in_order};
use super::rows::made;
use super::{Committed, Verdict, violated};
use crate::store::{Limits, Rows};
use pgsemaphore_allocation::{Block, Permits, Work};
use queue_client::wire::Reason;
use std::collections::BTreeMap;

/// Gives out what is left once more, from the rows that the round kept, and compares.
pub(super) fn oldest_first(committed: &Committed, before: &Rows, after: &Rows) -> Verdict {
    let Some(limits) = committed.limits.filter(|_| committed.work == Work::Round) else { return Ok(()) };
    let new: Vec<&Block> = made(before, after).collect();
    let kept = || after.blocks.values().filter(|block| !new.iter().any(|made| made.id == block.id));
    let mut left = Left::new(limits, kept());
    let mut explanations = Ok(());
    let mut expected = BTreeMap::<(&str, &str), Permits>::new();
    for entry in in_order(committed) {
        let unseen = kept().filter(|block| is_on_its_way(block, &entry));
        let on_their_way: Permits = unseen.map(|block| block.permits).sum();
        let wanted = (entry.count - on_their_way).max(0);
        let given = left.give(entry.group, wanted);
        *expected.entry((entry.client, entry.group)).or_default() += given;
        let explained = explained(&entry, wanted - given, left.reason(entry.group));
        explanations = explanations.and(explained);
    }
    let mut actual = BTreeMap::<(&str, &str), Permits>::new();
    for block in &new {
        *actual.entry((block.client.as_str(), block.group.as_str())).or_default() += block.permits;
    }
    expected.retain(|_, given| *given > 0);
    if actual == expected {
        return explanations;
    }
    violated("P5", format!("oldest first means {expected:?}, the round gave {actual:?}"))
}

fn is_on_its_way(block: &Block, entry: &Entry) -> bool {
    block.client.as_str() == entry.client
        && block.group.as_str() == entry.group
        && block.id.round > entry.seen
        && !entry.reported.contains(&block.id.to_string().as_str())
}

fn explained(entry: &Entry, lacks: Permits, reason: Reason) -> Verdict {
    let said = entry.reply.blocked.iter().find(|blocked| blocked.group == entry.group);
    let right = match said {
        Some(said) => super::permits(said.count) == lacks && said.reason == reason,
        None => lacks == 0,
    };
    if right {
        return Ok(());
    }
    let (client, group) = (entry.client, entry.group);
    violated("P6", format!("{client} lacks {lacks} of '{group}' by {reason:?} and is told {said:?}"))
}

/// Permits left of the limit, and of each group's ceiling.
struct Left<'a> {
    limits: &'a Limits,
    used: Permits,
    groups: BTreeMap<String, Permits>,
}

impl<'a> Left<'a> {
    fn new<'b>(limits: &'a Limits, kept: impl Iterator<Item = &'b Block>) -> Self {
        let mut left = Self { limits, used: 0, groups: BTreeMap::new() };
        kept.for_each(|block| left.count(block.group.as_str(), block.permits - block.released));
        left
    }

    fn count(&mut self, group: &str, permits: Permits) {
        self.used += permits;
        *self.groups.entry(group.to_owned()).or_default() += permits;
    }

    /// At least 0; `None` without a ceiling.
    fn of_group(&self, group: &str) -> Option<Permits> {
        let ceiling = self.limits.groups.iter().find(|(name, _)| name.as_str() == group)?.1;
        Some((ceiling - self.groups.get(group).copied().unwrap_or(0)).max(0))
    }

    fn of_limit(&self) -> Permits {
        (self.limits.policy.limit.unwrap_or(0) - self.used).max(0)
    }

    fn give(&mut self, group: &str, wanted: Permits) -> Permits {
        let given = wanted.min(self.of_limit()).min(self.of_group(group).unwrap_or(Permits::MAX));
        self.count(group, given);
        given
    }

    fn reason(&self, group: &str) -> Reason {
        if self.limits.policy.limit.is_none() {
            Reason::LimitResolutionError
        } else if self.of_group(group).is_some_and(|left| left < self.of_limit()) {
            Reason::GroupLimit
        } else {
            Reason::Limit
        }
    }
}
