use std::process::ExitStatus;

use crate::embedded::EmbeddedError;
use crate::store::{PolicyError, StoreError};

/// Why the demo, or one of its workers, failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    /// The private PostgreSQL could not be used.
    #[error("{0}")]
    Embedded(#[from] EmbeddedError),
    /// The schema could not be set up or read.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The policy could not be set.
    #[error("{0}")]
    Policy(#[from] PolicyError),
    /// The table of jobs could not be read or written.
    #[error("the table of jobs: {0}")]
    Jobs(#[from] sqlx::Error),
    /// A process could not be started, or a file not be written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The holder ended before it listened.
    #[error("the holder did not start: {0}")]
    Holder(String),
    /// A process of the demo ended without a line of output.
    #[error("{name} ended without a word: {log}")]
    Silent {
        /// Which.
        name: String,
        /// The end of its log.
        log: String,
    },
    /// A process of the demo ended with a failure.
    #[error("{name} ended with {status}: {log}")]
    Process {
        /// Which.
        name: String,
        /// How.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// The jobs were not done in time.
    #[error("after {seconds} s {left} jobs are not done: {log}")]
    TooSlow {
        /// How long it took.
        seconds: u64,
        /// How many are left.
        left: i64,
        /// The end of the holder's log.
        log: String,
    },
    /// What ran is not what should have run.
    #[error("the promise was broken: {0}")]
    Broken(String),
    /// A worker was started by hand.
    #[error("a worker of the demo is started by `pgsemaphore demo`, not by hand")]
    NoDatabase,
    /// The process that started this worker is gone.
    #[error("the demo has ended")]
    Orphaned,
    /// The worker could not make a client.
    #[error("{0}")]
    Client(#[from] queue_client::BuildError),
    /// The worker was refused permits.
    #[error("{0}")]
    Acquire(#[from] queue_client::AcquireError),
    /// The worker could not give everything back.
    #[error("{0}")]
    Drain(#[from] queue_client::DrainError),
}
