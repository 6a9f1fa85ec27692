//! What can go wrong with the database, by what follows from it.

use super::fitness::refused_write;
use pgsemaphore_allocation::Violation;
use sqlx::migrate::MigrateError;

/// A lock that could not be had in time.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// A failed operation of the [`Store`](super::Store).
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database URL can't be read.
    #[error("the database URL can't be read ({}); it looks like postgres://user@host:5432/database", cause(.0))]
    Url(#[source] sqlx::Error),
    /// Nothing answers, or not in time. Nothing is known to have been done.
    #[error("the database does not answer: {}", cause(.0))]
    Unavailable(#[source] sqlx::Error),
    /// The database does not let this user in, or has no such database.
    #[error("the database refuses the login: {}", cause(.0))]
    Login(#[source] sqlx::Error),
    /// Commits are not durable before they are told.
    #[error(
        "the database has synchronous_commit = off, so what a reply says could be lost; set it to on or local"
    )]
    NotDurable,
    /// The address leads to a standby.
    #[error(
        "the database is a standby, which takes no writes: it has to be promoted, or the address to lead elsewhere"
    )]
    Standby,
    /// Transactions are read-only.
    #[error("the database is set to read-only (default_transaction_read_only)")]
    ReadOnly,
    /// Sessions behind a pooler are not set up as a holder needs them.
    #[error(
        "behind the pooler these settings are missing: {missing}; give them to the login with ALTER ROLE ... SET, or \
         log in as pgsemaphore_holder, which has them (`pgsemaphore roles create`)"
    )]
    Settings {
        /// Which, as `name = value`.
        missing: String,
    },
    /// A pooler refuses what a session asks for.
    #[error("there is a pooler in between ({}): only `serve` works through one, with --pooler", cause(.0))]
    Pooler(#[source] sqlx::Error),
    /// The schema is older than this binary.
    #[error("the schema is at version {found}, this holder needs {needed}: run `pgsemaphore migrate`")]
    Schema {
        /// Latest migration applied, 0 if none.
        found: i64,
        /// Latest migration of this binary.
        needed: i64,
    },
    /// A schema of ours belongs to somebody else, whose code this login would run.
    #[error(
        "schema {schema} belongs to {owner}, so this login would run what {owner} put into it: log in as {owner}, or \
         drop the schema if nobody knows where it comes from"
    )]
    ForeignSchema {
        /// Which one.
        schema: String,
        /// Whose it is.
        owner: String,
    },
    /// A migration failed.
    #[error("the migration failed: {0}")]
    Migrate(#[source] MigrateError),
    /// Another session holds a lock that a migration needs, and kept it for too long.
    #[error(
        "another session has held a lock for 15 s that the migration needs: another migration, or one that was left \
         open (`SELECT * FROM pg_locks` shows it); run `pgsemaphore migrate` again when it has ended"
    )]
    MigrateLocked,
    /// Other transactions kept getting in between, or the connection kept breaking.
    #[error("gave up after {attempts} attempts, the last one: {last}")]
    GaveUp {
        /// How many.
        attempts: usize,
        /// What ended the last one.
        #[source]
        last: Box<StoreError>,
    },
    /// A write did not hit the rows it should: another transaction has them.
    #[error("the key's row was taken by another transaction")]
    Fenced,
    /// A plan broke a promise; it was rolled back.
    #[error("a plan broke a promise and was rolled back: {0}")]
    Violation(#[source] Violation),
    /// A row that can't be, or a statement that the database refused: a fault of this program or of its schema.
    #[error("the database refused a statement: {}", cause(.0))]
    Fault(#[source] sqlx::Error),
}

impl StoreError {
    pub(super) fn of_migration(error: MigrateError) -> Self {
        match &error {
            MigrateError::Execute(cause) | MigrateError::ExecuteMigration(cause, _)
                if code(cause) == Some(LOCK_NOT_AVAILABLE) =>
            {
                Self::MigrateLocked
            }
            _ => Self::Migrate(error),
        }
    }

    /// Whether repeating the transaction on fresh reads can help: a serialization failure, a deadlock, a fence that
    /// another transaction moved, or a connection that broke.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Fenced => true,
            Self::Unavailable(error) => is_broken(error) || code(error).is_some_and(is_transient),
            _ => false,
        }
    }

    /// Whether another transaction kept a row locked for as long as a statement waits for it.
    pub(crate) fn is_locked_out(&self) -> bool {
        matches!(self, Self::Unavailable(error) if code(error) == Some(LOCK_NOT_AVAILABLE))
    }

    /// Whether the server answers, and takes no writes.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, Self::Standby | Self::ReadOnly)
    }

    /// Whether it is the database that is in trouble, and not this program or its schema.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Self::GaveUp { last, .. } => last.is_outage(),
            Self::Fenced | Self::Violation(_) | Self::Fault(_) | Self::ForeignSchema { .. } => false,
            _ => true,
        }
    }
}

impl StoreError {
    /// Whether PostgreSQL gave up a statement that took too long.
    pub(crate) fn is_timeout(&self) -> bool {
        matches!(self, Self::Unavailable(error) if code(error) == Some("57014"))
    }

    /// What a transient error was, in metrics.
    pub(super) fn kind_of_conflict(&self) -> &'static str {
        match self {
            Self::Fenced => "fence",
            Self::Unavailable(error) => match code(error) {
                Some("40001") => "serialization",
                Some("40P01") => "deadlock",
                Some(LOCK_NOT_AVAILABLE) => "lock",
                _ => "connection",
            },
            _ => "connection",
        }
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let error = match error {
            sqlx::Error::Configuration(why) => match why.downcast() {
                Ok(ours) => return *ours,
                Err(why) => sqlx::Error::Configuration(why),
            },
            error => error,
        };
        if refused_write(&error) {
            return Self::ReadOnly;
        }
        if code(&error).is_some_and(is_login) {
            return Self::Login(error);
        }
        if is_pooler(&error) {
            return Self::Pooler(error);
        }
        let unavailable = match &error {
            sqlx::Error::Database(e) => e.code().is_some_and(|code| is_transient(&code) || is_away(&code)),
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::Protocol(_) => true,
            _ => false,
        };
        if unavailable { Self::Unavailable(error) } else { Self::Fault(error) }
    }
}

/// What happened, without the phrases that sqlx puts around it.
fn cause(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Io(error) => error.to_string(),
        sqlx::Error::Database(error) => error.message().to_owned(),
        sqlx::Error::Configuration(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// A wrong user, password or database.
fn is_login(code: &str) -> bool {
    code.starts_with("28") || code == "3D000"
}

/// What PgBouncer says of the settings of a session that asks for some at its start.
fn is_pooler(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(e) if e.message().contains("unsupported startup parameter"))
}

/// A connection that ended. One that just does not answer is another matter: the next one would not, either.
fn is_broken(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(error) if error.kind() != std::io::ErrorKind::TimedOut)
}

fn code(error: &sqlx::Error) -> Option<&str> {
    match error {
        sqlx::Error::Database(e) => e.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().map(|e| e.code()),
        _ => None,
    }
}

/// Serialization failure, deadlock, and a session that was ended: by an administrator or a stop of the server (57P01 to
/// 57P03), because it idled (57P05) or idled in a transaction (25P03), as that of a holder does that was frozen; 08xxx.
fn is_transient(code: &str) -> bool {
    matches!(code, "40001" | "40P01" | "57P01" | "57P02" | "57P03" | "57P05" | "25P03")
        || code.starts_with("08")
}

/// A lock, statement or connection that could not be had in time.
fn is_away(code: &str) -> bool {
    matches!(code, LOCK_NOT_AVAILABLE | "57014" | "25P04") || code.starts_with("53")
}
