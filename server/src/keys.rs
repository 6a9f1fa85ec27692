//! Which keys have an actor.

use crate::actor::{Actor, Command};
use crate::holder::Shared;
use crate::panics;
use pgsemaphore_allocation::SemaphoreKey;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The actors of a holder by key.
#[derive(Default)]
pub(crate) struct Keys {
    actors: Mutex<HashMap<SemaphoreKey, UnboundedSender<Command>>>,
}

impl Keys {
    /// Tells a key's actor; starts one if there is none.
    pub(crate) fn send(&self, shared: &Arc<Shared>, key: &SemaphoreKey, command: Command) {
        let mut actors = self.actors.lock().unwrap_or_else(PoisonError::into_inner);
        let command = match actors.get(key) {
            Some(actor) => match actor.send(command) {
                Ok(()) => return,
                Err(unsent) => unsent.0,
            },
            None => command,
        };
        let (actor, inbox) = unbounded_channel();
        if actor.send(command).is_ok() {
            shared.tasks.spawn(act(shared.clone(), key.clone(), inbox));
            actors.insert(key.clone(), actor);
        }
    }

    /// Tells a key's actor, if there is one.
    pub(crate) fn tell(&self, key: &SemaphoreKey, command: Command) {
        let actors = self.actors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(actor) = actors.get(key) {
            let _ended = actor.send(command);
        }
    }

    /// Forgets a key's actor that ended without leaving, unless another one took its place.
    fn remove_ended(&self, key: &SemaphoreKey) {
        let mut actors = self.actors.lock().unwrap_or_else(PoisonError::into_inner);
        if actors.get(key).is_some_and(UnboundedSender::is_closed) {
            actors.remove(key);
        }
    }

    /// Whether a key has one.
    pub(crate) fn contain(&self, key: &SemaphoreKey) -> bool {
        self.actors.lock().unwrap_or_else(PoisonError::into_inner).contains_key(key)
    }

    /// The keys that have one.
    pub(crate) fn all(&self) -> Vec<SemaphoreKey> {
        self.actors.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// How many keys have one.
    pub(crate) fn len(&self) -> usize {
        self.actors.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Forgets a key's actor if it agrees, which it is asked while nobody can tell it anything.
    pub(crate) fn remove_if(&self, key: &SemaphoreKey, agrees: impl FnOnce() -> bool) -> bool {
        let mut actors = self.actors.lock().unwrap_or_else(PoisonError::into_inner);
        let leaves = agrees();
        if leaves {
            actors.remove(key);
        }
        leaves
    }
}

/// Runs a key's actor. After a panic its callers are refused, and the next command starts another one.
async fn act(shared: Arc<Shared>, key: SemaphoreKey, inbox: UnboundedReceiver<Command>) {
    let actor = Actor::new(key.clone(), shared.clone(), inbox);
    if panics::caught("actor", shared.store.metrics(), actor.run()).await.is_none() {
        shared.keys.remove_ended(&key);
    }
}
