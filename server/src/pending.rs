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
    _place: Place,
}

/// A place among the calls that wait in this holder; given back when the call is answered or abandoned.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Caller {
    /// The caller of `message`, and where its answer arrives. `waiting` counts the calls of this holder.
    pub(crate) fn new(
        message: &queue_wire::Message,
        waiting: &Arc<AtomicUsize>,
    ) -> Result<(Self, oneshot::Receiver<Result<Reply, Refusal>>), Refusal> {
        let before = waiting.fetch_add(1, Ordering::Relaxed);
        let place = Place(waiting.clone());
        if before >= WAITING_MAX {
            return Err(Refusal::TooManyWaiting);
        }
        let (answer, answered) = oneshot::channel();
        Ok((Self { speaker: Speaker::of(message), answer, _place: place }, answered))
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
    use super::{Caller, WAITING_MAX};
    use crate::refusal::Refusal;
    use queue_wire::Message;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_holder_has_so_many_waiting_calls_and_no_more() {
        let waiting = Arc::new(AtomicUsize::new(WAITING_MAX - 1));
        let last = Caller::new(&Message::new("last"), &waiting).expect("a place");
        let refused = Caller::new(&Message::new("one too many"), &waiting).map(|_| ());
        assert_eq!(refused, Err(Refusal::TooManyWaiting));
        drop(last);
        assert_eq!(waiting.load(Ordering::Relaxed), WAITING_MAX - 1);
        assert!(Caller::new(&Message::new("later"), &waiting).is_ok());
    }
}
