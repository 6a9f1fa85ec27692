//! Who makes a request, as far as requests of one process take each other's place.

use pgsemaphore_allocation::ClientId;
use queue_wire::Message;

/// A process that speaks for a client, and which of its calls this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Speaker {
    pub(crate) client: ClientId,
    process: Option<String>,
    generation: u64,
    call: Option<u64>,
}

impl Speaker {
    /// Who makes the call that brings `message`.
    pub(crate) fn of(message: &Message) -> Self {
        Self {
            client: ClientId::new(message.client_id.as_str()),
            process: message.process.clone(),
            generation: message.generation,
            call: message.call,
        }
    }

    /// Same client and process, whatever the generation.
    pub(crate) fn is_same_process(&self, other: &Self) -> bool {
        self.client == other.client && self.process == other.process
    }

    /// Same client and process; not of a lower generation, which is for the transaction to refuse.
    pub(crate) fn may_be_superseded_by(&self, new: &Self) -> bool {
        self.is_same_process(new) && self.generation <= new.generation
    }

    /// Whether the client made this call after that one, as far as it says.
    pub(crate) fn is_newer_than(&self, other: &Self) -> bool {
        self.call.zip(other.call).is_none_or(|(call, other)| call > other)
    }

    /// Whether this call gives way to that one of the same process.
    pub(crate) fn gives_way_to(&self, new: &Self) -> bool {
        self.may_be_superseded_by(new) && new.is_newer_than(self)
    }
}
