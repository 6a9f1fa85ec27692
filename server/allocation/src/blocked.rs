//! Step 6: what stays queued, why, and since when.

use crate::call::Call;
use crate::draft::Draft;
use crate::names::{ClientId, DbTime, Group, Micros, Permits};
use crate::state::{Client, Contended, State};
use std::collections::BTreeMap;

/// An entry counts for this long after the round that wrote it: 75 s, longer than a call can be parked.
pub const BLOCKED_LIFETIME: Micros = 75_000_000;
/// Entries that say the same as before are written again when they are older than this. So a client's row may be this
/// much older than the mark that its demand left in the key's row.
pub const BLOCKED_REWRITTEN_AFTER: Micros = 5_000_000;

/// Why demand stays queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The key or the group is paused.
    Paused,
    /// The policy's function does not permit the client to be admitted to the group.
    NotPermitted,
    /// The limit could not be resolved.
    LimitResolutionError,
    /// The group's own ceiling is reached, and the shared limit is not.
    GroupLimit,
    /// The shared limit is reached.
    Limit,
}

impl Reason {
    /// All of them, the first that holds first.
    pub const ALL: [Self; 5] =
        [Self::Paused, Self::NotPermitted, Self::LimitResolutionError, Self::GroupLimit, Self::Limit];

    /// How it is written in rows and in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::NotPermitted => "not_permitted",
            Self::LimitResolutionError => "limit_resolution_error",
            Self::GroupLimit => "group_limit",
            Self::Limit => "limit",
        }
    }
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

/// Keeps per client what its requests lack. One without demand clears its client's entries.
pub(crate) fn record<R>(
    draft: &mut Draft,
    state: &State,
    calls: &[Call],
    admitted: &[Result<(), R>],
    lacking: &BTreeMap<usize, Vec<Lacking>>,
) {
    let mut by_client = BTreeMap::<&ClientId, BTreeMap<Group, Lacking>>::new();
    for (at, call) in calls.iter().enumerate().filter(|(at, call)| call.asks && admitted[*at].is_ok()) {
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
    mark_all(draft, state, lacking);
}

/// Outside of a round: marks end that came from demand which nobody states any more.
pub(crate) fn end_marks(draft: &mut Draft, state: &State) {
    if draft.marks_may_end {
        let marks = marks(draft, state);
        draft.semaphore.contended_until = marks.key;
        mark_groups(draft, &marks);
    }
}

/// Until when demand counts as blocked that others or clients which were not heard have stated.
fn marks(draft: &Draft, state: &State) -> Contended {
    let mut marks = state.contended_elsewhere.clone();
    for client in draft.clients.values() {
        let Some(until) = client.blocked_at.map(|at| at + BLOCKED_LIFETIME) else { continue };
        for lacking in client.blocked.iter().map(|entry| &entry.lacking) {
            match lacking.reason {
                Reason::Limit => marks.key = marks.key.max(Some(until)),
                Reason::GroupLimit => {
                    let mark = marks.groups.entry(lacking.group.clone()).or_insert(until);
                    *mark = until.max(*mark);
                }
                Reason::Paused | Reason::NotPermitted | Reason::LimitResolutionError => {}
            }
        }
    }
    marks.key = marks.key.filter(|until| *until > draft.now);
    marks.groups.retain(|_, until| *until > draft.now);
    marks
}

fn mark_all(draft: &mut Draft, state: &State, lacking: &BTreeMap<usize, Vec<Lacking>>) {
    let mut marks = marks(draft, state);
    let until = draft.now + BLOCKED_LIFETIME;
    for lacks in lacking.values().flatten() {
        match lacks.reason {
            Reason::Limit => marks.key = Some(until),
            Reason::GroupLimit => _ = marks.groups.insert(lacks.group.clone(), until),
            Reason::Paused | Reason::NotPermitted | Reason::LimitResolutionError => {}
        }
    }
    let unresolved = state.policy.as_ref().is_some_and(|policy| policy.limit.is_none());
    draft.semaphore.contended_until = if unresolved { state.semaphore.contended_until } else { marks.key };
    mark_groups(draft, &marks);
}

fn mark_groups(draft: &mut Draft, marks: &Contended) {
    for (group, usage) in draft.groups.iter_mut().filter(|(_, usage)| !usage.unresolved) {
        let until = marks.groups.get(group).copied();
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
