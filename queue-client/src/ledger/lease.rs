//! The marks of one lease: what is undrawn, what runs, what the holder has heard, and how long it is trusted.
//!
//! Authoritative for how many permits of a lease there are to draw while it is not in a fund (`fund.rs`). Not
//! authoritative for who gets them (`draw.rs`) or for when something is said (`speak.rs`).
//!
//! Of its permits each is undrawn, or runs, or has come back, and moves only that way. So `drawn` and `released` of any
//! report only rise, and `drawn - released` is what runs at that moment.
//!
//! A lease is drawn from until it is stopped, or not trusted any longer: until `base + ttl - margin` on the client's own
//! clock, where `base` is when a call that brought or reported it was sent, plus what the holder held the call. That
//! bound is watched by a timer, not at each draw, and that is enough. A holder whose client is silent for a ttl only
//! *retires* the lease, and counts it whole until the client itself says `stopped`; so a draw that comes late, because a
//! timer was late or a clock stood still, is of a permit that is counted. The bound keeps clients from living long on
//! what the holder wants back.

use std::sync::Arc;

use queue_wire::{COUNT_MAX, LeaseReport, LeaseVerdict};

use super::BlockId;
use super::fund::{Counts, Fund, Ticket};
use super::patience::{HEARTBEAT_MIN_MS, TTL_MAX_MS};
use super::tally::Tally;

/// A lease that was reported is reported again after this part of its ttl, as long as no answer comes.
const SAY_AGAIN_AFTER: u64 = 8;
/// The last part of the ttl in which nothing is drawn.
const MARGIN: u64 = 10;
const MARGIN_MIN_MS: u64 = 100;

/// What is known of the call that a verdict answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told {
    pub(super) number: u64,
    /// When the holder answered, or earlier; `None` when it is not known when the call was sent.
    pub(super) at: Option<u64>,
    pub(super) parked: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Lease {
    pub(super) group: String,
    pub(super) ticket: Ticket,
    pub(super) round: u64,
    permits: u64,
    /// As long as it is in no fund.
    counts: Counts,
    fund: Option<Arc<Fund>>,
    /// Drawn and released, as a reply has shown them.
    heard: (u64, u64),
    /// And as they have been counted.
    tallied: (u64, u64),
    stopped: bool,
    /// The first call that said so, and whether a reply has confirmed it.
    stop_said_in: Option<u64>,
    stop_heard: bool,
    /// The holder wants to hear of releases at once.
    pub(super) contended: bool,
    /// The last call before it was known; a reply to a later one has a verdict of it only if that call reported it.
    since: u64,
    base: u64,
    ttl: u64,
    said_at: Option<u64>,
    lapsed: bool,
}

impl Lease {
    /// A lease that a reply brought; `None` if its size or group is missing.
    pub(super) fn taken_up(verdict: &LeaseVerdict, ticket: Ticket, since: u64, told: Told) -> Option<Self> {
        let permits = verdict.permits?.min(COUNT_MAX);
        // Nothing of it runs here: what was drawn before has come back.
        let undrawn = permits.saturating_sub(verdict.drawn.unwrap_or(0));
        Some(Self {
            group: verdict.group.clone()?,
            ticket,
            round: verdict.round?,
            permits,
            counts: Counts { undrawn, running: 0 },
            fund: None,
            heard: (verdict.drawn.unwrap_or(0).min(permits), verdict.released.unwrap_or(0).min(permits)),
            tallied: (0, 0),
            stopped: false,
            stop_said_in: None,
            stop_heard: false,
            contended: false,
            since,
            base: told.at.unwrap_or(0),
            ttl: told.at.and(verdict.ttl_ms).unwrap_or(0).min(TTL_MAX_MS),
            said_at: None,
            lapsed: told.at.is_none(),
        })
    }

    /// Of so many items that an earlier process started on permits of this lease, those that the holder counts. Which
    /// permits they had is not known; as many are drawn as must be, for what runs and what has come back.
    pub(super) fn adopt(&mut self, items: u64) -> u64 {
        let (drawn, released) = self.heard;
        let running = items.min(self.permits.saturating_sub(released));
        let undrawn = self.permits.saturating_sub(drawn.max(released + running));
        self.counts = Counts { undrawn, running };
        self.tally(); // none of that is news
        running
    }

    /// Moves forward what the holder is known to have heard; true if capacity came back to it by that.
    pub(super) fn hear(&mut self, verdict: &LeaseVerdict, told: Told) -> bool {
        let (before, stop_heard) = (self.heard, self.stop_heard);
        let (drawn, released) = (verdict.drawn.unwrap_or(0), verdict.released.unwrap_or(0));
        self.heard = (before.0.max(drawn.min(self.drawn())), before.1.max(released.min(self.released())));
        self.stop_heard |= self.stop_said_in.is_some_and(|first| told.number >= first);
        self.heard.1 > before.1 || (self.stop_heard && !stop_heard)
    }

    /// The holder said that it is active, and what is left of its ttl. Only a call that reported it prolongs it.
    pub(super) fn renew(&mut self, left: Option<u64>, told: Told) {
        let (Some(at), Some(left)) = (told.at, left.map(|left| left.min(TTL_MAX_MS))) else { return };
        if told.number <= self.since {
            return;
        }
        // What a parked call reported was taken in when it came, and others may have reported since: its reply says
        // when the last of them did.
        let ttl = if told.parked { self.ttl } else { left };
        let base = at.saturating_add(left).saturating_sub(ttl);
        if base >= self.base {
            (self.base, self.ttl, self.lapsed) = (base, ttl, false);
        }
    }

    /// When it has to be reported, unless an answer comes before: at half its ttl, and soon again.
    pub(super) fn report_at(&self) -> u64 {
        let again = (self.ttl / SAY_AGAIN_AFTER).max(HEARTBEAT_MIN_MS);
        let again = self.said_at.map_or(0, |said_at| said_at.saturating_add(again));
        self.base.saturating_add(self.ttl / 2).max(again)
    }

    /// When it is not drawn from any longer.
    pub(super) fn trusted_until(&self) -> u64 {
        let margin = (self.ttl / MARGIN).max(MARGIN_MIN_MS);
        self.base.saturating_add(self.ttl).saturating_sub(margin)
    }

    /// It is not drawn from until a reply renews it.
    pub(super) fn lapse(&mut self) {
        self.take_out();
        self.lapsed = true;
    }

    /// Nothing is drawn from it any more, whatever is said and heard.
    pub(super) fn stop(&mut self) {
        self.take_out();
        self.stopped = true;
    }

    pub(super) fn put_in(&mut self, fund: Arc<Fund>) {
        fund.put_in(self.ticket, self.counts);
        self.fund = Some(fund);
    }

    pub(super) fn take_out(&mut self) {
        if let Some(fund) = self.fund.take() {
            self.counts = fund.take_out();
        }
    }

    /// A permit is handed out. It must be in no fund.
    pub(super) fn take(&mut self) {
        self.counts.undrawn -= 1;
        self.counts.running += 1;
    }

    /// The item of a permit has ended. It must be in no fund.
    pub(super) fn release(&mut self) {
        self.counts.running -= 1;
    }

    pub(super) fn fund(&self) -> Option<&Arc<Fund>> {
        self.fund.as_ref()
    }

    pub(super) fn counts(&self) -> Counts {
        self.fund.as_ref().map_or(self.counts, |fund| fund.counts())
    }

    pub(super) fn is_live(&self) -> bool {
        !self.stopped
    }

    pub(super) fn is_lapsed(&self) -> bool {
        self.lapsed
    }

    /// Permits that can't be drawn now and may be later, or that can and are in no fund.
    pub(super) fn reserved(&self) -> u64 {
        if self.stopped || self.fund.is_some() { 0 } else { self.counts.undrawn }
    }

    /// What was drawn and released since the last time.
    pub(super) fn tally(&mut self) -> Tally {
        let Counts { undrawn, running } = self.counts();
        let drawn = self.permits - undrawn;
        let (drawn_before, released_before) = std::mem::replace(&mut self.tallied, (drawn, drawn - running));
        Tally { drawn: drawn - drawn_before, released: drawn - running - released_before }
    }

    fn drawn(&self) -> u64 {
        self.permits - self.counts().undrawn
    }

    fn released(&self) -> u64 {
        let Counts { undrawn, running } = self.counts();
        self.permits - undrawn - running
    }

    /// Whether the holder has to be told something soon. While the key is not contended nobody needs what comes back
    /// from a lease: it is said with whatever is said next, at half the ttl at the latest.
    pub(super) fn due(&self) -> bool {
        let prompt = self.stopped || self.contended;
        (self.stopped && !self.stop_heard) || (prompt && self.heard.1 < self.released())
    }

    /// Permits that nobody uses, which the holder may still count.
    pub(super) fn unconfirmed(&self) -> u64 {
        let (drawn, released) = self.heard;
        let counted = if self.stop_heard { drawn } else { self.permits };
        counted.saturating_sub(released + self.counts().running)
    }

    /// Whether there is anything that the holder has not heard.
    pub(super) fn has_news(&self) -> bool {
        let Counts { undrawn, running } = self.counts();
        self.due() || self.heard != (self.permits - undrawn, self.permits - undrawn - running)
    }

    /// A report in call `number`. From a stopped lease nothing can be drawn any more when this says so.
    pub(super) fn report(&mut self, id: &BlockId, number: u64, said_at: Option<u64>) -> LeaseReport {
        self.said_at = said_at.or(self.said_at);
        if self.stopped {
            self.stop_said_in.get_or_insert(number);
        }
        let Counts { undrawn, running } = self.counts();
        let drawn = self.permits - undrawn;
        LeaseReport { id: id.as_str().to_owned(), drawn, released: drawn - running, stopped: self.stopped }
    }
}
