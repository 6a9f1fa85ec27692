//! Step 6: what stays queued, why, and since when.

use crate::call::Call;
use crate::draft::Draft;
use crate::names::{ClientId, DbTime, Group, Micros, Permits};
use crate::state::{Client, State};
use std::collections::{BTreeMap, BTreeSet};

/// An entry counts for this long after the round that wrote it: 75 s, longer than a call can be parked.
pub const BLOCKED_LIFETIME: Micros = 75_000_000;
/// Entries that say the same as before are written again when they are older than this. So a client's row may be this
/// much older than the mark that its demand left in the key's row.
pub const BLOCKED_REWRITTEN_AFTER: Micros = 5_000_000;

/// Why demand stays queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The limit could not be resolved.
    LimitResolutionError,
    /// The group's own ceiling is reached, and the shared limit is not.
    GroupLimit,
    /// The shared limit is reached.
    Limit,
}

/// What one demand entry still lacks after its turn.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lacking {
    /// The group.
    pub group: Group,
    /// How many items have no permit.
    pub count: Permits,
    /// Why.
    pub reason: Reason,
}

/// The same, as it is kept for people.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BlockedEntry {
    /// What is lacking.
    pub lacking: Lacking,
    /// The round in which the group's demand was first blocked.
    pub since: DbTime,
}

/// Keeps per client what its calls lack. A call without demand clears its client's entries.
pub(crate) fn record<R>(
    draft: &mut Draft,
    state: &State,
    calls: &[Call],
    admitted: &[Result<(), R>],
    lacking: &BTreeMap<usize, Vec<Lacking>>,
) {
    let mut by_client = BTreeMap::<&ClientId, BTreeMap<Group, Lacking>>::new();
    for (at, call) in calls.iter().enumerate().filter(|(at, _)| admitted[*at].is_ok()) {
        let entries = by_client.entry(&call.client).or_default();
        for lacks in lacking.get(&at).into_iter().flatten() {
            // Of two calls of one client the later one counts, but what others must hear of stays.
            if entries.get(&lacks.group).is_none_or(|kept| kept.reason != Reason::Limit) {
                entries.insert(lacks.group.clone(), lacks.clone());
            }
        }
    }
    for (id, entries) in by_client {
        keep(draft, id, entries);
    }
    mark_key(draft, state, lacking);
    mark_groups(draft, state, lacking);
}

fn mark_key(draft: &mut Draft, state: &State, lacking: &BTreeMap<usize, Vec<Lacking>>) {
    let by_limit = lacking.values().flatten().any(|lacks| lacks.reason == Reason::Limit);
    let elsewhere = state.contended_elsewhere.key.filter(|until| *until > draft.now);
    let unresolved = state.policy.as_ref().is_some_and(|policy| policy.limit.is_none());
    draft.semaphore.contended_until = if by_limit {
        Some(draft.now + BLOCKED_LIFETIME)
    } else if unresolved {
        state.semaphore.contended_until
    } else {
        elsewhere
    };
}

fn mark_groups(draft: &mut Draft, state: &State, lacking: &BTreeMap<usize, Vec<Lacking>>) {
    let by_ceiling = lacking.values().flatten().filter(|lacks| lacks.reason == Reason::GroupLimit);
    let lacking: BTreeSet<&Group> = by_ceiling.map(|lacks| &lacks.group).collect();
    for (group, usage) in &mut draft.groups {
        let elsewhere =
            state.contended_elsewhere.groups.get(group).copied().filter(|until| *until > draft.now);
        let until = if lacking.contains(group) { Some(draft.now + BLOCKED_LIFETIME) } else { elsewhere };
        if usage.contended_until != until {
            usage.contended_until = until;
            draft.changed_groups.insert(group.clone());
        }
    }
}

fn keep(draft: &mut Draft, id: &ClientId, entries: BTreeMap<Group, Lacking>) {
    let now = draft.now;
    let Some(client) = draft.clients.get_mut(id) else { return };
    let since = |group: &Group| {
        let same = current(client, now).iter().find(|entry| entry.lacking.group == *group);
        same.map_or(now, |entry| entry.since)
    };
    let blocked: Vec<_> =
        entries.into_iter().map(|(group, lacking)| BlockedEntry { since: since(&group), lacking }).collect();
    let fresh = client.blocked_at.is_some_and(|at| now - at <= BLOCKED_REWRITTEN_AFTER);
    if blocked == client.blocked && (blocked.is_empty() || fresh) {
        return;
    }
    client.blocked_at = (!blocked.is_empty()).then_some(now);
    client.blocked = blocked;
    draft.changed_clients.insert(id.clone());
}

/// The client's entries that still count.
fn current(client: &Client, now: DbTime) -> &[BlockedEntry] {
    let counts = client.blocked_at.is_some_and(|at| now - at < BLOCKED_LIFETIME);
    if counts { &client.blocked } else { &[] }
}
