//! The marks of one grant: what the holder has confirmed, what came back, what runs.
//!
//! Authoritative for how many permits of a grant may be handed out. Not authoritative for who gets them (`queue.rs`).
//!
//! Every report claims the whole grant: what no waiter needs is released in the same report. So `permits` is both the
//! size and the claimed mark, and `released` the other mark. The two rules that keep a running item counted:
//!
//! - a permit is spare only if `confirmed - released - running` says so, with everything released so far, told or not,
//!   held against what is confirmed;
//! - `permits - released` never falls below what runs, whatever of it the holder honoured.

use queue_wire::{COUNT_MAX, GrantReport, GrantVerdict, Status};

use super::BlockId;
use super::patience::CLAIM_WITHIN_MAX_MS;

#[derive(Debug, Clone)]
pub(super) struct Grant {
    pub(super) group: String,
    /// Permits of the grant, and the claimed mark of every report.
    permits: u64,
    /// Claims that a reply has confirmed.
    confirmed: u64,
    /// The released mark of the next report.
    released: u64,
    /// The released mark that a reply has shown.
    heard: u64,
    /// Permits with an item, or on their way to a waiter.
    running: u64,
    /// How long the holder waits for claims.
    claim_within: u64,
}

impl Grant {
    /// A grant that a reply brought; `None` if nothing of it can be used, or its size or group is missing or impossible.
    pub(super) fn taken_up(verdict: &GrantVerdict) -> Option<Self> {
        let mut grant = Self {
            group: verdict.group.clone()?,
            permits: verdict.permits.filter(|permits| *permits <= COUNT_MAX)?,
            confirmed: 0,
            released: verdict.released.unwrap_or(0),
            heard: verdict.released.unwrap_or(0),
            running: 0,
            claim_within: verdict.claim_within_ms.unwrap_or(CLAIM_WITHIN_MAX_MS).min(CLAIM_WITHIN_MAX_MS),
        };
        (grant.released <= grant.permits && grant.hear(verdict)).then_some(grant)
    }

    /// Of so many items that an earlier process started on permits of this grant, those that the holder counts.
    pub(super) fn adopt(&mut self, items: u64) -> u64 {
        self.running = items.min(self.permits - self.released);
        self.running
    }

    /// Moves the marks forward by what a reply says; false when nothing of the grant counts any more.
    pub(super) fn hear(&mut self, verdict: &GrantVerdict) -> bool {
        let claimed = verdict.claimed.unwrap_or(0).min(self.permits);
        let released = verdict.released.unwrap_or(0);
        match verdict.status {
            Status::Settled | Status::NotFound => return false,
            Status::Expired => {
                if self.confirmed < self.permits {
                    self.expire(claimed);
                }
                self.heard =
                    self.heard.max(released.saturating_add(self.permits - claimed).min(self.released));
            }
            Status::Active | Status::Retired | Status::Other => {
                self.confirmed = self.confirmed.max(claimed);
                self.heard = self.heard.max(released.min(self.released));
            }
        }
        true
    }

    /// The claims beyond `claimed` were not and will not be honoured: they count as released, which is what the holder
    /// takes a release for first. What was not surely spare before goes back with them.
    fn expire(&mut self, claimed: u64) {
        let spare = claimed.saturating_sub(self.released + self.running);
        self.released = self.permits - self.running - spare;
        self.confirmed = self.permits;
    }

    /// Confirmed permits that nobody uses.
    pub(super) fn spare(&self) -> u64 {
        self.confirmed.saturating_sub(self.released + self.running)
    }

    /// Permits that waiters have or will have, once they are confirmed.
    pub(super) fn covered(&self) -> u64 {
        self.permits - self.released - self.running
    }

    pub(super) fn running(&self) -> u64 {
        self.running
    }

    /// Permits that the holder has back.
    pub(super) fn returned(&self) -> u64 {
        self.heard
    }

    /// Permits that nobody uses, which the holder may still count.
    pub(super) fn unconfirmed(&self) -> u64 {
        (self.permits - self.heard).saturating_sub(self.running)
    }

    /// Whether the holder has to be told something.
    pub(super) fn due(&self) -> bool {
        self.confirmed < self.permits || self.heard < self.released
    }

    /// How long the holder waits for claims that it has not confirmed, if there are any.
    pub(super) fn claim_within(&self) -> Option<u64> {
        (self.confirmed < self.permits).then_some(self.claim_within)
    }

    /// A spare permit is handed out.
    pub(super) fn take(&mut self) {
        debug_assert!(self.spare() > 0);
        self.running += 1;
    }

    /// A permit that was handed out has not been used for an item.
    pub(super) fn put_back(&mut self) {
        debug_assert!(self.running > 0);
        self.running -= 1;
    }

    /// The item of a permit has ended.
    pub(super) fn release(&mut self) {
        self.put_back();
        self.released += 1;
    }

    /// Gives back up to `most` permits that nobody uses.
    pub(super) fn give_back(&mut self, most: u64) {
        self.released += most.min(self.covered());
    }

    pub(super) fn report(&self, id: &BlockId) -> GrantReport {
        GrantReport { id: id.as_str().to_owned(), claimed: self.permits, released: self.released }
    }
}
