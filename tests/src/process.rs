//! Binaries, above all `pgsemaphore`, as processes that a test can watch, stop, freeze and kill.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;

use crate::network::Network;
use crate::until::until;

/// The hang guard of a whole run: the demo is the longest.
const LONGEST_RUN: Duration = Duration::from_secs(600);

/// The lines a process has written so far.
type Lines = Arc<Mutex<Vec<String>>>;

/// A running process; it is killed when this value is dropped. If the test fails, what it wrote is shown.
#[derive(Debug)]
#[must_use = "the process is killed when this value is dropped"]
pub struct Process {
    child: Child,
    pid: Pid,
    /// Closes when this process is gone, however it went; `serve --end-with-stdin` ends then.
    stdin: ChildStdin,
    stdout: Lines,
    stderr: Lines,
    readers: [JoinHandle<()>; 2],
}

impl Process {
    /// Starts `pgsemaphore` with these arguments, and no variable of ours that it reads.
    ///
    /// # Panics
    ///
    /// When the binary has not been built.
    pub fn start<I: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = I>) -> Self {
        Self::start_in(arguments, &[])
    }

    /// As [`Process::start`], with these variables.
    ///
    /// # Panics
    ///
    /// When the binary has not been built.
    pub fn start_in<I: AsRef<std::ffi::OsStr>>(
        arguments: impl IntoIterator<Item = I>,
        variables: &[(&str, &str)],
    ) -> Self {
        Self::spawn(&mut Command::new(binary("pgsemaphore")), arguments, variables)
    }

    /// Starts another binary of this workspace.
    ///
    /// # Panics
    ///
    /// When the binary has not been built.
    pub fn start_binary<I: AsRef<std::ffi::OsStr>>(
        name: &str,
        arguments: impl IntoIterator<Item = I>,
    ) -> Self {
        Self::start_binary_in(name, arguments, &[])
    }

    /// As [`Process::start_binary`], with these variables.
    ///
    /// # Panics
    ///
    /// When the binary has not been built.
    pub fn start_binary_in<I: AsRef<std::ffi::OsStr>>(
        name: &str,
        arguments: impl IntoIterator<Item = I>,
        variables: &[(&str, &str)],
    ) -> Self {
        Self::spawn(&mut Command::new(binary(name)), arguments, variables)
    }

    fn spawn<I: AsRef<std::ffi::OsStr>>(
        command: &mut Command,
        arguments: impl IntoIterator<Item = I>,
        variables: &[(&str, &str)],
    ) -> Self {
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("PGSEMAPHORE_") && name != "PGSEMAPHORE_PG_BIN" || name == "DATABASE_URL" {
                command.env_remove(&*name);
            }
        }
        let mut child = command
            .args(arguments)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run it: {error}"));
        let pid =
            child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw).expect("a running child");
        let stdin = child.stdin.take().expect("a piped stdin");
        let (stdout, reader) = collect(child.stdout.take().expect("a piped stdout"));
        let (stderr, other_reader) = collect(child.stderr.take().expect("a piped stderr"));
        let readers = [reader, other_reader];
        Self { child, pid, stdin, stdout, stderr, readers }
    }

    /// Runs `pgsemaphore` with these arguments to its end: exit code, standard output, standard error.
    pub async fn run<I: AsRef<std::ffi::OsStr>>(
        arguments: impl IntoIterator<Item = I>,
    ) -> (i32, String, String) {
        Self::run_in(arguments, &[]).await
    }

    /// As [`Process::run`], with these variables.
    pub async fn run_in<I: AsRef<std::ffi::OsStr>>(
        arguments: impl IntoIterator<Item = I>,
        variables: &[(&str, &str)],
    ) -> (i32, String, String) {
        let mut process = Self::start_in(arguments, variables);
        let code = process.code().await;
        until("its output is read", async || process.readers.iter().all(JoinHandle::is_finished)).await;
        (code, process.stdout(), process.stderr())
    }

    /// Where a binary of this workspace is.
    ///
    /// # Panics
    ///
    /// When it has not been built.
    #[must_use]
    pub fn path(name: &str) -> PathBuf {
        binary(name)
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Its memory that is really there, in bytes.
    ///
    /// # Panics
    ///
    /// When it has ended.
    #[must_use]
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).expect("a process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }

    /// What it has written to standard output so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        joined(&self.stdout)
    }

    /// What it has written to standard error so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        joined(&self.stderr)
    }

    /// Writes a line to its standard input.
    ///
    /// # Panics
    ///
    /// When it has ended.
    pub async fn say(&mut self, line: &str) {
        self.stdin.write_all(format!("{line}\n").as_bytes()).await.expect("it reads");
    }

    /// `kill -9`.
    pub fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    /// Asks it to stop, as a service manager does: SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Ctrl-C: SIGINT.
    pub fn interrupt(&self) {
        self.signal(Signal::SIGINT);
    }

    /// Stops its clock, so to say: SIGSTOP.
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets it go on: SIGCONT.
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Waits until it has ended.
    pub async fn wait(&mut self) -> ExitStatus {
        let ended = tokio::time::timeout(LONGEST_RUN, self.child.wait()).await;
        ended.unwrap_or_else(|_| panic!("{} does not end", self.pid)).expect("the child's status")
    }

    /// Waits until it has ended, and returns the exit code, which it must have.
    pub async fn code(&mut self) -> i32 {
        self.wait().await.code().expect("an exit code, not a signal")
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid, signal).unwrap_or_else(|error| panic!("{signal} to {}: {error}", self.pid));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- standard output of {}\n{}", self.pid, self.stdout());
            eprintln!("--- standard error of {}\n{}", self.pid, self.stderr());
        }
    }
}

/// A running holder: `pgsemaphore serve` that has said where it listens.
#[derive(Debug)]
#[must_use = "the holder is killed when this value is dropped"]
pub struct Serve {
    process: Process,
    url: String,
}

impl Serve {
    /// Starts a holder over this database, on a free port, and waits until it listens.
    pub async fn start(database_url: &str) -> Self {
        Self::start_with(database_url, &[]).await
    }

    /// As [`Serve::start`], with more options of `serve`.
    pub async fn start_with(database_url: &str, options: &[&str]) -> Self {
        Self::with_options(&[&["--database-url", database_url], options].concat()).await
    }

    /// A holder with these options of `serve`; it listens on a free port unless they say otherwise.
    ///
    /// # Panics
    ///
    /// When it ends before it listens.
    pub async fn with_options(options: &[&str]) -> Self {
        Self::start_in(options, &[]).await
    }

    /// As [`Serve::with_options`], with these variables.
    ///
    /// # Panics
    ///
    /// When it ends before it listens.
    pub async fn start_in(options: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::listening(Process::start_in(Self::arguments(options), variables)).await
    }

    /// As [`Serve::with_options`], in a network of its own.
    ///
    /// # Panics
    ///
    /// When it ends before it listens.
    pub async fn start_inside(network: &Network, options: &[&str]) -> Self {
        let mut command = network.command(binary("pgsemaphore").as_os_str()).into();
        Self::listening(Process::spawn(&mut command, Self::arguments(options), &[])).await
    }

    fn arguments<'a>(options: &[&'a str]) -> Vec<&'a str> {
        let mut arguments = vec!["serve", "--end-with-stdin"];
        if !options.contains(&"--listen") {
            arguments.extend(["--listen", "127.0.0.1:0"]);
        }
        arguments.extend(options);
        arguments
    }

    async fn listening(mut process: Process) -> Self {
        until("the holder listens", async || {
            if let Some(status) = process.child.try_wait().expect("the child's status") {
                panic!("the holder ended before it listened: {status}");
            }
            process.stdout().contains('\n')
        })
        .await;
        let first = process.stdout().lines().next().unwrap_or_default().to_owned();
        let url =
            first.strip_prefix("listening on ").unwrap_or_else(|| panic!("first line: {first}")).to_owned();
        Self { process, url }
    }

    /// `http://HOST:PORT`
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl std::ops::Deref for Serve {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl std::ops::DerefMut for Serve {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// The binary that cargo put beside the folder of the test executable.
fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the path of the test executable");
    let folder = test.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
    let binary = folder.join(name);
    assert!(binary.is_file(), "{} is missing: run `make test`, which builds it first", binary.display());
    binary
}

fn collect(stream: impl AsyncRead + Unpin + Send + 'static) -> (Lines, JoinHandle<()>) {
    let lines = Lines::default();
    let sink = Arc::clone(&lines);
    let reader = tokio::spawn(async move {
        let mut reader = BufReader::new(stream).lines();
        while let Ok(Some(line)) = reader.next_line().await {
            sink.lock().expect("no panic while locked").push(line);
        }
    });
    (lines, reader)
}

fn joined(lines: &Lines) -> String {
    lines.lock().expect("no panic while locked").iter().flat_map(|line| [line, "\n"]).collect()
}
