//! A waiter's place in the queue of its group: taken, served, or given up.
//!
//! Authoritative for what happens when a waiter is dropped, at whatever moment. Not authoritative for whose turn it is:
//! the ledger says that.

use std::pin::pin;
use std::sync::{Arc, MutexGuard};

use queue_wire::{COUNT_MAX, GROUP_MAX_BYTES, KEY_MAX_BYTES};
use tokio::sync::oneshot;
use tracing::Span;

use crate::driving::NoRuntime;
use crate::error::AcquireError;
use crate::ledger::Waiter;
use crate::permit::Source;
use crate::shared::{Shared, State, Waiting};

/// What a waiter is told when its turn has come.
pub(crate) type Turn = Result<Source, AcquireError>;

/// Dropped with a waiter in it, it is given up.
pub(crate) struct Place<'a> {
    shared: &'a Arc<Shared>,
    waiter: Option<Waiter>,
    turn: oneshot::Receiver<Turn>,
}

impl<'a> Place<'a> {
    pub(crate) fn take(shared: &'a Arc<Shared>, group: &str) -> Result<Self, AcquireError> {
        let mut state = admit(shared, group)?;
        let place = Self::enqueue(shared, &mut state, group);
        state.hand_out();
        Ok(place)
    }

    /// Places one behind the other.
    pub(crate) fn take_several(
        shared: &'a Arc<Shared>,
        group: &str,
        most: usize,
    ) -> Result<Vec<Self>, AcquireError> {
        let most = most.min(usize::try_from(COUNT_MAX).unwrap_or(usize::MAX));
        let mut state = admit(shared, group)?;
        let places = (0..most).map(|_| Self::enqueue(shared, &mut state, group)).collect();
        state.hand_out();
        Ok(places)
    }

    fn enqueue(shared: &'a Arc<Shared>, state: &mut State, group: &str) -> Self {
        let span = Span::current(); // a panic of the application's subscriber comes before the change
        let waiter = state.ledger.enqueue(group, shared.now_ms());
        let (sender, turn) = oneshot::channel();
        state.waiting.insert(waiter.clone(), Waiting { turn: sender, span });
        Self { shared, waiter: Some(waiter), turn }
    }

    /// Waits until it is served, or until nobody is any more.
    pub(crate) async fn turn(&mut self) -> Turn {
        let source = self.told().await??;
        self.waiter = None;
        Ok(source)
    }

    /// Waits with a driver, also when the one that there was has ended.
    async fn told(&mut self) -> Result<Turn, AcquireError> {
        loop {
            let mut orphaned = pin!(self.shared.orphaned.notified());
            orphaned.as_mut().enable();
            self.shared.drive(self.shared.state()).map_err(|NoRuntime| AcquireError::NoRuntime)?;
            tokio::select! {
                biased;
                told = &mut self.turn => return Ok(told.unwrap_or(Err(AcquireError::Draining))),
                () = orphaned => {}
            }
        }
    }

    /// What those of the places got that have been served by now.
    pub(crate) fn served(places: &mut [Self]) -> Vec<Source> {
        let Some(place) = places.first() else { return Vec::new() };
        let state = place.shared.state(); // whoever hands out has finished
        let served = places.iter_mut().filter_map(|place| {
            let source = place.turn.try_recv().ok()?.ok()?;
            place.waiter = None;
            Some(source)
        });
        let served = served.collect();
        drop(state);
        served
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        let mut state = self.shared.state();
        if state.waiting.remove(&waiter).is_some() {
            state.ledger.cancel(&waiter);
        } else if let Ok(Ok(source)) = self.turn.try_recv() {
            state.put_back(&source);
            state.hand_out();
        }
        drop(state);
        self.shared.stir();
    }
}

/// Whether anybody may wait at all.
fn admit<'a>(shared: &'a Shared, group: &str) -> Result<MutexGuard<'a, State>, AcquireError> {
    check("key", &shared.key, 1, KEY_MAX_BYTES)?;
    check("group", group, 0, GROUP_MAX_BYTES)?;
    if !shared.client.is_original() {
        return Err(AcquireError::Forked);
    }
    let state = shared.state();
    match &state.stopped {
        Some(stopped) => Err(stopped.clone()),
        None => Ok(state),
    }
}

fn check(part: &'static str, name: &str, min: usize, max: usize) -> Result<(), AcquireError> {
    queue_wire::check_text(name, min, max).map_err(|why| AcquireError::InvalidName { part, why })
}
