//! The permits of one lease that may be drawn without a lock: one word, shared by the ledger and the handles of a group.
//!
//! Authoritative, while a lease is in it, for how many of the lease's permits are undrawn and how many have an item.
//! Not authoritative for which lease that is and for how long: the ledger puts one in and takes it out.
//!
//! The whole state is one atomic word: whose permits these are (a ticket), `undrawn` and `running`. Four steps change
//! it, each one atomic operation:
//!
//! | step | by | does |
//! | --- | --- | --- |
//! | `put_in` | the ledger | from empty to a ticket and its counts |
//! | `draw` | any thread | `undrawn - 1`, `running + 1`, if `undrawn > 0` |
//! | `release` | any thread | `running - 1`, if its ticket is the one that is in |
//! | `take_out` | the ledger | to empty; says the counts that it ended |
//!
//! So `undrawn + running` never grows while a lease is in, what came back is the rest, and after `take_out` has said its
//! counts nothing can be drawn and nothing released here: whoever is too late finds no permit, or another ticket, and
//! goes to the ledger. A message that says `stopped` states the counts of such a `take_out`. Equal words are equal
//! states, so a compare-and-swap that succeeds after others have come and gone is still right.
//!
//! `queue-client/loom` compiles this file with other atomics, and takes every way in which these steps can meet.
//!
//! No clock is read: see `lease.rs` for why a draw may be late.

use std::sync::Arc;

use queue_wire::COUNT_MAX;

use super::atomic::{AtomicU64, Ordering};

/// Bits of a count; what is above two of them is the ticket.
const COUNT_BITS: u32 = 20;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const _: () = assert!(COUNT_MAX <= COUNT_MASK);
/// What a draw adds to a word: one permit goes from `undrawn` to `running`.
const RUNNING: u64 = 1;
const UNDRAWN: u64 = 1 << COUNT_BITS;
const EMPTY: u64 = 0;

/// Names a lease in its group's fund, and in a permit. Never that of two leases of which permits may be about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

impl Ticket {
    /// How many there are.
    const MAX: u64 = u64::MAX >> (2 * COUNT_BITS);

    /// The one after `last`, in a circle; the first after none.
    pub(super) fn after(last: Option<Self>) -> Self {
        last.filter(|last| last.0 < Self::MAX).map_or(Self(1), |last| Self(last.0 + 1))
    }
}

/// Permits of a lease: those that can be drawn, and those that have an item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) undrawn: u64,
    pub(super) running: u64,
}

impl Counts {
    /// Nothing of the lease is left.
    pub(super) fn is_spent(self) -> bool {
        self == Self::default()
    }
}

/// What became of a permit that was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Returned {
    /// It is counted here.
    Counted,
    /// It is counted here, and it was the last: the ledger has to hear that the lease is spent.
    Last,
    /// Its lease is not in the fund: the ledger has to count it.
    Elsewhere,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Fund {
    group: Arc<str>,
    word: AtomicU64,
}

impl Fund {
    pub(super) fn new(group: &str) -> Self {
        Self { group: group.into(), word: AtomicU64::new(EMPTY) }
    }

    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    /// A permit, if there is one that nobody waits for.
    pub(crate) fn draw(&self) -> Option<Ticket> {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & (COUNT_MASK * UNDRAWN) != 0 {
            let drawn = word - UNDRAWN + RUNNING;
            match self.word.compare_exchange_weak(word, drawn, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(ticket(word)),
                Err(now) => word = now,
            }
        }
        None
    }

    /// The item of a permit has ended. What it did is seen by whoever reports its release.
    pub(crate) fn release(&self, of: Ticket) -> Returned {
        let mut word = self.word.load(Ordering::Relaxed);
        while ticket(word) == of {
            debug_assert!(word & COUNT_MASK != 0, "more came back than was drawn");
            let released = word - RUNNING;
            match self.word.compare_exchange_weak(word, released, Ordering::Release, Ordering::Relaxed) {
                Ok(_) if counts(released).is_spent() => return Returned::Last,
                Ok(_) => return Returned::Counted,
                Err(now) => word = now,
            }
        }
        Returned::Elsewhere
    }

    /// From now on permits of this lease are drawn here. The fund must be empty; then nobody but the ledger changes it.
    pub(super) fn put_in(&self, ticket: Ticket, counts: Counts) {
        debug_assert_eq!(self.word.load(Ordering::Relaxed), EMPTY);
        let word = (ticket.0 << (2 * COUNT_BITS)) + counts.undrawn * UNDRAWN + counts.running * RUNNING;
        self.word.store(word, Ordering::Release);
    }

    /// From now on nothing is drawn or released here. These are the last counts.
    pub(super) fn take_out(&self) -> Counts {
        counts(self.word.swap(EMPTY, Ordering::AcqRel))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.word.load(Ordering::Acquire) == EMPTY
    }

    /// The counts of one moment.
    pub(super) fn counts(&self) -> Counts {
        counts(self.word.load(Ordering::Acquire))
    }
}

fn ticket(word: u64) -> Ticket {
    Ticket(word >> (2 * COUNT_BITS))
}

fn counts(word: u64) -> Counts {
    Counts { undrawn: (word >> COUNT_BITS) & COUNT_MASK, running: word & COUNT_MASK }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fund(undrawn: u64) -> (Fund, Ticket) {
        let (fund, ticket) = (Fund::new("g"), Ticket::after(None));
        fund.put_in(ticket, Counts { undrawn, running: 0 });
        (fund, ticket)
    }

    #[test]
    fn a_permit_is_drawn_once_and_the_last_to_come_back_is_told() {
        let (fund, ticket) = fund(2);
        assert_eq!((fund.draw(), fund.draw(), fund.draw()), (Some(ticket), Some(ticket), None));
        assert_eq!((fund.release(ticket), fund.draw()), (Returned::Counted, None));
        assert_eq!((fund.release(ticket), fund.counts()), (Returned::Last, Counts::default()));
    }

    #[test]
    fn what_was_taken_out_is_neither_drawn_nor_released() {
        let (fund, ticket) = fund(COUNT_MAX);
        assert!(fund.draw().is_some());
        let counts = fund.take_out();
        assert_eq!(counts, Counts { undrawn: COUNT_MAX - 1, running: 1 });
        assert_eq!((fund.draw(), fund.release(ticket)), (None, Returned::Elsewhere));
        let next = Ticket::after(Some(ticket));
        fund.put_in(next, Counts { undrawn: 1, running: 0 });
        assert_eq!((fund.release(ticket), fund.draw()), (Returned::Elsewhere, Some(next)));
    }

    #[test]
    fn tickets_go_round_and_none_is_that_of_an_empty_fund() {
        assert_eq!(Ticket::after(Some(Ticket(Ticket::MAX))), Ticket::after(None));
        let fund = Fund::new("");
        fund.put_in(Ticket(Ticket::MAX), Counts { undrawn: 0, running: COUNT_MAX });
        assert_eq!(fund.release(Ticket(Ticket::MAX)), Returned::Counted);
        fund.take_out();
        assert_ne!(ticket(EMPTY), Ticket::after(None));
    }

    #[test]
    fn threads_draw_each_permit_once_and_what_is_taken_out_is_exact() {
        for _ in 0..200 {
            let (fund, ticket) = fund(500);
            let start = std::sync::Barrier::new(3);
            let (drawn, counts) = std::thread::scope(|scope| {
                let drawing = || {
                    start.wait();
                    std::iter::from_fn(|| fund.draw()).map(|of| fund.release(of)).collect::<Vec<_>>()
                };
                let threads = [scope.spawn(drawing), scope.spawn(drawing)];
                start.wait();
                let counts = fund.take_out();
                (threads.map(|thread| thread.join().unwrap()).concat(), counts)
            });
            assert_eq!(drawn.len() as u64, 500 - counts.undrawn);
            let elsewhere = drawn.iter().filter(|returned| **returned == Returned::Elsewhere).count();
            assert_eq!(elsewhere as u64, counts.running, "these the ledger has to count");
            assert_eq!(fund.release(ticket), Returned::Elsewhere);
        }
    }
}
