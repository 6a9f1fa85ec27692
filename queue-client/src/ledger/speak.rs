//! When the ledger has something to say, and the messages that say it.
//!
//! At most one request waits, stating demand, and one sync is under way, bringing claims and releases. While a sync is
//! under way what comes up gathers for the next one. A sync that is not answered in time is said again (`patience.rs`), and
//! a lease that has to be reported doesn't wait for an answer that may be lost; a waiting request is superseded when demand has changed. And while there is a lease one more sync is
//! *parked*: the holder answers it when something has changed for this client, so that a lease that others lack comes
//! back within a round trip. Everything that may be unsaid is derived from the marks, so a lost message is said again
//! without being remembered.

use std::collections::BTreeMap;

use queue_wire::{
    COUNT_MAX, DEMAND_MAX, Demand, GrantReport, LeaseReport, Message, OLDEST_AGE_MAX_MS, REPORTS_MAX,
};

use super::{BlockId, Grant, Ledger};
use crate::transport::Endpoint;

/// A waiting request is left alone for this long before a newer one supersedes it, so that a burst of waiters
/// becomes one.
pub const SUPERSEDE_AFTER_MS: u64 = 5;
/// How long a sync is parked: less than the minute after which proxies commonly give an idle call up.
pub const PARK_MS: u64 = 50_000;
/// How long a request is parked whose demand gets nothing, at most.
pub const REQUEST_PARK_MS: u64 = 30_000;

/// And for this long as long as the one that was superseded before is not answered, to keep pace with the network.
const SUPERSEDE_UNANSWERED_AFTER_MS: u64 = 1000;
/// Parked syncs are sent no closer than this, and when the holder doesn't park them, no closer than that.
const PARK_PERIOD_MS: u64 = 100;
const PARK_UNPARKED_PERIOD_MS: u64 = 1000;

/// One message to send, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Names the call in [`Ledger::replied`], [`Ledger::failed`] and [`Ledger::refused`].
    pub number: u64,
    /// Request or sync.
    pub endpoint: Endpoint,
    /// The body.
    pub message: Message,
}

impl Call {
    /// Whether the holder keeps it as long as it has no news.
    pub fn is_parked(&self) -> bool {
        self.message.wait_ms > 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Sync,
    Parked,
}

/// A call that was under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) kind: Kind,
    pub(super) sent_at: u64,
    /// No later one of its kind has been sent.
    pub(super) newest: bool,
}

/// Calls of one kind: the newest that is under way, as number and time; earlier ones that still are; the end of the
/// pause after a failure.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) in_flight: Option<(u64, u64)>,
    earlier: BTreeMap<u64, u64>,
    /// How often the newest has been said before, without an answer.
    pub(super) repeats: u32,
    /// When the latest was sent.
    pub(super) sent_at: Option<u64>,
    pub(super) not_before: u64,
}

impl Lane {
    fn send(&mut self, number: u64, now_ms: u64) {
        let unanswered = self.in_flight.replace((number, now_ms));
        self.repeats = if unanswered.is_some() { self.repeats.saturating_add(1) } else { 0 };
        self.earlier.extend(unanswered);
        self.sent_at = Some(now_ms);
    }

    /// The call after `number` that is under way and was sent first.
    pub(super) fn after(&self, number: u64) -> Option<u64> {
        let newest = self.in_flight.map(|(newest, _)| newest);
        let later = self.earlier.range(number + 1..).next().map(|(earlier, _)| *earlier);
        later.or(newest.filter(|newest| *newest > number))
    }

    pub(super) fn under_way(&self) -> impl Iterator<Item = u64> {
        self.earlier.keys().copied().chain(self.in_flight.map(|(number, _)| number))
    }

    /// Nothing is under way. Returns what was.
    pub(super) fn clear(&mut self) -> Vec<u64> {
        let Self { in_flight, mut earlier, .. } = std::mem::take(self);
        earlier.extend(in_flight);
        earlier.into_keys().collect()
    }
}

impl Ledger {
    /// The next thing to send now, if any; ask until there is none. A request supersedes the one under way.
    pub fn next_call(&mut self, now_ms: u64) -> Option<Call> {
        self.lapse(now_ms);
        if self.sync_at().is_some_and(|at| at <= now_ms) {
            return Some(self.sync(now_ms));
        }
        if self.park_at().is_some_and(|at| at <= now_ms) {
            return Some(self.park(now_ms));
        }
        self.request_at().is_some_and(|at| at <= now_ms).then(|| self.request(now_ms))
    }

    /// A call whose answer is not waited for any more: it may be dropped, and needs no event.
    pub fn given_up(&mut self) -> Option<u64> {
        self.given_up.pop()
    }

    /// When there is something to do if no event comes before; a time in the past is now.
    pub fn wake_at(&self) -> Option<u64> {
        let lapse_at = self.trusted.first().map(|(at, _)| *at);
        [self.sync_at(), self.park_at(), self.request_at(), lapse_at].into_iter().flatten().min()
    }

    /// When a report is due that keeps something alive: of a lease, or of a client that must not seem silent.
    pub fn heartbeat_at(&self) -> Option<u64> {
        let idle = self.sync.in_flight.is_none();
        let heartbeat = self.heartbeat_at.filter(|_| idle && self.holds_something());
        let heartbeat = heartbeat.map(|at| at.max(self.pause_ends_at()));
        let beat = self.beats.first().map(|(at, _)| *at);
        [beat, heartbeat].into_iter().flatten().min().filter(|_| !self.fenced)
    }

    pub(super) fn holds_something(&self) -> bool {
        !self.grants.is_empty() || !self.leases.is_empty()
    }

    fn sync_at(&self) -> Option<u64> {
        if self.fenced {
            return None;
        }
        let beat = self.beats.first().map(|(at, _)| *at);
        if let Some((_, sent_at)) = self.sync.in_flight {
            let again = sent_at.saturating_add(self.patience());
            return Some(beat.map_or(again, |beat| beat.min(again)));
        }
        let asked = self.request.in_flight.map(|(number, _)| number);
        let asks = self.request_at().is_some();
        let unheard = self.unanswered.is_some_and(|first| !asks && asked.is_none_or(|asked| asked < first));
        let unsaid = !self.due.is_empty() || !self.due_leases.is_empty() || !self.excess.is_empty();
        let unsaid = unsaid || unheard || self.has_to_tell_all();
        let heartbeat = self.heartbeat_at.filter(|_| self.holds_something());
        let overdue = self.overdue.first().map(|(at, _)| *at);
        let other = [unsaid.then_some(0), heartbeat, overdue].into_iter().flatten().min();
        // A lease is worth a call before the pause ends.
        [beat, other.map(|at| at.max(self.pause_ends_at()))].into_iter().flatten().min()
    }

    /// Somebody may hold something in this client's name that it does not know: it says so, whatever it waits for.
    pub(super) fn has_to_tell_all(&self) -> bool {
        let fits = self.grants.len() + self.leases.len() <= REPORTS_MAX;
        self.tell_all_now && self.seen > 0 && fits
    }

    fn park_at(&self) -> Option<u64> {
        let live = !self.beats.is_empty() || !self.overdue.is_empty();
        (!self.fenced && live && self.parked.in_flight.is_none()).then_some(self.parked.not_before)
    }

    fn request_at(&self) -> Option<u64> {
        if self.fenced {
            return None;
        }
        match self.request.in_flight {
            Some((_, sent_at)) => {
                let paced = !self.request.earlier.is_empty();
                let after = if paced { SUPERSEDE_UNANSWERED_AFTER_MS } else { SUPERSEDE_AFTER_MS };
                self.news.then(|| sent_at.saturating_add(after))
            }
            None if self.lacking.is_empty() && !self.stated => None,
            None if self.news => Some(self.request.not_before),
            None => Some(self.request.not_before.max(self.ask_again_at)),
        }
    }

    fn request(&mut self, now_ms: u64) -> Call {
        self.give_back_excess();
        let mut message = self.message();
        let parts = self.lacking.len().div_ceil(DEMAND_MAX);
        message.demand = self.demand(now_ms, parts);
        let news: Vec<BlockId> =
            self.leases.iter().filter(|(_, lease)| lease.has_news()).map(|(id, _)| id.clone()).collect();
        // Also when there is none: it says that this client can hold leases.
        let leases = self.lease_reports(news, None);
        message.grants = self.grant_reports(false, leases.len());
        message.leases = Some(leases);
        self.news = false;
        self.stated = !message.demand.is_empty();
        // While there is more to state than one message holds, none is kept: the other parts have their turns.
        message.wait_ms = if self.stated && parts == 1 { REQUEST_PARK_MS } else { 0 };
        self.request.send(self.last_call, now_ms);
        Call { number: self.last_call, endpoint: Endpoint::Request, message }
    }

    fn sync(&mut self, now_ms: u64) -> Call {
        self.give_back_excess();
        let mut message = self.message();
        let beats = self.beats.first().is_some_and(|(at, _)| *at <= now_ms);
        let beats = beats || self.overdue.first().is_some_and(|(at, _)| *at <= now_ms);
        // What was to tell all is not answered.
        self.tell_all |= self.sync.in_flight.is_some() && self.tells_all;
        let nothing_due = !beats && self.due.is_empty() && self.due_leases.is_empty();
        let fits = self.grants.len() + self.leases.len() <= REPORTS_MAX;
        let everything = nothing_due || (self.tell_all && fits);
        let leases = match (everything, beats) {
            (true, _) => self.leases.keys().cloned().collect(),
            (false, true) => self.live().chain(self.due_leases.iter().cloned()).collect(),
            (false, false) => self.due_leases.iter().cloned().collect(),
        };
        let leases = self.lease_reports(leases, Some(now_ms));
        message.grants = self.grant_reports(everything, leases.len());
        message.leases = (!leases.is_empty()).then_some(leases);
        if everything && fits {
            (self.tell_all, self.tell_all_now) = (false, false);
        }
        // A client that has seen nothing hears of all that it has.
        if everything && fits && self.seen > 0 {
            message.all = true;
            message.grants.get_or_insert_default();
            message.leases.get_or_insert_default();
        }
        self.tells_all = message.all;
        self.sync.send(self.last_call, now_ms);
        Call { number: self.last_call, endpoint: Endpoint::Sync, message }
    }

    fn park(&mut self, now_ms: u64) -> Call {
        let mut message = self.message();
        (message.wait_ms, message.known_state) = (PARK_MS, self.known_state.clone());
        let live = self.live().collect();
        message.leases = Some(self.lease_reports(live, None));
        self.parked.send(self.last_call, now_ms);
        Call { number: self.last_call, endpoint: Endpoint::Sync, message }
    }

    /// Leases that are not stopped. Those that must be reported come first, so that a full message is not due again.
    fn live(&self) -> impl Iterator<Item = BlockId> {
        self.beats.iter().chain(&self.overdue).map(|(_, id)| id.clone())
    }

    /// Reports in the call that is being made; `said_at` counts them as said.
    fn lease_reports(&mut self, leases: Vec<BlockId>, said_at: Option<u64>) -> Vec<LeaseReport> {
        let number = self.last_call;
        let mut reports = Vec::new();
        for id in leases.into_iter().take(REPORTS_MAX) {
            self.update_lease(&id, |lease| reports.push(lease.report(&id, number, said_at)));
        }
        reports
    }

    fn grant_reports(&self, all: bool, beside: usize) -> Option<Vec<GrantReport>> {
        let due = self.due.iter().filter_map(|id| self.grants.get_key_value(id));
        let most = REPORTS_MAX - beside;
        if all { reports(self.grants.iter(), most) } else { reports(due, most) }
    }

    fn message(&mut self) -> Message {
        self.last_call += 1;
        let mut message = Message::new(self.identity.client_id.as_str());
        message.process = Some(self.identity.process.clone());
        (message.generation, message.resume) = (self.lineage.generation, self.lineage.resume);
        message.call = Some(self.last_call);
        message.seen = self.seen;
        message
    }

    /// What each group lacks, oldest first, with true ages; of more `parts` than one, the one whose turn it is.
    fn demand(&self, now_ms: u64, parts: usize) -> Vec<Demand> {
        let lacking = self.lacking.iter().filter_map(|group| Some((group, self.queues.get(group)?)));
        let mut entries: Vec<_> = lacking
            .filter_map(|(group, queue)| Some((queue.lacking_since()?, group, queue.lack())))
            .collect();
        entries.sort();
        let part = self.demand_turn.checked_rem(parts).unwrap_or(0);
        let demand =
            entries.into_iter().skip(part * DEMAND_MAX).take(DEMAND_MAX).map(|(since, group, lack)| Demand {
                group: group.clone(),
                count: lack.min(COUNT_MAX),
                oldest_age_ms: now_ms.saturating_sub(since).min(OLDEST_AGE_MAX_MS),
            });
        demand.collect()
    }

    /// Permits that nobody needs are released in the report that claims them.
    fn give_back_excess(&mut self) {
        while let Some(group) = self.excess.first()
            && let Some(queue) = self.queues.get(group)
            && let Some(block) = queue.covering().cloned()
        {
            let excess = queue.excess();
            self.update(&block, |grant| grant.give_back(excess));
        }
    }

    /// A call of this number or later has to be answered.
    pub(super) fn answer_needed(&mut self, number: u64) {
        self.unanswered = Some(self.unanswered.map_or(number, |first| first.max(number)));
    }

    /// A parked call was answered: when the next one is sent.
    pub(super) fn park_again(&mut self, sent_at: u64, nothing_new: bool) {
        let period = if nothing_new { PARK_UNPARKED_PERIOD_MS } else { PARK_PERIOD_MS };
        self.parked.not_before = sent_at.saturating_add(period);
    }

    /// The parked call is not waited for any more.
    pub(super) fn unpark(&mut self) -> Option<u64> {
        let (number, _) = self.parked.in_flight.take()?;
        self.answer_needed(self.last_call + 1);
        Some(number)
    }

    /// The call is not under way any more; what it was, if it was.
    pub(super) fn end(&mut self, number: u64) -> Option<Ended> {
        let lanes = [
            (Kind::Request, &mut self.request),
            (Kind::Sync, &mut self.sync),
            (Kind::Parked, &mut self.parked),
        ];
        for (kind, lane) in lanes {
            if let Some(sent_at) = lane.earlier.remove(&number) {
                return Some(Ended { kind, sent_at, newest: false });
            }
            if let Some((_, sent_at)) = lane.in_flight.take_if(|(newest, _)| *newest == number) {
                lane.not_before = 0;
                return Some(Ended { kind, sent_at, newest: true });
            }
        }
        None
    }

    /// As [`Self::end`]; the next call of its kind waits, if this was the newest, which is returned.
    pub(super) fn retry(&mut self, number: u64, retry_at_ms: u64) -> bool {
        let Some(ended) = self.end(number).filter(|ended| ended.newest) else { return false };
        let lane = match ended.kind {
            Kind::Request => &mut self.request,
            Kind::Sync => &mut self.sync,
            Kind::Parked => &mut self.parked,
        };
        lane.not_before = retry_at_ms;
        if ended.kind == Kind::Request {
            self.ask_again_at = 0;
        }
        true
    }
}

fn reports<'a>(
    grants: impl Iterator<Item = (&'a BlockId, &'a Grant)>,
    most: usize,
) -> Option<Vec<GrantReport>> {
    let reports: Vec<_> = grants.take(most).map(|(id, grant)| grant.report(id)).collect();
    (!reports.is_empty()).then_some(reports)
}
