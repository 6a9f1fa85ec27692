//! How long the ledger waits for an answer before it says the same again.
//!
//! Authoritative for deadlines of speech. Not authoritative for addresses (`addresses.rs`): a call that is made while an
//! earlier one is open goes to another address, and the earlier one may still be answered.
//!
//! Each deadline follows from a promise of the holder:
//!
//! | what is said | promise | said first | said again, as long as no answer comes |
//! | --- | --- | --- | --- |
//! | heartbeat | a client is settled no sooner than 3 × `report_within_ms` after it was heard | `report_within_ms` after it was heard | after 1/8, 2/8, 4/8 of `report_within_ms` |
//! | report of a lease | `ttl_ms` | at half of it | each eighth of it (`lease.rs`) |
//! | claim | `claim_within_ms` | at once | after 1/8, 2/8, 4/8 of it |
//! | release | none | at once | after [`PATIENCE_MAX_MS`] |
//! | demand | none | at once | when the transport finds no sign of life at the address |
//!
//! So four calls fit into each promise. A pause doubles, so that slow holders are not asked the same ever more often, and
//! is at most [`PATIENCE_MAX_MS`]. A quarter of each promise bounds the pause after a call that *failed*: a holder that
//! asks to be left alone, or a long outage, does not delay what keeps a promise.
//!
//! A repetition is a call with a number of its own. It carries the same marks or higher ones, and a holder takes the
//! highest of each mark, so it does not matter which of the calls arrive, in which order and how late. The ledger relies
//! on a message only when it has a 200 to it.

use super::{BlockId, Grant, Ledger};

/// An answer is awaited for at least this long, however short a promise is.
pub const PATIENCE_MIN_MS: u64 = 100;
/// And for at most this long, where no promise is shorter.
pub const PATIENCE_MAX_MS: u64 = 2_000;
/// The part of a promise after which a call that is not answered is made again, and that after which one that failed is.
const UNANSWERED: u64 = 8;
const FAILED: u64 = 4;

/// A holder that wants to hear from its clients more often than this is not obeyed.
pub(super) const HEARTBEAT_MIN_MS: u64 = 100;
/// A client that holds anything is heard this often, so that it never counts as unheard, which takes ten minutes.
pub(super) const HEARTBEAT_MAX_MS: u64 = 300_000;
/// The longest time to claim a grant that a policy may give.
pub(super) const CLAIM_WITHIN_MAX_MS: u64 = 86_400_000;
/// The longest ttl of a lease that a policy may give.
pub(super) const TTL_MAX_MS: u64 = 30 * 86_400_000;
/// A holder keeps no call for longer than this.
pub(super) const HELD_MAX_MS: u64 = 300_000;

impl Ledger {
    /// How long the sync under way is waited for before it is said again.
    pub(super) fn patience(&self) -> u64 {
        let first = self.promised().map_or(PATIENCE_MAX_MS, |promise| promise / UNANSWERED);
        let doubled = 1_u64.checked_shl(self.sync.repeats).unwrap_or(u64::MAX);
        first.saturating_mul(doubled).clamp(PATIENCE_MIN_MS, PATIENCE_MAX_MS)
    }

    /// When the pause after a sync that failed ends for what keeps a promise.
    pub(super) fn pause_ends_at(&self) -> u64 {
        let not_before = self.sync.not_before;
        match (self.promised(), self.sync.sent_at) {
            (Some(promise), Some(sent_at)) => {
                not_before.min(sent_at.saturating_add((promise / FAILED).max(PATIENCE_MIN_MS)))
            }
            _ => not_before,
        }
    }

    /// The shortest promise that a sync has to keep.
    fn promised(&self) -> Option<u64> {
        let heard = self.holds_something().then_some(self.report_within);
        let claimed = self.claims.first().map(|(within, _)| *within);
        heard.into_iter().chain(claimed).min()
    }

    /// Keeps the set of unconfirmed claims, by how long the holder waits for each.
    pub(super) fn note_claim(&mut self, id: &BlockId, before: Option<&Grant>, after: Option<&Grant>) {
        if let Some(within) = before.and_then(Grant::claim_within) {
            self.claims.remove(&(within, id.clone()));
        }
        if let Some(within) = after.and_then(Grant::claim_within) {
            self.claims.insert((within, id.clone()));
        }
    }

    /// An earlier call was answered while a later one that says the same is under way: where that leaves nothing to say,
    /// nobody waits for the later one.
    pub(super) fn answered_late(&mut self) {
        let unsaid = !self.due.is_empty() || !self.due_leases.is_empty() || !self.excess.is_empty();
        if !unsaid && !self.tells_all && self.unanswered.is_none() {
            let repeated = self.sync.clear();
            self.given_up.extend(repeated);
        }
    }

    /// A call that was sent at `sent_at` was heard and answered: when the next heartbeat is due.
    pub(super) fn heard(&mut self, told_at: Option<u64>, within: Option<u64>, newest: bool) {
        let within = within.unwrap_or(HEARTBEAT_MAX_MS).clamp(HEARTBEAT_MIN_MS, HEARTBEAT_MAX_MS);
        let next = told_at.map(|told_at| told_at.saturating_add(within));
        if newest {
            (self.report_within, self.heartbeat_at) = (within, next);
        } else {
            self.heartbeat_at = self.heartbeat_at.max(next);
        }
    }
}
