//! A child process that outlives us, to stop the cluster however we end.
//!
//! Its standard input is a pipe whose other end we hold. When that closes (we dropped it, or we are gone, even by
//! `kill -9`), it stops the cluster and removes a temporary folder. It is in a process group of its own, so that
//! Ctrl-C does not reach it, and its standard output is a lock on the
//! folder, which is held until it is done.

use std::path::Path;
use std::process::{Child, Stdio};

use super::EmbeddedError;
use super::account::Account;
use super::binaries::Binaries;
use super::folder::Folder;

/// `$1` pg_ctl, `$2` the cluster, `$3` how to stop it, `$4` the folder to remove, or nothing. A stopped (SIGSTOP)
/// postmaster is woken first, else it could not end.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
cat >/dev/null
if [ -f "$2/postmaster.pid" ]; then
    kill -CONT "$(head -n 1 "$2/postmaster.pid")"
    "$1" stop -D "$2" -m "$3" -w -t 60 >/dev/null
fi
[ -z "$4" ] || rm -rf "$4"
"#;

pub(super) struct Guard {
    child: Child,
}

impl Guard {
    pub(super) fn spawn(
        account: &Account,
        binaries: &Binaries,
        folder: &Folder,
    ) -> Result<Self, EmbeddedError> {
        let shell = Path::new("/bin/sh");
        let (mode, remove) =
            if folder.is_temporary() { ("immediate", folder.path()) } else { ("fast", Path::new("")) };
        let child = account
            .command(shell)
            .args(["-c", SCRIPT, "pgsemaphore-guard"])
            .arg(binaries.program("pg_ctl"))
            .arg(folder.data())
            .arg(mode)
            .arg(remove)
            .stdin(Stdio::piped())
            .stdout(folder.lock_for_guard()?)
            .stderr(Stdio::null())
            .spawn()
            .map_err(EmbeddedError::run(shell))?;
        Ok(Self { child })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if let Err(error) = self.child.wait() {
            tracing::warn!(%error, "could not wait for the guard of the embedded PostgreSQL");
        }
    }
}
