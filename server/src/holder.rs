//! Stand-in of the holder.

use crate::refusal::Refusal;
use crate::store::Store;
use pgsemaphore_allocation::SemaphoreKey;
use queue_wire::{Message, Reply};

/// A holder.
#[derive(Debug, Clone)]
pub struct Holder {
    store: Store,
}

impl Holder {
    /// A holder over a store.
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    /// Where policies and usage are read.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// A request.
    pub async fn request(&self, _key: SemaphoreKey, _message: Message) -> Result<Reply, Refusal> {
        Err(Refusal::SemaphoreNotFound)
    }

    /// A sync.
    pub async fn sync(&self, _key: SemaphoreKey, _message: Message) -> Result<Reply, Refusal> {
        Err(Refusal::SemaphoreNotFound)
    }
}
