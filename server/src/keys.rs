//! Which keys have an actor.

use crate::actor::{Actor, Command};
use crate::holder::Shared;
use pgsemaphore_allocation::SemaphoreKey;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

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
            shared.tasks.spawn(Actor::new(key.clone(), shared.clone(), inbox).run());
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
