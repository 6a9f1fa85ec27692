//! How a message gets to a holder and its reply back.
//!
//! Authoritative for what a failed call tells the driver. Not authoritative for when it is repeated: a transport
//! neither retries nor reorders, except that it may go to another holder when it is sure that the first did nothing.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use queue_wire::{Message, Problem, Reply, TakenOver, Takeover, printable};

/// What a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// States demand; waits for the key's next round.
    Request,
    /// Brings reports; answered at once, or, with a `wait_ms`, when the holder has news for the client.
    Sync,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "request",
            Self::Sync => "sync",
        })
    }
}

/// A call under way.
pub type Calling<'a, T = Reply> = Pin<Box<dyn Future<Output = Result<T, CallError>> + Send + 'a>>;

/// Carries messages to a holder. [`HttpTransport`](crate::HttpTransport) is the default one.
pub trait Transport: Send + Sync + 'static {
    /// Sends `message` about the semaphore `key` and waits for the reply.
    ///
    /// A call must end by itself some day, with [`CallError::Unreachable`] if nothing else. One that hangs holds nothing up:
    /// what a sync says is said again, in another call, when no answer comes in time ([`ledger`](crate::ledger)). A transport
    /// with several addresses sends that to another one; it ends a call that waits when it finds no sign of life.
    ///
    /// A request may take as long as the policy's round wait, up to a minute, and somewhat more; a call with a `wait_ms`
    /// that much longer.
    ///
    /// # Cancel safety
    ///
    /// The driver drops a call that a later one has superseded. Dropping it should tell the holder that nobody waits
    /// for the answer; whether the message had an effect is then unknown, which the protocol allows for.
    fn call<'a>(&'a self, key: &'a str, endpoint: Endpoint, message: &'a Message) -> Calling<'a>;

    /// Takes over what earlier processes of `client_id` hold, on all keys. Repeating it is harmless.
    ///
    /// # Cancel safety
    ///
    /// When it is dropped, whether it had an effect is unknown.
    fn take_over<'a>(&'a self, client_id: &'a str, takeover: &'a Takeover) -> Calling<'a, TakenOver>;
}

/// Why a call has no reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The holder will never accept this message from this client (400, 401, 403 and the like). Repeating is no use.
    #[error("the holder refused: {0}")]
    Refused(Box<Problem>),
    /// No policy covers the key (404 `semaphore_not_found`). A sync gets this only if no block of it exists either.
    #[error("no policy covers the semaphore: {0}")]
    NotFound(Box<Problem>),
    /// A later call of this process took this one's place (409 `superseded`).
    #[error("a later call took this one's place")]
    Superseded,
    /// The holder has shut this process out (409 `client_fenced`): it was declared dead, or another process uses its
    /// `client_id`.
    #[error("the holder has shut this client out; the lowest generation it admits is {generation:?}")]
    Fenced {
        /// The lowest generation that the holder admits.
        generation: Option<u64>,
    },
    /// The holder can't answer now (429, 503 and the like).
    #[error("the holder asks to come back later: {}", printable(detail))]
    RetryLater {
        /// How long the holder asks to be left alone.
        after: Option<Duration>,
        /// What it said.
        detail: String,
    },
    /// The answer is not one of a holder, but of something on the way to it: it says nothing about the message, and whether
    /// that had an effect is unknown.
    #[error("the answer is not one of a holder: {detail}")]
    Foreign {
        /// How long the answer asks to wait.
        after: Option<Duration>,
        /// Status and headers, for people.
        detail: String,
    },
    /// No answer; whether the message had an effect is unknown.
    #[error("no answer from the holder")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl CallError {
    /// In metrics.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::NotFound(_) => "not_found",
            Self::Superseded => "superseded",
            Self::Fenced { .. } => "fenced",
            Self::RetryLater { .. } => "retry_later",
            Self::Foreign { .. } => "foreign",
            Self::Unreachable(_) => "unreachable",
        }
    }
}
