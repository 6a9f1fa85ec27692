//! Step 2: what clients report. Marks only move forward and are clamped, so a lost, repeated or reordered report never
//! frees the same capacity twice.

use crate::answers::Refused;
use crate::call::{Call, GrantReport};
use crate::draft::Draft;
use crate::names::{BlockId, Micros, Permits};
use crate::state::Kind;
use std::collections::BTreeMap;

/// How far `seen` may be ahead of both the key's round and the clock: one day, in rounds (microseconds).
const SEEN_AHEAD_MAX: u64 = 86_400_000_000;
/// A client's `last_seen` is written when it is older than this.
const LAST_SEEN_RESOLUTION: Micros = 20_000_000;

/// Applies the calls' reports in their order. Says for each call whether it is admitted; reports of a refused one
/// are not applied.
pub(crate) fn apply(draft: &mut Draft, calls: &[Call]) -> Vec<Result<(), Refused>> {
    let clock = u64::try_from(draft.now.0).unwrap_or(0);
    let seen_max = draft.semaphore.round.max(clock).saturating_add(SEEN_AHEAD_MAX);
    calls
        .iter()
        .map(|call| {
            if call.seen > seen_max {
                return Err(Refused::SeenTooFarAhead { max: seen_max });
            }
            draft.semaphore.round = draft.semaphore.round.max(call.seen);
            touch_client(draft, call);
            for (id, report) in merged(&call.grants) {
                apply_grant(draft, call, id, report);
            }
            Ok(())
        })
        .collect()
}

fn touch_client(draft: &mut Draft, call: &Call) {
    let Some(client) = draft.clients.get_mut(&call.client) else { return };
    if draft.now - client.last_seen > LAST_SEEN_RESOLUTION {
        client.last_seen = draft.now;
        draft.changed_clients.insert(call.client.clone());
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Marks {
    pub(crate) claimed: Permits,
    pub(crate) released: Permits,
}

/// The entries of one block within one message, merged by maximum.
fn merged(reports: &[GrantReport]) -> BTreeMap<BlockId, Marks> {
    let mut merged = BTreeMap::<BlockId, Marks>::new();
    for report in reports {
        if let Some(id) = BlockId::parse(&report.id) {
            let marks = merged.entry(id).or_default();
            marks.claimed = marks.claimed.max(report.claimed);
            marks.released = marks.released.max(report.released);
        }
    }
    merged
}

fn apply_grant(draft: &mut Draft, call: &Call, id: BlockId, report: Marks) {
    let own = draft.block(id).is_some_and(|block| block.client == call.client && block.kind == Kind::Grant);
    if !own {
        return;
    }
    draft.change(id.slot, |grant| {
        grant.used = grant.used.max(report.claimed.min(grant.permits));
        let not_honoured = (report.claimed - grant.used).max(0);
        grant.released = grant.released.max((report.released - not_honoured).min(grant.used));
    });
}
