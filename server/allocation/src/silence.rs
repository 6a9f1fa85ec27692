//! Clients that are silent for longer than the policy allows are declared dead: what they hold comes back, and their
//! generation is fenced.
//!
//! Silence counts from the latest of: the client's last message, the last moment at which a call of it was open at any
//! holder, since when holders could hear clients without a break, and since when the policy says so. The key's row says when to look ([`Semaphore::silence_due`]), so a transaction
//! before that looks at nobody.

use crate::call::Call;
use crate::draft::{Draft, Usage};
use crate::fencing::fence;
use crate::fingerprint;
use crate::names::{ClientId, DbTime, Micros};
use crate::plan::{Act, Work};
use crate::state::{Client, Policy, Semaphore, State};
use std::collections::{BTreeMap, BTreeSet};

/// A client's `last_seen` is written when it is older than this, unless silence is counted: 20 s.
const LAST_SEEN_RESOLUTION: Micros = 20_000_000;
/// Holders that were all away for no longer than this may not have noticed: three of their heartbeats, 3 s.
const UNNOTICED_OUTAGE: Micros = 3_000_000;
/// Where clients can't be heard now, silence is looked at again after this: 5 s.
const LOOK_AGAIN_AFTER: Micros = 5_000_000;

/// How late a client's `last_seen` may be, under a policy that declares silent clients dead after `settle_after`.
pub fn last_seen_resolution(settle_after: Option<Micros>) -> Micros {
    settle_after.map_or(LAST_SEEN_RESOLUTION, |after| LAST_SEEN_RESOLUTION.min(after / 10))
}

/// A client that was last seen this long ago is silent for `settle_after`, however late that was written, and although
/// nobody may have listened for a moment.
fn patience(settle_after: Micros) -> Micros {
    settle_after + last_seen_resolution(Some(settle_after)) + UNNOTICED_OUTAGE
}

/// Whether a transaction has to look for silent clients: those that hold something and were last seen no later than
/// the moment returned.
pub fn silent_since(
    work: Work,
    now: DbTime,
    semaphore: &Semaphore,
    policy: Option<&Policy>,
) -> Option<DbTime> {
    let after = policy?.settle_after.filter(|after| semaphore.settle_after == Some(*after))?;
    let due = work != Work::Sync && semaphore.silence_due.is_some_and(|due| due <= now);
    due.then(|| now - patience(after))
}

/// Clients of which all open blocks have to be read and are not: they are taken over, or were silent, or say all that
/// they hold and there is something else.
pub fn must_read_all_blocks(state: &State, calls: &[Call]) -> BTreeSet<ClientId> {
    let concerned = |call: &&Call| {
        let taken_over = |client: &Client| client.is_taken_over_by(&call.from);
        call.all || state.clients.get(&call.client).is_some_and(taken_over)
    };
    let calling = calls.iter().filter(concerned).map(|call| &call.client);
    let silent = state.silence.iter().flat_map(|silence| &silence.clients);
    let mut unread: BTreeSet<&ClientId> = calling.chain(silent).collect();
    if unread.is_empty() {
        return BTreeSet::new();
    }
    let mut known = BTreeMap::<_, u64>::new();
    for block in state.blocks.values() {
        let sum = known.entry(&block.client).or_default();
        *sum = sum.wrapping_add(fingerprint::of_block(block));
    }
    let knows_all = |id: &ClientId| {
        let sum = known.get(id).copied().unwrap_or(0);
        state.clients.get(id).is_none_or(|client| client.open_blocks == sum)
    };
    unread.retain(|id| !knows_all(id));
    unread.into_iter().cloned().collect()
}

/// Notes that a client is heard now, where what is noted of it is too old.
pub(crate) fn hear(draft: &mut Draft, policy: Option<&Policy>, id: &ClientId) {
    let Some(client) = draft.clients.get_mut(id) else { return };
    let resolution = last_seen_resolution(policy.and_then(|policy| policy.settle_after));
    if draft.now - client.last_seen > resolution {
        client.last_seen = draft.now;
        draft.changed_clients.insert(id.clone());
    }
}

/// Declares dead who was silent for too long. A client that speaks in this transaction, or has a call open at this
/// holder, is not silent; other holders have noted their open calls.
pub(crate) fn settle(draft: &mut Draft, state: &State) {
    let after = state.policy.as_ref().and_then(|policy| policy.settle_after);
    let Some((silence, after)) = state.silence.as_ref().zip(after) else { return };
    let Some(serving_since) = silence.serving_since else {
        draft.semaphore.silence_due = Some(draft.now + LOOK_AGAIN_AFTER);
        return;
    };
    let counted_from = draft.semaphore.settle_after_since.map_or(serving_since, |at| at.max(serving_since));
    let due = |last_seen: DbTime| last_seen.max(counted_from) + patience(after);
    state.open_calls.iter().for_each(|id| hear(draft, state.policy.as_ref(), id));
    let mut next = silence.next_heard.map(due);
    for id in &silence.clients {
        let Some(due) = draft.clients.get(id).map(|client| due(client.last_seen)) else { continue };
        if due <= draft.now {
            declare_dead(draft, id);
        } else {
            next = Some(next.map_or(due, |next| next.min(due)));
        }
    }
    draft.semaphore.silence_due = Some(next.unwrap_or(draft.now + patience(after)));
}

fn declare_dead(draft: &mut Draft, id: &ClientId) {
    let slots = draft.slots_of(id);
    let usage: Usage = slots.into_iter().map(|slot| draft.write_off(slot)).sum();
    let lowest = draft.clients.get(id).map_or(0, Client::lowest_admitted);
    fence(draft, id, lowest);
    draft.record(id, Act::SettleSilent, usage);
}

/// Notes when to look for silent clients next.
pub(crate) fn schedule(draft: &mut Draft, policy: Option<&Policy>) {
    let after = policy.and_then(|policy| policy.settle_after);
    let now = draft.now;
    let semaphore = &mut draft.semaphore;
    if semaphore.settle_after != after {
        semaphore.settle_after = after;
        semaphore.settle_after_since = Some(now);
        semaphore.silence_due = None;
    }
    let counts = semaphore.grants + semaphore.leases > 0;
    semaphore.silence_due = match after.filter(|_| counts) {
        Some(after) => semaphore.silence_due.or(Some(now + patience(after))),
        None => None,
    };
}
