use std::net::SocketAddr;
use std::path::PathBuf;

use crate::demo::DemoError;
use crate::embedded::EmbeddedError;
use crate::live::Unusable;
use crate::store::{PolicyError, SettleError, StoreError, UninstallError};

/// Why a command failed: one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// No database was named.
    #[error("which database? give --database-url, or set PGSEMAPHORE_DATABASE_URL or DATABASE_URL")]
    NoDatabase,
    /// The database URL is not one.
    #[error("{0}")]
    DatabaseUrl(#[source] StoreError),
    /// A URL whose password, it seems, is not percent-encoded.
    #[error(
        "the database URL has an @ or a # behind its host: percent-encode the password (%40, %23), or give it in \
         PGSEMAPHORE_DATABASE_PASSWORD"
    )]
    Unencoded,
    /// The database did not do it.
    #[error("{database}: {source}")]
    Database {
        /// Where it is, without the password.
        database: String,
        /// What went wrong.
        source: StoreError,
    },
    /// A policy was refused.
    #[error("policy {pattern:?}: {detail}")]
    Policy {
        /// Of which pattern.
        pattern: String,
        /// The field that breaks a rule, and what is wrong.
        detail: String,
    },
    /// A file of policies can't be used.
    #[error("{}: {detail}; nothing was applied", .file.display())]
    PolicyFile {
        /// Which file.
        file: PathBuf,
        /// The policy and the field that break a rule, and what is wrong.
        detail: String,
    },
    /// There is no such policy.
    #[error("no policy has the pattern {0:?}: `pgsemaphore policy list` shows those there are")]
    NoPolicy(String),
    /// There is no such semaphore.
    #[error(
        "nothing is known of {0:?}: no policy matches it (`pgsemaphore policy set` makes one) and nobody uses it"
    )]
    NoSemaphore(String),
    /// There is no such client.
    #[error(
        "no client {client:?} was ever heard of on {key:?}: `pgsemaphore client list` shows those there are"
    )]
    NoClient {
        /// The semaphore.
        key: String,
        /// The client.
        client: String,
    },
    /// A client that was heard lately was to be settled, and nobody agreed.
    #[error("nothing was settled: {0}; if nothing of it runs any more, answer yes, or say --yes")]
    ClientHeard(String),
    /// Counters are not what they should be.
    #[error(
        "{0} counters differ from the blocks that they count: `pgsemaphore audit --repair` puts them right"
    )]
    Drift(usize),
    /// Nobody said that everything is to be removed.
    #[error("nothing was removed: answer yes, or say --yes")]
    Unconfirmed,
    /// Permits are in use.
    #[error(
        "nothing was removed: {0} permits are in use (`pgsemaphore usage` shows where); stop the clients first, or say \
         --force"
    )]
    InUse(i64),
    /// Everybody who can reach the address could use, and change, everything.
    #[error(
        "{0} can be reached from other machines, and no access tokens are configured: give --client-token-file and \
         --admin-token-file, or listen on 127.0.0.1, or say --insecure if the network is trusted"
    )]
    Exposed(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another with --listen (port 0: any free one)")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file or a variable that the configuration names can't be used.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The private PostgreSQL could not be used.
    #[error("{0}")]
    Embedded(#[from] EmbeddedError),
    /// The demo failed.
    #[error("{0}")]
    Demo(#[from] DemoError),
    /// The result could not be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[source] std::io::Error),
    /// The process lacks what it needs to start at all.
    #[error("cannot start: {0}")]
    Runtime(#[source] std::io::Error),
}

impl CliError {
    pub(super) fn database(database: &str, source: StoreError) -> Self {
        Self::Database { database: database.to_owned(), source }
    }

    pub(super) fn settle(key: &str, client: &str, database: &str, error: SettleError) -> Self {
        match error {
            SettleError::NotFound => Self::NoClient { key: key.to_owned(), client: client.to_owned() },
            SettleError::Heard(what) => Self::ClientHeard(what),
            SettleError::Store(source) => Self::database(database, source),
        }
    }

    pub(super) fn uninstall(database: &str, error: UninstallError) -> Self {
        match error {
            UninstallError::Held(permits) => Self::InUse(permits),
            UninstallError::Store(source) => Self::database(database, source),
        }
    }

    pub(super) fn policy(pattern: &str, database: &str, error: PolicyError) -> Self {
        match error {
            PolicyError::Invalid { detail, .. } => Self::Policy { pattern: pattern.to_owned(), detail },
            PolicyError::NotFound => Self::NoPolicy(pattern.to_owned()),
            PolicyError::Store(source) => Self::database(database, source),
        }
    }

    /// 2 for what the caller has to say otherwise, else 1.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::NoDatabase
            | Self::DatabaseUrl(_)
            | Self::Exposed(_)
            | Self::Unusable(_)
            | Self::Unencoded
            | Self::Policy { .. }
            | Self::PolicyFile { .. }
            | Self::Unconfirmed
            | Self::ClientHeard(_) => 2,
            _ => 1,
        }
    }
}
