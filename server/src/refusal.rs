//! Why a holder does not answer a request or a sync with a reply.

use queue_wire::SAFE_INTEGER_MAX;

/// What a process is told that does not speak for its client any more.
fn fenced(lowest: u64) -> String {
    let how = match lowest {
        ..=SAFE_INTEGER_MAX => format!("as generation {lowest} or higher"),
        _ => "under another client_id, because no higher generation exists,".to_owned(),
    };
    format!(
        "this process does not speak for the client any more: start nothing more, and come back {how} when its items \
         have ended"
    )
}

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
    #[error("{}", fenced(*generation))]
    Fenced {
        /// The lowest generation admitted. Above 2^53 - 1 there is none that a request may say.
        generation: u64,
    },
    /// Too many calls wait already.
    #[error("too many calls wait; ask again later")]
    TooManyWaiting,
    /// The database can't be used right now; nothing is known to have been done.
    #[error("the database is unavailable; ask again later")]
    Unavailable,
    /// No round of this key can be numbered. Syncs go on.
    #[error(
        "the round numbers of this key are used up, so nothing more can be granted: its row in the database is \
         damaged; syncs still take reports, and an idle key can be deleted"
    )]
    RoundsUsedUp,
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
