//! What the handles, permits, waiters and the driver of one key share.
//!
//! Authoritative for the hand-over between tasks and the ledger, under one short lock. Not authoritative for whether a
//! permit exists (`ledger`) or what is sent (`driver.rs`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use queue_wire::Problem;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tracing::Span;

use crate::admission::Group;
use crate::blocked::{Blocked, Cause, Standing};
use crate::client::Inner;
use crate::driving::NoRuntime;
use crate::error::{AcquireError, DrainError, Undrained};
use crate::ledger::{Drawn, Ledger, Served, Waiter};
use crate::permit::{Permit, Source};
use crate::place::Turn;
use crate::waits::Waits;

pub(crate) struct Shared {
    pub(crate) key: String,
    pub(crate) client: Arc<Inner>,
    state: Mutex<State>,
    /// The driver has something to look at.
    pub(crate) wake: Notify,
    /// The driver has looked.
    pub(crate) progress: Notify,
    /// Permits that are in use may not be counted any more.
    pub(crate) lost: Notify,
    /// The driver has ended before its work did: those who wait start a new one.
    pub(crate) orphaned: Notify,
}

pub(crate) struct State {
    pub(crate) ledger: Ledger,
    pub(crate) waiting: BTreeMap<Waiter, Waiting>,
    /// Why who waits waits.
    pub(crate) standing: Standing,
    /// Why nothing is given any more.
    pub(crate) stopped: Option<AcquireError>,
    /// Which long waits were told.
    pub(crate) waits: Waits,
    /// What the holder refused last, until it answers again.
    pub(crate) refused: Option<Box<Problem>>,
    /// A driver task runs (`driving.rs`). It ends when the ledger is settled.
    pub(crate) driven: bool,
}

/// Somebody who waits.
pub(crate) struct Waiting {
    pub(crate) turn: oneshot::Sender<Turn>,
    pub(crate) span: Span,
}

impl Shared {
    pub(crate) fn new(
        key: String,
        client: Arc<Inner>,
        ledger: Ledger,
        stopped: Option<AcquireError>,
    ) -> Self {
        let (waiting, standing) = (BTreeMap::new(), Standing::default());
        let state = State {
            ledger,
            waiting,
            standing,
            stopped,
            waits: Waits::default(),
            refused: None,
            driven: false,
        };
        let [wake, progress, lost, orphaned] = [(); 4].map(|()| Notify::new());
        Self { key, client, state: Mutex::new(state), wake, progress, lost, orphaned }
    }

    /// What an earlier process held of the key, and was not declared, goes back without anybody waiting.
    pub(crate) fn reconcile(self: &Arc<Self>) {
        self.state().ledger.reconcile();
        self.stir();
    }

    /// The permit of this name, if it is detached.
    pub(crate) fn attach(self: &Arc<Self>, permit: &str, group: &str) -> Option<Permit> {
        let mut state = self.state();
        let block = state.ledger.attach(permit)?;
        let fund = state.ledger.fund(group);
        drop(state);
        Some(Permit::new(Group::new(self.clone(), fund), Source::Block(block)))
    }

    /// Held for a few operations in memory, never across an await.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.client.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Gives nothing any more, for `reason`.
    pub(crate) fn stop(self: &Arc<Self>, reason: &AcquireError) {
        let mut state = self.state();
        state.fail_waiting(reason);
        state.ledger.drain();
        state.refused = None;
        state.stopped.get_or_insert_with(|| reason.clone());
        drop(state);
        self.progress.notify_waiters();
        self.stir();
    }

    /// Why nothing is given any more.
    pub(crate) fn stopped(&self) -> Option<AcquireError> {
        self.state().stopped.clone()
    }

    /// Waits until nothing is given any more.
    pub(crate) async fn until_stopped(&self) {
        loop {
            let progress = self.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            if self.stopped().is_some() {
                return;
            }
            progress.await;
        }
    }

    /// Waits until the holder has confirmed that nothing counts but what is detached.
    pub(crate) async fn drained(self: &Arc<Self>) -> Result<(), DrainError> {
        loop {
            let (progress, orphaned) = (self.progress.notified(), self.orphaned.notified());
            tokio::pin!(progress, orphaned);
            progress.as_mut().enable();
            orphaned.as_mut().enable();
            if let Some(end) = self.end_of_drain() {
                return end;
            }
            self.start_driver(self.state()).map_err(|NoRuntime| DrainError::NoRuntime)?;
            tokio::select! {
                () = progress => {}
                () = orphaned => {}
            }
        }
    }

    fn end_of_drain(&self) -> Option<Result<(), DrainError>> {
        let state = self.state();
        if state.ledger.is_drained() {
            return Some(Ok(()));
        }
        let running = state.ledger.running() > state.ledger.detached();
        let problem = state.refused.clone().filter(|_| !running)?;
        Some(Err(DrainError::Refused { key: self.key.clone(), problem }))
    }

    /// What it waits for, if it is not drained.
    pub(crate) fn undrained(&self) -> Option<Undrained> {
        let state = self.state();
        (!state.ledger.is_drained()).then(|| Undrained {
            key: self.key.clone(),
            running: state.ledger.running().saturating_sub(state.ledger.detached()),
            unconfirmed: state.ledger.unconfirmed(),
            unreachable: state.standing.is_unreachable(),
        })
    }
}

impl Drop for Shared {
    /// What is not confirmed stays with the client.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let empty = Ledger::new(self.client.identity.clone(), 0);
        let ledger = std::mem::replace(&mut state.ledger, empty);
        self.client.forget(&self.key, ledger);
    }
}

impl State {
    pub(crate) fn try_serve(&mut self, group: &str) -> Option<Drawn> {
        if self.stopped.is_some() { None } else { self.ledger.try_serve(group) }
    }

    pub(crate) fn put_back(&mut self, source: &Source) {
        match source {
            Source::Block(block) => self.ledger.put_back(block),
            Source::Lease(ticket) => self.ledger.release_ticket(*ticket),
            Source::Nowhere => {}
        }
    }

    /// Tells waiters whose turn has come.
    pub(crate) fn hand_out(&mut self) {
        loop {
            let served = self.ledger.served();
            if served.is_empty() {
                return;
            }
            for Served { waiter, block, ticket } in served {
                let sent = match self.waiting.remove(&waiter) {
                    Some(waiting) => waiting.turn.send(Ok(Source::new(block, ticket))),
                    None => Err(Ok(Source::new(block, ticket))),
                };
                if let Err(Ok(source)) = sent {
                    self.put_back(&source);
                }
            }
        }
    }

    /// There is nothing to say, and nothing that has to be said later.
    pub(crate) fn is_done(&self) -> bool {
        self.ledger.is_settled() && self.waiting.is_empty()
    }

    /// The groups of which it is to be told now that somebody waits for long, and when to look again.
    pub(crate) fn long_waits(&mut self, now_ms: u64, started: Instant) -> (Vec<Blocked>, Option<u64>) {
        if self.waiting.is_empty() {
            return (Vec::new(), None);
        }
        let Self { waits, ledger, .. } = self;
        let waiting = ledger.waiting_groups().filter_map(|group| Some((group, ledger.waiting(group)?.1)));
        let due = waits.due(now_ms, waiting);
        let look_at = Some(waits.look_at());
        (due.iter().filter_map(|group| self.blocked(group, started)).collect(), look_at)
    }

    pub(crate) fn fail_waiting(&mut self, reason: &AcquireError) {
        self.ledger.cancel_all();
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            // A waiter that has just gone needs no reason.
            let _ = waiting.turn.send(Err(reason.clone()));
        }
    }

    /// Adds up who waits, by why.
    #[cfg(feature = "otel")]
    pub(crate) fn count_waiting(&self, causes: &mut [(Cause, u64)]) {
        for group in self.ledger.waiting_groups() {
            let cause = self.standing.of(group).map_or(Cause::Asked, |(cause, _)| cause);
            let waiting = self.ledger.waiting(group).map_or(0, |(waiting, _)| waiting);
            if let Some((_, items)) = causes.iter_mut().find(|(known, _)| *known == cause) {
                *items += waiting;
            }
        }
    }

    /// Why whoever waits in `group` waits. The ledger's times count from `started`.
    pub(crate) fn blocked(&self, group: &str, started: Instant) -> Option<Blocked> {
        let (waiting, oldest_ms) = self.ledger.waiting(group)?;
        let oldest = started + Duration::from_millis(oldest_ms);
        let (cause, since) = self.standing.of(group).unwrap_or((Cause::Asked, oldest));
        Some(Blocked { group: group.to_owned(), waiting, cause, since: since.max(oldest).into_std() })
    }
}
