//! What happens behind the permits, told to whoever listens: for logs, metrics and alarms.
//!
//! Authoritative for how many events a listener that does not keep up may lag behind. Nothing waits for a listener, and
//! while there is none nothing is written down.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_core::Stream;
use queue_wire::Reason;

/// Events that are kept for a listener which does not take them.
pub const EVENTS_MAX: usize = 1024;

/// Something that happened to a semaphore of this client. Draws from a lease are no events.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A round gave permits to items of this process; each runs when its claim is confirmed.
    Granted {
        /// The semaphore's key.
        key: Arc<str>,
        /// The group.
        group: String,
        /// How many.
        permits: u64,
    },
    /// A round lent permits, which are drawn without a message from now on.
    Leased {
        /// The semaphore's key.
        key: Arc<str>,
        /// The group.
        group: String,
        /// How many.
        permits: u64,
    },
    /// The holder wants a lease back. Items that run on it go on.
    LeaseRetired {
        /// The semaphore's key.
        key: Arc<str>,
        /// The group.
        group: String,
        /// Permits that had not been drawn, and are not any more.
        undrawn: u64,
    },
    /// Demand gets nothing, for a reason that is new: told when it begins and when the reason changes.
    Blocked {
        /// The semaphore's key.
        key: Arc<str>,
        /// The group.
        group: String,
        /// How many items lack a permit.
        count: u64,
        /// Why.
        reason: Reason,
    },
    /// Somebody has begun, or everybody has ceased, to lack permits: of the key, or of groups in which this process
    /// holds a lease.
    Contended {
        /// The semaphore's key.
        key: Arc<str>,
        /// The shared limit is lacking.
        contended: bool,
        /// Ceilings of these groups are.
        groups: Vec<String>,
    },
    /// The holder has shut this process out of the semaphore: what runs on it is not counted. Told once for each key.
    Fenced {
        /// The semaphore's key.
        key: Arc<str>,
        /// The lowest generation that the holder admits.
        generation: Option<u64>,
    },
    /// The holder does not count items that run here (any more); see [`Permit::is_counted`](crate::Permit::is_counted).
    Uncounted {
        /// The semaphore's key.
        key: Arc<str>,
        /// How many.
        items: u64,
    },
    /// A call got no answer, or was asked to come back later. It is repeated, and nothing is lost.
    Unreachable {
        /// The semaphore's key.
        key: Arc<str>,
        /// What is known of it.
        error: String,
        /// When the call is repeated.
        retry_in: Duration,
    },
    /// A holder answers again.
    Reachable {
        /// The semaphore's key.
        key: Arc<str>,
        /// How long none did.
        after: Duration,
    },
    /// A report that keeps a lease or this client alive was sent late, since the runtime did not run its task in time:
    /// something blocks it. See [`Builder::own_thread`](crate::Builder::own_thread).
    HeartbeatLate {
        /// The semaphore's key.
        key: Arc<str>,
        /// By how much.
        late_by: Duration,
    },
    /// This listener did not keep up, and the oldest events were dropped.
    Missed {
        /// How many.
        events: u64,
    },
}

/// The events of a client from when it was asked for them; made by [`QueueClient::events`](crate::QueueClient::events).
///
/// Up to [`EVENTS_MAX`] of them wait for a listener. When there are more the oldest are dropped, and the next one is
/// [`Event::Missed`]. Ends when the client, its semaphores and its permits are gone.
#[derive(Debug)]
pub struct Events(Arc<Reader>);

impl Events {
    /// The next event; none at the end.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: an event is taken only when it is returned.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|context| self.0.poll(context)).await
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.0.poll(context)
    }
}

#[derive(Debug, Default)]
struct Reader(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<Event>,
    missed: u64,
    ended: bool,
    waker: Option<Waker>,
}

impl Reader {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut kept = self.kept();
        if kept.missed > 0 {
            return Poll::Ready(Some(Event::Missed { events: std::mem::take(&mut kept.missed) }));
        }
        if let Some(event) = kept.events.pop_front() {
            return Poll::Ready(Some(event));
        }
        if kept.ended {
            return Poll::Ready(None);
        }
        kept.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn change(&self, change: impl FnOnce(&mut Kept)) {
        let mut kept = self.kept();
        change(&mut kept);
        let waker = kept.waker.take();
        drop(kept);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn add(&self, event: Event) {
        self.change(|kept| {
            if kept.events.len() == EVENTS_MAX {
                kept.events.pop_front();
                kept.missed += 1;
            }
            kept.events.push_back(event);
        });
    }
}

/// Where a client tells its events.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    listened_to: AtomicBool,
    readers: Mutex<Vec<Weak<Reader>>>,
}

impl Feed {
    pub(crate) fn listen(&self) -> Events {
        let reader = Arc::new(Reader::default());
        self.readers().push(Arc::downgrade(&reader));
        self.listened_to.store(true, Ordering::Release);
        Events(reader)
    }

    pub(crate) fn tell(&self, event: impl FnOnce() -> Event) {
        if !self.listened_to.load(Ordering::Acquire) {
            return;
        }
        let mut readers = self.readers();
        readers.retain(|reader| reader.strong_count() > 0);
        if readers.is_empty() {
            self.listened_to.store(false, Ordering::Release);
            return;
        }
        let event = event();
        for reader in readers.iter().filter_map(Weak::upgrade) {
            reader.add(event.clone());
        }
    }

    fn readers(&self) -> MutexGuard<'_, Vec<Weak<Reader>>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        for reader in self.readers().iter().filter_map(Weak::upgrade) {
            reader.change(|kept| kept.ended = true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed(events: u64) -> Event {
        Event::Missed { events }
    }

    #[tokio::test]
    async fn a_listener_that_lags_loses_the_oldest_and_is_told_how_many() {
        let feed = Feed::default();
        feed.tell(|| unreachable!("nobody listens"));
        let (mut lagging, mut other) = (feed.listen(), feed.listen());
        for number in 0..EVENTS_MAX as u64 + 3 {
            feed.tell(|| missed(number));
            assert_eq!(other.next().await, Some(missed(number)));
        }
        assert_eq!(lagging.next().await, Some(missed(3)), "so many are missed");
        for number in 3..EVENTS_MAX as u64 + 3 {
            assert_eq!(lagging.next().await, Some(missed(number)));
        }
        drop(feed);
        assert_eq!((lagging.next().await, other.next().await), (None, None));
    }

    #[tokio::test]
    async fn next_is_cancel_safe() {
        let feed = Feed::default();
        let mut events = feed.listen();
        let mut next = Box::pin(events.next());
        std::future::poll_fn(|context| {
            assert!(next.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        feed.tell(|| missed(1));
        drop(next);
        assert_eq!(events.next().await, Some(missed(1)));
    }

    #[test]
    fn who_has_gone_is_told_nothing() {
        let feed = Feed::default();
        drop(feed.listen());
        feed.tell(|| unreachable!("nobody listens"));
        assert!(feed.readers().is_empty());
    }
}
