//! A waiter's place in the queue of its group: taken, served, or given up.
//!
//! Authoritative for what happens when a waiter is dropped, at whatever moment. Not authoritative for whose turn it is:
//! the ledger says that.

use std::sync::{Arc, MutexGuard};

use queue_wire::{COUNT_MAX, GROUP_MAX_BYTES, KEY_MAX_BYTES};
use tokio::sync::oneshot;
use tracing::Span;

use crate::error::AcquireError;
use crate::ledger::Waiter;
use crate::permit::Source;
use crate::shared::{Shared, State, Waiting};

/// What a waiter is told when its turn has come.
pub(crate) type Turn = Result<Source, AcquireError>;

/// Dropped with a waiter in it, it is given up.
pub(crate) struct Place<'a> {
    shared: &'a Shared,
    waiter: Option<Waiter>,
    turn: oneshot::Receiver<Turn>,
}

impl<'a> Place<'a> {
    pub(crate) fn take(shared: &'a Arc<Shared>, group: &str) -> Result<Self, AcquireError> {
        let mut state = admit(shared, group)?;
        let place = Self::enqueue(shared, &mut state, group);
        state.hand_out();
        shared.drive(state);
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
        shared.drive(state);
        Ok(places)
    }

    fn enqueue(shared: &'a Arc<Shared>, state: &mut State, group: &str) -> Self {
        let waiter = state.ledger.enqueue(group, shared.now_ms());
        let (sender, turn) = oneshot::channel();
        state.waiting.insert(waiter.clone(), Waiting { turn: sender, span: Span::current() });
        Self { shared, waiter: Some(waiter), turn }
    }

    /// Waits until it is served, or until nobody is any more.
    pub(crate) async fn turn(&mut self) -> Turn {
        let source = (&mut self.turn).await.unwrap_or(Err(AcquireError::Draining))?;
        self.waiter = None;
        Ok(source)
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
        self.shared.wake.notify_one();
    }
}

/// Whether anybody may wait at all.
fn admit<'a>(shared: &'a Shared, group: &str) -> Result<MutexGuard<'a, State>, AcquireError> {
    check("key", &shared.key, 1, KEY_MAX_BYTES)?;
    check("group", group, 0, GROUP_MAX_BYTES)?;
    let state = shared.state();
    match &state.stopped {
        Some(stopped) => Err(stopped.clone()),
        None => Ok(state),
    }
}

fn check(part: &'static str, name: &str, min: usize, max: usize) -> Result<(), AcquireError> {
    queue_wire::check_text(name, min, max).map_err(|why| AcquireError::InvalidName { part, why })
}
