//! Why a holder does not answer a request or a sync with a reply.

/// A refusal; the HTTP layer maps each to a status and a code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Neither a policy nor state exists for the key.
    #[error("no policy matches this key; set one with PUT /v1/policies/{{pattern}}")]
    SemaphoreNotFound,
    /// A newer call of the same process took this call's place.
    #[error("a newer call of this process superseded this one")]
    Superseded,
    /// The process was declared dead, or another one speaks for the client.
    #[error(
        "this process does not speak for the client any more: start nothing more, and come back as generation \
         {generation} or higher when its items have ended"
    )]
    Fenced {
        /// The lowest generation admitted.
        generation: u64,
    },
    /// Too many calls wait already.
    #[error("too many calls wait; ask again later")]
    TooManyWaiting,
    /// The database can't be used right now; nothing is known to have been done.
    #[error("the database is unavailable; ask again later")]
    Unavailable,
    /// This holder stops; another one answers.
    #[error("this holder is shutting down; ask again")]
    ShuttingDown,
    /// A field is wrong in a way that only the database's state shows.
    #[error("{detail}")]
    Invalid {
        /// JSON Pointer into the body.
        field: &'static str,
        /// What is wrong and what to do.
        detail: String,
    },
}
