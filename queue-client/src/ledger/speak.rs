//! When the ledger has something to say, and the messages that say it.
//!
//! At most one request waits, stating demand, and at most one sync is under way, bringing claims and releases. While a
//! sync is under way what comes up gathers for the next one; a waiting request is superseded when demand has changed.
//! Everything that may be unsaid is derived from the marks, so a lost message is said again without being remembered.

use queue_wire::{COUNT_MAX, DEMAND_MAX, Demand, GrantReport, Message, OLDEST_AGE_MAX_MS, REPORTS_MAX};

use super::{BlockId, Grant, Ledger};
use crate::transport::Endpoint;

/// A waiting request is left alone for this long before a newer one supersedes it, so that a burst of waiters
/// becomes one.
pub const SUPERSEDE_AFTER_MS: u64 = 5;

/// And for this long as long as the one that was superseded before is not answered, to keep pace with the network.
const SUPERSEDE_UNANSWERED_AFTER_MS: u64 = 1000;
/// A holder that wants to hear from its clients more often than this is not obeyed.
pub(super) const HEARTBEAT_MIN_MS: u64 = 100;

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

/// Calls of one kind: the newest that is under way, as number and time; the one it superseded, if that is still under
/// way; the end of the pause after a failure.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) in_flight: Option<(u64, u64)>,
    superseded: Option<u64>,
    not_before: u64,
}

impl Ledger {
    /// The next thing to send now, if any; ask until there is none. A request supersedes the one under way.
    pub fn next_call(&mut self, now_ms: u64) -> Option<Call> {
        if self.sync_at().is_some_and(|at| at <= now_ms) {
            return Some(self.sync(now_ms));
        }
        self.request_at().is_some_and(|at| at <= now_ms).then(|| self.request(now_ms))
    }

    /// When there is something to send if no event comes before; a time in the past is now.
    pub fn wake_at(&self) -> Option<u64> {
        [self.sync_at(), self.request_at()].into_iter().flatten().min()
    }

    fn sync_at(&self) -> Option<u64> {
        if self.fenced || self.sync.in_flight.is_some() {
            return None;
        }
        let asks = self.request.in_flight.is_some() || self.request_at().is_some();
        let unsaid = !self.due.is_empty() || !self.excess.is_empty() || (self.unanswered.is_some() && !asks);
        let heartbeat = self.heartbeat_at.filter(|_| !self.grants.is_empty());
        let at = if unsaid { 0 } else { heartbeat? };
        Some(at.max(self.sync.not_before))
    }

    fn request_at(&self) -> Option<u64> {
        if self.fenced {
            return None;
        }
        match self.request.in_flight {
            Some((_, sent_at)) => {
                let after =
                    self.request.superseded.map_or(SUPERSEDE_AFTER_MS, |_| SUPERSEDE_UNANSWERED_AFTER_MS);
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
        message.demand = self.demand(now_ms);
        message.grants = reports(self.due.iter().filter_map(|id| self.grants.get_key_value(id)));
        self.news = false;
        self.stated = !message.demand.is_empty();
        self.request.superseded =
            self.request.in_flight.replace((self.last_call, now_ms)).map(|(number, _)| number);
        Call { number: self.last_call, endpoint: Endpoint::Request, message }
    }

    fn sync(&mut self, now_ms: u64) -> Call {
        self.give_back_excess();
        let mut message = self.message();
        message.grants = if self.due.is_empty() {
            reports(self.grants.iter())
        } else {
            reports(self.due.iter().filter_map(|id| self.grants.get_key_value(id)))
        };
        self.sync.in_flight = Some((self.last_call, now_ms));
        Call { number: self.last_call, endpoint: Endpoint::Sync, message }
    }

    fn message(&mut self) -> Message {
        self.last_call += 1;
        let mut message = Message::new(self.identity.client_id.as_str());
        message.process = Some(self.identity.process.clone());
        message.call = Some(self.last_call);
        message.seen = self.seen;
        message
    }

    /// What each group lacks, oldest first, with true ages.
    fn demand(&self, now_ms: u64) -> Vec<Demand> {
        let lacking = self.lacking.iter().filter_map(|group| Some((group, self.queues.get(group)?)));
        let mut entries: Vec<_> = lacking
            .filter_map(|(group, queue)| Some((queue.lacking_since()?, group, queue.lack())))
            .collect();
        entries.sort();
        entries.truncate(DEMAND_MAX);
        let demand = entries.into_iter().map(|(since, group, lack)| Demand {
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

    /// The call is not under way any more; what it was and when it was sent, if it was the newest of its kind.
    pub(super) fn end(&mut self, number: u64) -> Option<(Endpoint, u64)> {
        for (endpoint, lane) in [(Endpoint::Request, &mut self.request), (Endpoint::Sync, &mut self.sync)] {
            lane.superseded.take_if(|superseded| *superseded == number);
            if let Some((_, sent_at)) = lane.in_flight.take_if(|(newest, _)| *newest == number) {
                lane.not_before = 0;
                return Some((endpoint, sent_at));
            }
        }
        None
    }

    /// As [`Self::end`]; the next call of its kind waits.
    pub(super) fn retry(&mut self, number: u64, retry_at_ms: u64) {
        match self.end(number) {
            Some((Endpoint::Request, _)) => (self.request.not_before, self.ask_again_at) = (retry_at_ms, 0),
            Some((Endpoint::Sync, _)) => self.sync.not_before = retry_at_ms,
            None => {}
        }
    }
}

fn reports<'a>(grants: impl Iterator<Item = (&'a BlockId, &'a Grant)>) -> Option<Vec<GrantReport>> {
    let reports: Vec<_> = grants.take(REPORTS_MAX).map(|(id, grant)| grant.report(id)).collect();
    (!reports.is_empty()).then_some(reports)
}
