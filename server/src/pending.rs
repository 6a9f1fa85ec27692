//! Who waits for a key's next round. In memory only: a holder that ends answers nobody, and clients ask again.

use crate::parked::Park;
use crate::refusal::Refusal;
use crate::round::Heard;
use queue_wire::Reply;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::oneshot;

/// Most requests that wait for one key.
const WAITING_PER_KEY_MAX: usize = 10_000;
/// Most calls that wait in one holder.
const WAITING_MAX: usize = 100_000;

/// A call and its caller, who may hang up at any time.
pub(crate) struct Pending {
    pub(crate) heard: Heard,
    pub(crate) caller: Caller,
    /// Of a sync that may be kept open.
    pub(crate) park: Option<Park>,
}

/// Who gets the answer.
pub(crate) struct Caller {
    process: Option<String>,
    generation: u64,
    call: Option<u64>,
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
        let (generation, call) = (message.generation, message.call);
        let caller = Self { process: message.process.clone(), generation, call, answer, _place: place };
        Ok((caller, answered))
    }

    /// Answers; a caller that has hung up does not hear it.
    pub(crate) fn answer(self, answer: Result<Reply, Refusal>) {
        let _hung_up = self.answer.send(answer);
    }

    pub(crate) fn has_hung_up(&self) -> bool {
        self.answer.is_closed()
    }

    pub(crate) fn is_same_process(&self, other: &Self) -> bool {
        self.process == other.process
    }
}

/// Requests that wait for a key's next round, in the order of their arrival.
#[derive(Default)]
pub(crate) struct Waiting {
    requests: Vec<Pending>,
    first_arrival: Option<Instant>,
}

impl Waiting {
    /// Adds a request. One of the same process that waits is superseded by a newer call, and supersedes an older one.
    pub(crate) fn admit(&mut self, request: Pending) {
        if let Some(at) = self.requests.iter().position(|other| same_process(other, &request)) {
            let waiting = &self.requests[at].caller;
            let newer = request.caller.call.zip(waiting.call).is_none_or(|(new, old)| new > old);
            if !newer {
                return request.caller.answer(Err(Refusal::Superseded));
            }
            self.requests.remove(at).caller.answer(Err(Refusal::Superseded));
        }
        if self.requests.len() >= WAITING_PER_KEY_MAX {
            return request.caller.answer(Err(Refusal::TooManyWaiting));
        }
        self.first_arrival.get_or_insert(request.heard.arrival);
        self.requests.push(request);
    }

    /// When the first request of the next round arrived, also if it was superseded since.
    pub(crate) fn first_arrival(&self) -> Option<Instant> {
        self.first_arrival
    }

    /// The requests for a round that starts now; those whose callers have gone away are dropped.
    pub(crate) fn take(&mut self) -> Vec<Pending> {
        self.first_arrival = None;
        let mut requests = std::mem::take(&mut self.requests);
        requests.retain(|request| !request.caller.has_hung_up());
        requests
    }

    /// Puts requests back that a round could not take yet; those that came meanwhile are newer.
    pub(crate) fn put_back(&mut self, requests: Vec<Pending>) {
        let newer = std::mem::take(self);
        requests.into_iter().chain(newer.requests).for_each(|request| self.admit(request));
    }
}

/// Same client and process; not of a lower generation, which is for the transaction to refuse.
fn same_process(waiting: &Pending, new: &Pending) -> bool {
    waiting.heard.client == new.heard.client
        && waiting.caller.is_same_process(&new.caller)
        && waiting.caller.generation <= new.caller.generation
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
