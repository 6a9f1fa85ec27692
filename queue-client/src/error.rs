//! What can go wrong, for the application. Outages are not here: the client waits through them.
//!
//! `Debug` is the sentence that `Display` is, with its sources: a `main` that returns an error prints it by `Debug`.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use queue_wire::Problem;

use crate::blocked::Cause;

/// What each error says of a fork.
const FORKED: &str =
    "the client was made by another process, of which this one is a fork: build a client after the fork";

/// Why [`acquire`](crate::Semaphore::acquire) gave no permit. Each says what to do; none but `TimedOut` passes by itself.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// No policy covers the key.
    #[error(
        "no policy covers the semaphore {key:?}: make one, as with `pgsemaphore policy set {} --limit 10`, then acquire again",
        shell_word(key)
    )]
    SemaphoreNotFound {
        /// The semaphore's key.
        key: String,
    },
    /// The holder will not accept this client's calls, for instance because its token is wrong or lacks the scope.
    #[error("the holder refused: {0}; correct it, then acquire again")]
    Refused(Box<Problem>),
    /// The holder has shut this process out of the semaphore: another one took over under its `client_id`, or somebody
    /// settled the client. Permits that it holds of this semaphore are not counted any more
    /// ([`Permit::is_counted`](crate::Permit::is_counted)); other semaphores are not concerned.
    #[error(
        "this process is shut out of the semaphore: another one took over under its client_id, or the client was \
         settled, and its permits are not counted any more. Let what runs end, then start a new process, of a \
         generation of at least {}", .generation.map_or_else(|| "its start time in ms".to_owned(), |g| g.to_string())
    )]
    Fenced {
        /// The lowest generation that the holder admits under this `client_id`.
        generation: Option<u64>,
    },
    /// The time of an [`acquire_timeout`](crate::Group::acquire_timeout) is over.
    #[error("no permit in the time given{}: try again later", .cause.map(|cause| format!(": {cause}")).unwrap_or_default())]
    TimedOut {
        /// Why it waited at the end.
        cause: Option<Cause>,
    },
    /// The client drains or has drained.
    #[error("the client is draining: it gives no more permits; build a new one to go on")]
    Draining,
    /// No task can be started: the caller is outside a Tokio runtime, or its runtime has no timers or is shutting down.
    #[error(
        "there is no Tokio runtime that can run the client's tasks: await acquire within one that has timers and I/O enabled and is \
         not shutting down, or build the client with own_thread()"
    )]
    NoRuntime,
    /// The process is a fork of the one that made the client, and both would go by one name.
    #[error("{}", FORKED)]
    Forked,
    /// The key or the group can't be a name.
    #[error("the {part} {why}: use another one")]
    InvalidName {
        /// `key` or `group`.
        part: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

/// Why a client can't do its work, found by [`check`](crate::QueueClient::check).
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// No holder answers, or none that can do anything now.
    #[error("no holder answers: {error}")]
    Unreachable {
        /// What is known of it, and where it can be seen, what to do.
        error: String,
    },
    /// The holder will not accept this client's calls, for instance because its token is wrong or lacks the scope.
    #[error("the holder refused a call about {key:?} ({} {}): {}; correct it, then check again", .problem.status, .problem.title, .problem.detail)]
    Refused {
        /// The semaphore's key.
        key: String,
        /// What the holder said.
        problem: Box<Problem>,
    },
    /// No policy covers the key.
    #[error(
        "no policy covers the semaphore {key:?}: make one, as with `pgsemaphore policy set {} --limit 10`, then check again",
        shell_word(key)
    )]
    SemaphoreNotFound {
        /// The semaphore's key.
        key: String,
    },
    /// The key can't be a name.
    #[error("the key {0}: use another one")]
    InvalidKey(String),
    /// It is awaited outside a Tokio runtime.
    #[error("there is no Tokio runtime: await check within one")]
    NoRuntime,
    /// The process is a fork of the one that made the client, and both would go by one name.
    #[error("{}", FORKED)]
    Forked,
}

/// Why [`drain`](crate::QueueClient::drain) could not give everything back.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DrainError {
    /// The holder will not accept this client's last reports.
    #[error(
        "the holder refused the last reports of {key:?}: {problem}; \
         correct it and drain again, or let an operator settle the client"
    )]
    Refused {
        /// The semaphore whose permits may still be counted.
        key: String,
        /// What the holder said.
        problem: Box<Problem>,
    },
    /// No task can be started: the caller is outside a Tokio runtime, or its runtime has no timers or is shutting down.
    #[error(
        "there is no Tokio runtime that can run the client's tasks: await drain within one that has timers and I/O enabled and is \
         not shutting down, or build the client with own_thread()"
    )]
    NoRuntime,
    /// The process is a fork of the one that made the client, and both would go by one name.
    #[error("{}", FORKED)]
    Forked,
    /// The time of a [`drain_timeout`](crate::QueueClient::drain_timeout) is over.
    #[error("not drained in {limit:?}: {}; drain again to go on", list(.left))]
    TimedOut {
        /// How long it was tried.
        limit: Duration,
        /// What is left, by semaphore.
        left: Vec<Undrained>,
    },
}

/// What of one semaphore is left when a drain's time is over.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Undrained {
    /// The semaphore's key.
    pub key: String,
    /// Permits that are held: their items run. Detached ones are not among them.
    pub running: u64,
    /// Permits that nobody here uses, of which no holder has confirmed yet that it has them back. What was not claimed
    /// comes back by its deadline, all else when a successor takes over or the client is settled.
    pub unconfirmed: u64,
    /// No holder answers.
    pub unreachable: bool,
}

macro_rules! debug_is_the_sentence {
    ($($error:ty)*) => {$(
        impl fmt::Debug for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&chain(self))
            }
        }
    )*};
}

debug_is_the_sentence! { AcquireError CheckError DrainError ResumeError TakeOverError BuildError }

/// An error and what it comes from.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let sources = std::iter::successors(error.source(), |&error| error.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}

/// A key as a shell takes it for one word. What may not be copied from a terminal is escaped, so it shows.
fn shell_word(key: &str) -> String {
    format!("'{}'", key.escape_debug().to_string().replace("\\'", "'").replace('\'', r"'\''"))
}

fn list(left: &[Undrained]) -> String {
    let said = left.iter().map(|Undrained { key, running, unconfirmed, unreachable }| {
        let unreachable = if *unreachable { ", and no holder answers" } else { "" };
        format!("{key:?}: {running} permits in use, {unconfirmed} given back and not confirmed{unreachable}")
    });
    said.collect::<Vec<_>>().join("; ")
}

/// Why [`resume`](crate::QueueClient::resume) made no permit.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process knows of no such detached permit of {key:?}, group {group:?}: it was resumed before, or was not among \
     those given to Builder::resume, and then it is released"
)]
pub struct ResumeError {
    /// The semaphore's key.
    pub key: String,
    /// The item's group.
    pub group: String,
}

/// Why [`take_over`](crate::QueueClient::take_over) did not.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TakeOverError {
    /// The holder will not accept this client's calls, for instance because its token is wrong or lacks the scope.
    #[error("the holder refused: {0}; correct it, then take over again")]
    Refused(Box<Problem>),
    /// The process is a fork of the one that made the client, and both would go by one name.
    #[error("{}", FORKED)]
    Forked,
    /// A later process has taken over from this one.
    #[error("a later process has taken over from this one: the lowest generation admitted is {generation:?}")]
    Fenced {
        /// The lowest generation that the holder admits.
        generation: Option<u64>,
    },
}

/// Why [`Builder::build`](crate::Builder::build) made no client.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Neither a URL nor a transport was given.
    #[error("no holder to talk to: give at least one url, or a transport")]
    NoHolder,
    /// A URL is not an absolute http or https URL.
    #[error("{url:?} is not the URL of a holder, such as http://127.0.0.1:7432: {why}")]
    InvalidUrl {
        /// The URL as given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The client_id can't be one.
    #[error("the client_id {0}")]
    InvalidClientId(String),
    /// The number of connections is out of range.
    #[error("the connections to each holder must be 3 to 1000, not {0}")]
    InvalidConnections(usize),
    /// The generation is out of range.
    #[error("the generation must be 1 to 2^53 - 1, not {0}")]
    InvalidGeneration(u64),
    /// A permit that was to be resumed is another client's.
    #[error(
        "a detached permit is of the client_id {of:?}: give the client that client_id, or leave the permit out"
    )]
    ForeignPermit {
        /// Whose it is.
        of: String,
    },
    /// A client that resumes speaks to the holder in the background, which takes a Tokio runtime.
    #[error("a client that resumes must be built within a Tokio runtime, or have a thread of its own")]
    NoRuntime,
    /// The client's own thread could not be started.
    #[error("the client's own thread can't be started")]
    OwnThread(#[source] std::io::Error),
    /// An environment variable can't be used.
    #[error("the environment variable {name}: {why}")]
    Environment {
        /// Its name.
        name: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The token has characters that no HTTP header may have.
    #[error("the token can't be sent in an HTTP header")]
    InvalidToken,
    /// The file with the token can't be used.
    #[error("the token file {}: {why}", .path.display())]
    TokenFile {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// What should be a certificate or a key is none.
    #[error("the {what} must be in PEM")]
    InvalidCertificate {
        /// What it should be.
        what: &'static str,
    },
    /// The system's root certificates could not be loaded, or those that were given can't be used.
    #[error("TLS can't be set up")]
    Tls(#[source] rustls::Error),
    /// The HTTP client could not be made.
    #[error("the HTTP client can't be set up")]
    Http(#[source] reqwest::Error),
}
