//! A private PostgreSQL, run from the server binaries that are installed on this machine.
//!
//! `serve --embedded`, `demo` and the test kit use it. One [`Embedded`] is one cluster in one folder, listening on
//! 127.0.0.1 only, and it lives no longer than this process: it is stopped when the value is dropped, and by a guard
//! process when this process ends in any other way, `kill -9` included.
//!
//! Authoritative for: where the binaries are, the cluster's folder, its port, its lifetime.
//! Not for: what is in the databases; migrations are run by the caller.
//! On failure: every [`EmbeddedError`] says what to do about it, and nothing is left running.
//!
//! All of this blocks: call it from `main` or from `tokio::task::spawn_blocking`.

mod account;
mod binaries;
mod error;
mod folder;
mod guard;
mod postmaster;

pub use error::EmbeddedError;
pub use postmaster::StopMode;

use std::path::{Path, PathBuf};

use account::Account;
use binaries::Binaries;
use folder::Folder;
use guard::Guard;
use postmaster::{Postmaster, StartFailure};
use rand::Rng as _;

/// Ports below the range from which Linux and macOS take the ports of outgoing connections: no client can hold the
/// cluster's port while it restarts.
const PORTS: std::ops::Range<u16> = 20_000..30_000;
const PORT_ATTEMPTS: usize = 20;

/// Where the cluster lives and how it is set up.
#[derive(Debug, Clone)]
pub struct Options {
    folder: Option<PathBuf>,
    durable: bool,
    password: bool,
    settings: Vec<(String, String)>,
}

impl Options {
    /// A cluster that stays in `folder` between starts: durable, and reached with a password that only the owner of
    /// the folder can read. It keeps its port if that is free at the next start, and its URL is in the file `url` of the
    /// folder. The folder is created if it does not exist.
    #[must_use]
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()), durable: true, password: true, settings: default_settings() }
    }

    /// A cluster in a new temporary folder, which is removed with it.
    #[must_use]
    pub fn temporary() -> Self {
        Self { folder: None, durable: true, password: true, settings: default_settings() }
    }

    /// For tests: `fsync = off`, and no password. Commits survive a killed PostgreSQL but not a machine that loses
    /// power.
    #[must_use]
    pub fn fast_and_open(mut self) -> Self {
        self.durable = false;
        self.password = false;
        for name in ["fsync", "full_page_writes"] {
            self.settings.push((name.into(), "off".into()));
        }
        self
    }

    /// One more server setting, as in `postgres -c name=value`; the last one of a name wins.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }
}

/// SERIALIZABLE transactions want room for predicate locks: without it PostgreSQL merges them into coarser ones, and
/// transactions that touch different rows abort each other.
fn default_settings() -> Vec<(String, String)> {
    [
        ("max_pred_locks_per_transaction", "1024"),
        ("max_pred_locks_per_page", "64"),
        ("max_pred_locks_per_relation", "4096"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}

/// A running private cluster; dropping it stops the cluster and, if it is temporary, removes its folder.
#[must_use = "the cluster stops when this value is dropped"]
pub struct Embedded {
    // Fields drop in this order: the postmaster stops, then the guard finds nothing left to stop and tidies up.
    postmaster: Postmaster,
    _guard: Guard,
    folder: Folder,
    port: u16,
    password: Option<String>,
}

impl Embedded {
    /// Creates the cluster if the folder has none, and starts it.
    ///
    /// # Errors
    ///
    /// When PostgreSQL is not installed, when the folder cannot be used, or when the server does not start.
    pub fn start(options: &Options) -> Result<Self, EmbeddedError> {
        let account = Account::for_this_process()?;
        let folder = Folder::open(options.folder.as_deref(), &account)?;
        let binaries = Binaries::find(&folder)?;
        account.must_reach(&binaries.folder)?;
        let guard = Guard::spawn(&account, &binaries, &folder)?;
        let password = folder.create_cluster(&account, &binaries, options.password, options.durable)?;
        let mut postmaster = Postmaster::new(account, binaries, &folder, options.settings.clone());
        let port = start_on_a_port(&mut postmaster, &folder)?;
        let cluster = Self { postmaster, _guard: guard, folder, port, password };
        cluster.folder.keep_address(port, &cluster.url())?;
        Ok(cluster)
    }

    /// Where the database `postgres` of this cluster is reached. Contains the password, if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_for("postgres")
    }

    /// Where the database `database` of this cluster is reached. Contains the password, if there is one.
    #[must_use]
    pub fn url_for(&self, database: &str) -> String {
        let password = self.password.as_ref().map(|word| format!(":{word}")).unwrap_or_default();
        format!("postgres://postgres{password}@127.0.0.1:{}/{database}", self.port)
    }

    /// The folder that holds the cluster, its log and its password.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process id of the postmaster; none while the cluster is stopped.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.postmaster.pid()
    }

    /// Stops the cluster and waits until it is down. [`Embedded::restart`] starts it again on the same port.
    ///
    /// # Errors
    ///
    /// When the postmaster cannot be signalled.
    pub fn stop(&mut self, mode: StopMode) -> Result<(), EmbeddedError> {
        self.postmaster.stop(mode)
    }

    /// Stops the cluster if it runs, and starts it again on the same port: URLs stay valid.
    ///
    /// # Errors
    ///
    /// When the server does not start.
    pub fn restart(&mut self) -> Result<(), EmbeddedError> {
        self.postmaster.stop(StopMode::Fast)?;
        self.postmaster.start(self.port).map_err(|failure| failure.into_error(&self.folder))
    }
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded")
            .field("folder", &self.folder.path())
            .field("port", &self.port)
            .field("pid", &self.pid())
            .finish_non_exhaustive()
    }
}

/// A TCP port of 127.0.0.1 that nothing listens on, from a range that outgoing connections don't use. Another process
/// may take it before the caller does: be ready to try again.
///
/// # Errors
///
/// When no free port is found in a number of attempts.
pub fn free_port() -> Result<u16, EmbeddedError> {
    let mut random = rand::rng();
    (0..1000)
        .map(|_| random.random_range(PORTS))
        .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .ok_or(EmbeddedError::NoPort)
}

/// Starts the cluster on the port that it had last, so that URLs stay valid; where that is taken, on a free one.
fn start_on_a_port(postmaster: &mut Postmaster, folder: &Folder) -> Result<u16, EmbeddedError> {
    let last = folder.last_port()?;
    for attempt in 0..PORT_ATTEMPTS {
        let port = last.filter(|_| attempt == 0).map_or_else(free_port, Ok)?;
        match postmaster.start(port) {
            Ok(()) => {
                if let Some(last) = last.filter(|last| *last != port) {
                    tracing::warn!("port {last} of the embedded PostgreSQL is taken: it has port {port} now");
                }
                return Ok(port);
            }
            Err(StartFailure::PortTaken) => {}
            Err(failure) => return Err(failure.into_error(folder)),
        }
    }
    Err(EmbeddedError::NoPort)
}
