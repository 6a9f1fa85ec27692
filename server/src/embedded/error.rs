use std::path::PathBuf;

/// Why a private PostgreSQL could not be used, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// No `initdb` and `postgres` on this machine.
    #[error(
        "the PostgreSQL server is not installed (looked in {looked_in}): install it (Debian: apt-get install \
         postgresql), or set PGSEMAPHORE_PG_BIN to the folder that holds initdb and postgres"
    )]
    BinariesMissing {
        /// The places that were searched.
        looked_in: String,
    },
    /// The installed server is older than the oldest supported one.
    #[error("PostgreSQL {found} in {} is too old: install version {oldest} or later", folder.display())]
    TooOld {
        /// Where the binaries are.
        folder: PathBuf,
        /// Their major version.
        found: u32,
        /// The oldest major version that is supported.
        oldest: u32,
    },
    /// The folder was made by another major version of PostgreSQL.
    #[error(
        "the cluster in {} was made by PostgreSQL {made_by}, but only {installed} is installed: install PostgreSQL \
         {made_by}, or move the cluster with pg_upgrade",
        folder.display()
    )]
    OtherVersion {
        /// The cluster's folder.
        folder: PathBuf,
        /// The major version that made it.
        made_by: String,
        /// The newest major version that was found.
        installed: String,
    },
    /// We are root, PostgreSQL refuses to be, and there is no account to run it as.
    #[error(
        "PostgreSQL does not run as root, and there is no user `postgres` to run it as: create it (useradd --system \
         postgres), or start pgsemaphore as another user"
    )]
    NoAccount,
    /// The user that PostgreSQL runs as cannot enter a folder on the way.
    #[error(
        "user `{user}`, as which PostgreSQL runs, cannot enter {}: choose a folder outside of it, or allow it with \
         chmod o+x",
        folder.display()
    )]
    Blocked {
        /// The folder that blocks.
        folder: PathBuf,
        /// The user that PostgreSQL runs as.
        user: String,
    },
    /// The folder holds something else.
    #[error("{} is not empty and holds no PostgreSQL cluster of pgsemaphore: choose a new or empty folder", folder.display())]
    NotOurs {
        /// The folder.
        folder: PathBuf,
    },
    /// Another process runs the cluster of this folder.
    #[error("{} is in use by another pgsemaphore: stop that one first, or choose another folder", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// A file or folder could not be read, created or changed.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A program could not be run.
    #[error("cannot run {}: {source}", program.display())]
    Run {
        /// The program.
        program: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// `initdb` ran and failed.
    #[error("initdb could not create a cluster in {}: {output}", folder.display())]
    Initdb {
        /// The cluster's folder.
        folder: PathBuf,
        /// What it printed.
        output: String,
    },
    /// The server ended before it was ready.
    #[error("PostgreSQL did not start; its log, {}, ends with: {tail}", log.display())]
    Start {
        /// The log file.
        log: PathBuf,
        /// What the server wrote into it at this start.
        tail: String,
    },
    /// No free port could be found.
    #[error("found no free port on 127.0.0.1 for PostgreSQL: are thousands of them in use?")]
    NoPort,
    /// The postmaster could not be signalled.
    #[error("cannot stop PostgreSQL (process {pid}): {source}")]
    Signal {
        /// The postmaster.
        pid: u32,
        /// What the system said.
        source: nix::Error,
    },
}

impl EmbeddedError {
    /// For `map_err`: a failed operation on a file.
    pub(super) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }

    /// For `map_err`: a program that could not be started.
    pub(super) fn run(program: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let program = program.into();
        move |source| Self::Run { program, source }
    }
}
