//! Calls that are kept open until there is something to say. In memory only, like who waits for a round.
//!
//! The reports of a parked call are committed by its first transaction and not applied again. A parked request takes
//! part in later rounds (`pending`) until one brings something; a parked sync is looked at each time its client's state
//! may differ, and is answered when it does.

use crate::pending::Pending;
use crate::round::Heard;
use crate::stirred::Stirred;
use pgsemaphore_allocation::{Answer, Status, VerdictStatus};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Parked calls are looked at this often without being told of a change.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How long a call is kept open, and for what.
pub(crate) struct Park {
    pub(crate) until: Instant,
    pub(crate) awaits: Awaits,
}

/// What a call is kept open for.
pub(crate) enum Awaits {
    /// Of a request: permits, or a block that is no longer active.
    Permits,
    /// Of a sync: a state other than the client knows; `None`: than it is when first looked at.
    Change { known: Option<String> },
}

impl Park {
    /// Whether the caller has nothing to hear yet. Learns the state if the client did not say what it knows.
    pub(crate) fn holds(&mut self, heard: &Heard, answer: &Answer, now: Instant) -> bool {
        let nothing_new = match &mut self.awaits {
            Awaits::Permits => brings_nothing(heard, answer),
            Awaits::Change { known } => *known.get_or_insert_with(|| answer.state.clone()) == answer.state,
        };
        nothing_new && now < self.until
    }
}

/// Whether an answer has no block that the request did not report, and no verdict other than `active`.
fn brings_nothing(heard: &Heard, answer: &Answer) -> bool {
    let grants = heard.grants.iter().map(|report| report.id.as_str());
    let reported: HashSet<&str> =
        grants.chain(heard.leases.iter().map(|report| report.id.as_str())).collect();
    answer.verdicts.iter().all(|verdict| {
        verdict.status == VerdictStatus::Open(Status::Active) && reported.contains(verdict.id.as_str())
    })
}

/// The parked syncs of a key.
#[derive(Default)]
pub(crate) struct Parked {
    syncs: Vec<Pending>,
    looked_at: Option<Instant>,
}

impl Parked {
    /// Keeps a sync that was just looked at. Gives back the one of the same process that it replaces, to be answered.
    pub(crate) fn keep(&mut self, sync: Pending, now: Instant) -> Option<Pending> {
        self.looked_at.get_or_insert(now);
        let same = |other: &Pending| other.caller.speaker.is_same_process(&sync.caller.speaker);
        let replaced = self.syncs.iter().position(same).map(|at| self.syncs.swap_remove(at));
        self.syncs.push(sync);
        replaced.map(|mut replaced| {
            replaced.park = None;
            replaced
        })
    }

    /// Takes those whose client's state may differ.
    pub(crate) fn take_stirred(&mut self, stirred: &Stirred) -> Vec<Pending> {
        self.take(|sync| stirred.includes(&sync.heard.client))
    }

    /// Takes all, to be looked at.
    pub(crate) fn take_all(&mut self) -> Vec<Pending> {
        self.take(|_| true)
    }

    /// Takes those whose time is over; all of them when they were not looked at for a while.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<Pending> {
        let look = self.looked_at.is_some_and(|at| at + LOOK_EVERY <= now);
        self.take(|sync| look || sync.is_over(now))
    }

    /// When the next one is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let over = self.syncs.iter().filter_map(Pending::until).min()?;
        Some(self.looked_at.map_or(over, |at| over.min(at + LOOK_EVERY)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.syncs.is_empty()
    }

    fn take(&mut self, which: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        let (taken, kept) = std::mem::take(&mut self.syncs).into_iter().partition::<Vec<_>, _>(which);
        self.syncs = kept;
        if self.syncs.is_empty() {
            self.looked_at = None;
        }
        taken.into_iter().filter(|sync| !sync.caller.has_hung_up()).collect()
    }
}
