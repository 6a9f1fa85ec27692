//! The server process of a cluster: a direct child, so that its end is seen and it leaves no zombie that looks alive.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::EmbeddedError;
use super::account::Account;
use super::binaries::Binaries;
use super::folder::Folder;

/// How often a starting server is looked at.
const PAUSE: Duration = Duration::from_millis(5);
/// Backends of a postmaster that was killed end by themselves a moment after it; until then a new one refuses.
const ORPHAN_ATTEMPTS: u32 = 100;
const ORPHAN_PAUSE: Duration = Duration::from_millis(100);

/// How a cluster is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Ends all sessions, writes everything to disk.
    Fast,
    /// Ends everything at once; the next start recovers from the log.
    Immediate,
    /// `kill -9` of the postmaster.
    Kill,
}

pub(super) struct Postmaster {
    account: Account,
    binaries: Binaries,
    data: PathBuf,
    log: PathBuf,
    settings: Vec<(String, String)>,
    stop_when_dropped: StopMode,
    child: Option<Child>,
}

pub(super) enum StartFailure {
    /// Something else listens on the port.
    PortTaken,
    /// The server ended; this is what it wrote into its log.
    Ended(String),
    Other(EmbeddedError),
}

impl StartFailure {
    pub(super) fn into_error(self, folder: &Folder) -> EmbeddedError {
        let tail = match self {
            Self::Other(error) => return error,
            Self::PortTaken => "the port is in use by another process".to_owned(),
            Self::Ended(text) => text,
        };
        EmbeddedError::Start { log: folder.log(), tail }
    }
}

impl From<EmbeddedError> for StartFailure {
    fn from(error: EmbeddedError) -> Self {
        Self::Other(error)
    }
}

impl Postmaster {
    pub(super) fn new(
        account: Account,
        binaries: Binaries,
        folder: &Folder,
        settings: Vec<(String, String)>,
    ) -> Self {
        let stop_when_dropped = if folder.is_temporary() { StopMode::Immediate } else { StopMode::Fast };
        let (data, log) = (folder.data(), folder.log());
        Self { account, binaries, data, log, settings, stop_when_dropped, child: None }
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts the server and waits until it accepts connections.
    pub(super) fn start(&mut self, port: u16) -> Result<(), StartFailure> {
        let mut attempts = ORPHAN_ATTEMPTS;
        loop {
            match self.start_once(port) {
                Err(StartFailure::Ended(text))
                    if attempts > 0 && text.contains("pre-existing shared memory") =>
                {
                    attempts -= 1;
                    std::thread::sleep(ORPHAN_PAUSE);
                }
                outcome => return outcome,
            }
        }
    }

    fn start_once(&mut self, port: u16) -> Result<(), StartFailure> {
        let open = || File::options().create(true).append(true).open(&self.log);
        let log = open().map_err(EmbeddedError::file("open", &self.log))?;
        let log_before = log.metadata().map_err(EmbeddedError::file("read", &self.log))?.len();
        let errors = log.try_clone().map_err(EmbeddedError::file("open", &self.log))?;
        let program = self.binaries.program("postgres");
        let mut command = self.account.command(&program);
        command.arg("-D").arg(&self.data).args(["-p", &port.to_string()]).stdout(log).stderr(errors);
        // No socket in the file system: paths that are too long for one, and a second way in.
        let reach = [("listen_addresses", "127.0.0.1"), ("unix_socket_directories", "")];
        for (name, value) in reach {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        for (name, value) in &self.settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        let child = self.child.insert(command.spawn().map_err(EmbeddedError::run(&program))?);
        let pid = child.id();
        while child.try_wait().map_err(EmbeddedError::run(&program))?.is_none() {
            if is_ready(&self.data, pid) {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        self.child = None;
        let text = read_from(&self.log, log_before).map_err(EmbeddedError::file("read", &self.log))?;
        let taken = text.contains("Address already in use");
        Err(if taken { StartFailure::PortTaken } else { StartFailure::Ended(text) })
    }

    /// Stops the server, if it runs, and waits until it has ended.
    pub(super) fn stop(&mut self, mode: StopMode) -> Result<(), EmbeddedError> {
        let Some(child) = &mut self.child else { return Ok(()) };
        let signals: &[Signal] = match mode {
            StopMode::Fast => &[Signal::SIGINT, Signal::SIGCONT],
            StopMode::Immediate => &[Signal::SIGQUIT, Signal::SIGCONT],
            StopMode::Kill => &[Signal::SIGKILL],
        };
        let pid = child.id();
        let target = Pid::from_raw(pid.cast_signed());
        let ended = child.try_wait().map_err(EmbeddedError::run(&self.data))?.is_some();
        if !ended {
            for signal in signals {
                kill(target, *signal).map_err(|source| EmbeddedError::Signal { pid, source })?;
            }
            child.wait().map_err(EmbeddedError::run(&self.data))?;
        }
        self.child = None;
        Ok(())
    }
}

impl Drop for Postmaster {
    fn drop(&mut self) {
        if let Err(error) = self.stop(self.stop_when_dropped) {
            tracing::warn!(%error, "could not stop the embedded PostgreSQL");
        }
    }
}

/// Whether the server with this process id says that it accepts connections: line 8 of `postmaster.pid`.
fn is_ready(data: &std::path::Path, pid: u32) -> bool {
    let Ok(text) = fs::read_to_string(data.join("postmaster.pid")) else { return false };
    let mut lines = text.lines();
    lines.next().is_some_and(|line| line.trim() == pid.to_string())
        && lines.nth(6).is_some_and(|line| matches!(line.trim(), "ready" | "standby"))
}

fn read_from(path: &std::path::Path, offset: u64) -> std::io::Result<String> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}
