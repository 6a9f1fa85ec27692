//! Who waits for a key's next round.
//!
//! A request waits from its arrival on, and again, parked, after each round that brought it nothing. Only a new one
//! opens a round by itself. For those that are parked one is opened when something changed that may help them, and
//! every 5 s.

use crate::parked::LOOK_EVERY;
use crate::pending::Pending;
use crate::refusal::Refusal;
use crate::speaker::Speaker;
use pgsemaphore_allocation::ClientId;
use std::time::Instant;
use tracing::Span;

/// Most requests that wait for one key.
const WAITING_PER_KEY_MAX: usize = 10_000;

/// Requests that wait for a key's next round, in the order of their arrival.
#[derive(Default)]
pub(crate) struct Waiting {
    parked: Vec<Pending>,
    new: Vec<Pending>,
    first_arrival: Option<Instant>,
    /// Something changed, since a round was planned, that may help those who are parked.
    roused: bool,
    looked_at: Option<Instant>,
}

impl Waiting {
    /// Adds a request. Those of the same process that wait are superseded by a newer call, and supersede an older one.
    pub(crate) fn admit(&mut self, request: Pending) {
        let new = &request.caller.speaker;
        let refuses = |other: &Pending| {
            let other = &other.caller.speaker;
            other.may_be_superseded_by(new) && !new.is_newer_than(other)
        };
        if self.parked.iter().chain(&self.new).any(refuses) {
            return request.caller.answer(Err(Refusal::Superseded));
        }
        self.give_way(new);
        if self.parked.len() + self.new.len() >= WAITING_PER_KEY_MAX {
            return request.caller.answer(Err(Refusal::TooManyWaiting));
        }
        if request.is_parked() {
            return self.parked.push(request);
        }
        let first = self.first_arrival.get_or_insert(request.heard.arrival);
        *first = request.heard.arrival.min(*first);
        self.new.push(request);
    }

    /// Answers the requests that give way to this one, which waits here or at another holder.
    pub(crate) fn give_way(&mut self, new: &Speaker) {
        for waiting in [&mut self.parked, &mut self.new] {
            let gone = waiting.extract_if(.., |request| request.caller.speaker.gives_way_to(new));
            gone.for_each(|request| request.caller.answer(Err(Refusal::Superseded)));
        }
    }

    /// What the first of them is in logs and traces.
    pub(crate) fn span(&self) -> Span {
        let first = self.parked.iter().chain(&self.new).next();
        first.map_or_else(Span::none, |request| request.caller.span.clone())
    }

    /// When the first new request of the next round arrived, also if it was superseded since.
    pub(crate) fn first_arrival(&self) -> Option<Instant> {
        self.first_arrival
    }

    /// The requests for a round that starts now; those whose callers have gone away are dropped.
    pub(crate) fn take(&mut self, now: Instant) -> Vec<Pending> {
        self.first_arrival = None;
        self.round_is_planned(now);
        let requests = self.parked.drain(..).chain(self.new.drain(..));
        requests.filter(|request| !request.caller.has_hung_up()).collect()
    }

    /// The request that waits alone, if it does and was not tried yet: it may be served at once.
    pub(crate) fn take_alone(&mut self) -> Option<Pending> {
        let alone = self.parked.is_empty() && self.new.len() == 1;
        let may_go = |request: &mut Pending| {
            alone && !request.waits && !request.heard.demand.is_empty() && !request.caller.has_hung_up()
        };
        let mut request = self.new.pop_if(may_go)?;
        request.waits = true;
        self.first_arrival = None;
        Some(request)
    }

    /// Puts requests back that a round could not take yet or brought nothing; those that came meanwhile are newer.
    pub(crate) fn put_back(&mut self, requests: Vec<Pending>) {
        let newer = std::mem::take(&mut self.new);
        requests.into_iter().chain(newer).for_each(|request| self.admit(request));
    }

    /// Answers parked requests whose time is over with what their latest round said.
    pub(crate) fn conclude(&mut self, now: Instant) {
        self.parked.extract_if(.., |request| request.is_over(now)).for_each(Pending::conclude);
    }

    /// Something changed that may help parked requests, those of the round under way included.
    pub(crate) fn rouse(&mut self) {
        self.roused = true;
    }

    /// Whether a round is to start for the sake of parked requests.
    pub(crate) fn wants_round(&self, now: Instant) -> bool {
        let look = self.looked_at.is_none_or(|at| at + LOOK_EVERY <= now);
        (self.roused || look) && !self.parked.is_empty()
    }

    /// A round was planned, in which parked requests take part.
    pub(crate) fn round_is_planned(&mut self, now: Instant) {
        self.roused = false;
        self.looked_at = Some(now);
    }

    /// When the next parked request is to be looked at or answered.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let over = self.parked.iter().filter_map(Pending::until).min()?;
        Some(self.looked_at.map_or(over, |at| over.min(at + LOOK_EVERY)))
    }

    /// Whether a request is parked.
    pub(crate) fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Whether a request is parked of a client that something `concerns`.
    pub(crate) fn has_parked_of(&self, concerns: impl Fn(&ClientId) -> bool) -> bool {
        self.parked.iter().any(|request| concerns(&request.heard.client))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parked.is_empty() && self.new.is_empty()
    }
}
