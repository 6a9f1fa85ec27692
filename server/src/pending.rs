//! A call that waits, and who gets its answer. In memory only: a holder that ends answers nobody, and clients ask again.

use crate::clock;
use crate::parked::Park;
use crate::refusal::Refusal;
use crate::reply::Said;
use crate::round::Heard;
use crate::speaker::Speaker;
use pgsemaphore_allocation::Outcome;
use queue_wire::Reply;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::oneshot;
use tracing::Span;

/// Most calls that wait in one holder.
const WAITING_MAX: usize = 100_000;

/// A call and its caller, who may hang up at any time.
pub(crate) struct Pending {
    pub(crate) heard: Heard,
    pub(crate) caller: Caller,
    /// Of a call that may be kept open.
    pub(crate) park: Option<Park>,
    /// Whether it was tried at once, in vain, and waits like any other.
    pub(crate) waits: bool,
    /// What it was told by the latest transaction, but not answered with yet: it is kept open.
    pub(crate) said: Option<Said>,
}

impl Pending {
    /// Answers, or gives the call back if it is to be kept open.
    pub(crate) fn hear(mut self, said: Said) -> Option<Self> {
        let holds = match (&mut self.park, &said.outcome) {
            (Some(park), Outcome::Answered(answer)) => park.holds(&self.heard, answer, clock::now()),
            _ => false,
        };
        if holds {
            self.heard.applied = true;
            self.caller.place.keep();
            self.said = Some(said);
            return Some(self);
        }
        self.caller.answer(said.reply(self.heard.arrival));
        None
    }

    /// Answers a call that was kept open with what the latest transaction said.
    pub(crate) fn conclude(self) {
        if let Some(said) = self.said {
            self.caller.answer(said.reply(self.heard.arrival));
        }
    }

    /// Until when it may be kept open.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.park.as_ref().map(|park| park.until)
    }

    /// Whether it is not to be kept open any longer.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.until().is_none_or(|until| until <= now)
    }

    /// Whether a transaction took it and it is kept open.
    pub(crate) fn is_parked(&self) -> bool {
        self.said.is_some()
    }
}

/// Who gets the answer.
pub(crate) struct Caller {
    pub(crate) speaker: Speaker,
    answer: oneshot::Sender<Result<Reply, Refusal>>,
    /// What the call is in logs and traces.
    pub(crate) span: Span,
    place: Place,
}

/// How many calls wait in a holder.
#[derive(Debug, Default)]
pub(crate) struct Places {
    waiting: AtomicUsize,
    kept: AtomicUsize,
}

impl Places {
    /// All that are not answered.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Those of them that a transaction looked at and that are kept open.
    pub(crate) fn kept(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }
}

/// A place among the calls that wait in this holder; given back when the call is answered or abandoned.
struct Place {
    places: Arc<Places>,
    kept: bool,
}

impl Place {
    fn take(places: &Arc<Places>) -> Option<Self> {
        let before = places.waiting.fetch_add(1, Ordering::Relaxed);
        let place = Self { places: places.clone(), kept: false };
        (before < WAITING_MAX).then_some(place)
    }

    /// The call is kept open.
    fn keep(&mut self) {
        if !std::mem::replace(&mut self.kept, true) {
            self.places.kept.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.waiting.fetch_sub(1, Ordering::Relaxed);
        if self.kept {
            self.places.kept.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Caller {
    /// The caller of `message`, and where its answer arrives. `places` are those of this holder.
    pub(crate) fn new(
        message: &queue_wire::Message,
        places: &Arc<Places>,
    ) -> Result<(Self, oneshot::Receiver<Result<Reply, Refusal>>), Refusal> {
        let place = Place::take(places).ok_or(Refusal::TooManyWaiting)?;
        let (answer, answered) = oneshot::channel();
        Ok((Self { speaker: Speaker::of(message), answer, span: Span::current(), place }, answered))
    }

    /// Answers; a caller that has hung up does not hear it.
    pub(crate) fn answer(self, answer: Result<Reply, Refusal>) {
        let _hung_up = self.answer.send(answer);
    }

    pub(crate) fn has_hung_up(&self) -> bool {
        self.answer.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::{Caller, Places, WAITING_MAX};
    use crate::refusal::Refusal;
    use queue_wire::Message;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn a_holder_has_so_many_waiting_calls_and_no_more() {
        let full = AtomicUsize::new(WAITING_MAX - 1);
        let places = Arc::new(Places { waiting: full, ..Places::default() });
        let last = Caller::new(&Message::new("last"), &places).expect("a place");
        let refused = Caller::new(&Message::new("one too many"), &places).map(|_| ());
        assert_eq!(refused, Err(Refusal::TooManyWaiting));
        drop(last);
        assert_eq!(places.waiting(), WAITING_MAX - 1);
        assert!(Caller::new(&Message::new("later"), &places).is_ok());
    }
}
