//! The processes of the demo: this same binary, as a holder and as workers.
//!
//! Each holds on to a pipe from us as its standard input and ends when that closes, so none outlives the demo. What they
//! log goes to a file each, of which the end is shown when something fails.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use super::{DATABASE_VARIABLE, DemoError};

pub(super) struct Process {
    name: String,
    child: Child,
    /// Closed, it asks the process to end.
    stdin: Option<ChildStdin>,
    log: PathBuf,
}

impl Process {
    /// Starts `pgsemaphore ARGUMENTS`.
    pub(super) fn start(
        name: &str,
        folder: &Path,
        database_url: &str,
        arguments: &[String],
    ) -> Result<Self, DemoError> {
        let log = folder.join(format!("{name}.log"));
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .env(DATABASE_VARIABLE, database_url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .kill_on_drop(true)
            .spawn()?;
        let stdin = child.stdin.take();
        Ok(Self { name: name.to_owned(), child, stdin, log })
    }

    /// The first line it writes; an error if it ends without one.
    pub(super) async fn first_line(&mut self) -> Result<String, DemoError> {
        let stdout =
            self.child.stdout.as_mut().ok_or_else(|| std::io::Error::other("a process without an output"))?;
        let line = BufReader::new(stdout).lines().next_line().await?;
        line.ok_or_else(|| DemoError::Silent { name: self.name.clone(), log: self.end_of_log() })
    }

    /// An error if the process has failed; whether it has ended.
    pub(super) fn check(&mut self) -> Result<bool, DemoError> {
        match self.child.try_wait()? {
            Some(status) => self.judge(status).map(|()| true),
            None => Ok(false),
        }
    }

    /// Asks it to end, and waits until it has.
    pub(super) async fn end(mut self) -> Result<(), DemoError> {
        drop(self.stdin.take());
        let status = self.child.wait().await?;
        self.judge(status)
    }

    pub(super) fn end_of_log(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(5)..].join("; ");
        if tail.is_empty() { "its log is empty".to_owned() } else { tail }
    }

    fn judge(&self, status: ExitStatus) -> Result<(), DemoError> {
        if status.success() {
            return Ok(());
        }
        Err(DemoError::Process { name: self.name.clone(), status, log: self.end_of_log() })
    }
}
