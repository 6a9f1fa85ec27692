//! Step 2: what clients report. Marks only move forward and are clamped, so a lost, repeated or reordered report never
//! frees the same capacity twice.

use crate::call::{Call, GrantReport, LeaseReport};
use crate::draft::Draft;
use crate::names::{BlockId, Micros, Permits};
use crate::silence;
use crate::state::{Block, Kind, Policy};
use crate::tally::Retired;
use std::collections::BTreeMap;

/// Applies the reports of admitted calls in their order. A call that waits on was heard before, but counts as hearing
/// from its client while it is open.
pub(crate) fn apply<R>(
    draft: &mut Draft,
    policy: Option<&Policy>,
    calls: &[Call],
    admitted: &[Result<(), R>],
) {
    for (call, _) in calls.iter().zip(admitted).filter(|(_, admitted)| admitted.is_ok()) {
        silence::hear(draft, policy, &call.client);
        if call.applied {
            continue;
        }
        merged_grants(&call.grants).into_iter().for_each(|(id, said)| apply_grant(draft, call, id, said));
        let ttl = policy.map(|policy| policy.lease_ttl);
        merged_leases(&call.leases)
            .into_iter()
            .for_each(|(id, said)| apply_lease(draft, call, id, said, ttl));
    }
}

/// Counts that a message says of a block: used (claimed or drawn), released, and of a lease whether it is stopped.
#[derive(Debug, Clone, Copy, Default)]
struct Said {
    used: Permits,
    released: Permits,
    stopped: bool,
}

/// The entries of one block within one message, merged by maximum.
fn merge<Id: Ord>(entries: impl Iterator<Item = (Id, Said)>) -> BTreeMap<Id, Said> {
    let mut merged = BTreeMap::<Id, Said>::new();
    for (id, said) in entries {
        let all = merged.entry(id).or_default();
        all.used = all.used.max(said.used);
        all.released = all.released.max(said.released);
        all.stopped |= said.stopped;
    }
    merged
}

fn merged_grants(reports: &[GrantReport]) -> BTreeMap<BlockId, Said> {
    merge(reports.iter().filter_map(|report| {
        let said = Said { used: report.claimed, released: report.released, stopped: false };
        Some((BlockId::parse(&report.id)?, said))
    }))
}

fn merged_leases(reports: &[LeaseReport]) -> BTreeMap<&str, Said> {
    merge(reports.iter().map(|report| {
        let said = Said { used: report.drawn, released: report.released, stopped: report.stopped };
        (report.id.as_str(), said)
    }))
}

fn holds(draft: &Draft, call: &Call, id: BlockId, kind: Kind) -> bool {
    draft.block(id).is_some_and(|block| block.client == call.client && block.kind == kind)
}

/// Releases count first against uses that were not honoured, so they never free a running item.
fn move_forward(block: &mut Block, said: Said) {
    block.used = block.used.max(said.used.min(block.permits));
    let not_honoured = (said.used - block.used).max(0);
    block.released = block.released.max((said.released - not_honoured).min(block.used));
}

fn apply_grant(draft: &mut Draft, call: &Call, id: BlockId, said: Said) {
    if holds(draft, call, id, Kind::Grant) {
        draft.change(id.slot, |grant| move_forward(grant, said));
    }
}

/// Each report is a heartbeat, and tells the client the policy's ttl anew. A lease that its client stopped is retired.
fn apply_lease(draft: &mut Draft, call: &Call, id: &str, said: Said, ttl: Option<Micros>) {
    let Some(id) = BlockId::parse(id).filter(|id| holds(draft, call, *id, Kind::Lease)) else { return };
    let now = draft.now;
    if said.stopped {
        draft.retire(id.slot, Retired::GivenBack);
    }
    draft.change(id.slot, |lease| {
        move_forward(lease, said);
        lease.reported_at = now;
        lease.ttl = ttl.unwrap_or(lease.ttl);
        lease.stopped |= said.stopped;
    });
    if let Some(lease) = draft.block(id).filter(|lease| lease.is_live_lease()) {
        let due = lease.reported_at + lease.ttl;
        draft.semaphore.leases_due = draft.semaphore.leases_due.map(|earlier| earlier.min(due));
    }
}

/// What requests say to use of leases that exist for nobody: counts against this round, at most one lease's worth each.
pub(crate) fn charges<R>(
    draft: &Draft,
    policy: &Policy,
    calls: &[Call],
    admitted: &[Result<(), R>],
) -> Permits {
    let heard = calls.iter().zip(admitted).filter(|(call, admitted)| admitted.is_ok() && !call.applied);
    let asking = heard.filter(|(call, _)| call.asks);
    let charge = |call: &Call| {
        let exists =
            |id: BlockId| draft.block(id).or(draft.settled.get(&id)).is_some_and(|b| b.kind == Kind::Lease);
        let leases =
            merged_leases(&call.leases).into_iter().filter(|(id, _)| !BlockId::parse(id).is_some_and(exists));
        let used: Permits = leases.map(|(_, said)| (said.used - said.released).max(0)).sum();
        used.min(policy.permits_per_lease)
    };
    asking.map(|(call, _)| charge(call)).sum()
}
