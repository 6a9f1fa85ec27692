//! P5 and P6: what a round must give to each entry of demand, and what it must say.

use super::budget::{Ceilings, Usage, ceilings, footprint};
use super::entries::{Entry, in_order};
use super::rows::made;
use super::{Committed, Verdict, violated};
use crate::store::{Limits, Rows};
use pgsemaphore_allocation::{Block, Kind, Permits, Status, Work};
use queue_client::Endpoint;
use queue_client::wire::Reason;
use std::collections::BTreeMap;

/// Permits by what they are, whose they are, and their group.
type Given<'a> = BTreeMap<(Kind, &'a str, &'a str), Permits>;

/// Gives out what is left once more, from the rows that the round kept, and compares.
pub(super) fn oldest_first(committed: &Committed, before: &Rows, after: &Rows) -> Verdict {
    let Some(limits) = committed.limits.filter(|_| committed.work == Work::Round) else { return Ok(()) };
    let new: Vec<&Block> = made(before, after).collect();
    let kept: Vec<&Block> =
        after.blocks.values().filter(|block| !new.iter().any(|made| made.id == block.id)).collect();
    let mut left = Left::new(limits, &kept, charged(committed, limits, before));
    let entries = in_order(committed);
    let mut expected = Given::new();
    let mut lacking = Vec::new();
    for entry in &entries {
        let on_their_way: Permits = kept.iter().map(|block| on_its_way(block, entry)).sum();
        let wanted = (entry.count - on_their_way).max(0);
        let given = left.grant(entry.group, wanted);
        *expected.entry((Kind::Grant, entry.client, entry.group)).or_default() += given;
        lacking.push((wanted - given, left.reason(entry.group)));
    }
    let candidates: Vec<usize> =
        (0..entries.len()).filter(|at| may_have_a_lease(&entries[*at], limits, &kept)).collect();
    for (turn, at) in candidates.iter().enumerate() {
        let entry = &entries[*at];
        let given = left.lease(entry.group, candidates.len() - turn);
        *expected.entry((Kind::Lease, entry.client, entry.group)).or_default() += given;
        lacking[*at].0 = (lacking[*at].0 - given).max(0);
    }
    let mut actual = Given::new();
    for block in &new {
        *actual.entry((block.kind, block.client.as_str(), block.group.as_str())).or_default() +=
            block.permits;
    }
    expected.retain(|_, given| *given > 0);
    if actual != expected {
        return violated("P5", format!("oldest first means {expected:?}, the round gave {actual:?}"));
    }
    entries.iter().zip(lacking).try_for_each(|(entry, (lacks, reason))| explained(entry, lacks, reason))
}

/// Permits of a block that cover the entry's demand although its client has not heard of them.
fn on_its_way(block: &Block, entry: &Entry) -> Permits {
    let own = block.client.as_str() == entry.client && block.group.as_str() == entry.group;
    if !own || block.id.round <= entry.seen || entry.reported.contains(&block.id.to_string().as_str()) {
        return 0;
    }
    match (block.kind, block.status) {
        (Kind::Grant, _) => block.permits,
        (Kind::Lease, Status::Active) => block.permits - block.used,
        (Kind::Lease, _) => 0,
    }
}

fn may_have_a_lease(entry: &Entry, limits: &Limits, kept: &[&Block]) -> bool {
    let limited = limits.groups.keys().any(|group| group.as_str() == entry.group);
    let draws_already = kept.iter().any(|block| {
        let own = block.client.as_str() == entry.client && block.group.as_str() == entry.group;
        let live = block.kind == Kind::Lease && block.status == Status::Active;
        own && live && block.used < block.permits
    });
    entry.takes_leases && !draws_already && (!limited || limits.policy.leases_within_group_limit)
}

/// What leases that exist for nobody are said to use.
fn charged(committed: &Committed, limits: &Limits, before: &Rows) -> Permits {
    let exists = |id: &str| before.blocks.values().any(|b| b.kind == Kind::Lease && b.id.to_string() == id);
    let charge = |call: &super::Told| {
        let mut unknown = BTreeMap::<&str, (u64, u64)>::new();
        for report in call.message.leases.iter().flatten().filter(|report| !exists(&report.id)) {
            let (drawn, released) = unknown.entry(&report.id).or_default();
            (*drawn, *released) = (report.drawn.max(*drawn), report.released.max(*released));
        }
        let used = unknown.values().map(|(drawn, released)| drawn.saturating_sub(*released)).sum();
        super::permits(used).min(limits.policy.permits_per_lease)
    };
    let asking = committed.calls.iter().filter(|call| call.endpoint == Endpoint::Request);
    asking.filter(|call| call.reply.is_some() && !call.applied).map(charge).sum()
}

fn explained(entry: &Entry, lacks: Permits, reason: Reason) -> Verdict {
    let said = entry.reply.blocked.iter().find(|blocked| blocked.group == entry.group);
    let right = match said {
        Some(said) => super::permits(said.count) == lacks && said.reason == reason,
        None => lacks == 0,
    };
    let (client, group) = (entry.client, entry.group);
    if !right {
        return violated(
            "P6",
            format!("{client} lacks {lacks} of '{group}' by {reason:?} and is told {said:?}"),
        );
    }
    if lacks > 0 && reason == Reason::Limit && !entry.reply.contended {
        return violated("P6", format!("{client} lacks {lacks} by the limit, which is not contended"));
    }
    Ok(())
}

/// Permits left by the mode, and of each group's ceiling.
struct Left<'a> {
    limits: &'a Limits,
    ceilings: Ceilings,
    usage: Usage,
    groups: BTreeMap<String, Permits>,
}

impl<'a> Left<'a> {
    fn new(limits: &'a Limits, kept: &[&Block], charged: Permits) -> Self {
        let usage = Usage { grants: 0, leases: charged };
        let mut left = Self { limits, ceilings: ceilings(&limits.policy), usage, groups: BTreeMap::new() };
        kept.iter().for_each(|block| left.count(block.kind, block.group.as_str(), footprint(block)));
        left
    }

    fn count(&mut self, kind: Kind, group: &str, permits: Permits) {
        self.usage.add(kind, permits);
        *self.groups.entry(group.to_owned()).or_default() += permits;
    }

    /// At least 0; `None` without a ceiling.
    fn of_group(&self, group: &str) -> Option<Permits> {
        let ceiling = self.limits.groups.iter().find(|(name, _)| name.as_str() == group)?.1;
        Some((ceiling - self.groups.get(group).copied().unwrap_or(0)).max(0))
    }

    fn for_grants(&self) -> Permits {
        self.ceilings.left_for_grants(self.usage)
    }

    fn grant(&mut self, group: &str, wanted: Permits) -> Permits {
        let resolved = self.limits.policy.limit.is_some();
        let left = if resolved { self.for_grants() } else { 0 };
        let given = wanted.min(left).min(self.of_group(group).unwrap_or(Permits::MAX));
        self.count(Kind::Grant, group, given);
        given
    }

    /// The share of the next of so many candidates.
    fn lease(&mut self, group: &str, candidates: usize) -> Permits {
        let candidates = Permits::try_from(candidates).unwrap_or(Permits::MAX);
        let resolved = self.limits.policy.limit.is_some();
        let left = if resolved { self.ceilings.left_for_leases(self.usage) } else { 0 };
        let share = left / candidates + Permits::from(left % candidates > 0);
        let most = self.limits.policy.permits_per_lease.min(self.of_group(group).unwrap_or(Permits::MAX));
        let given = share.min(most);
        self.count(Kind::Lease, group, given);
        given
    }

    fn reason(&self, group: &str) -> Reason {
        if self.limits.policy.limit.is_none() {
            Reason::LimitResolutionError
        } else if self.of_group(group).is_some_and(|left| left < self.for_grants()) {
            Reason::GroupLimit
        } else {
            Reason::Limit
        }
    }
}
