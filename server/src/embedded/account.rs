//! As whom PostgreSQL runs: as ourselves, or as user `postgres` when we are root, which PostgreSQL refuses to be.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::unistd::{Uid, User};

use super::EmbeddedError;

#[derive(Debug, Clone)]
pub(super) struct Account {
    /// Set when it is not ours.
    other: Option<User>,
}

impl Account {
    pub(super) fn for_this_process() -> Result<Self, EmbeddedError> {
        if !Uid::effective().is_root() {
            return Ok(Self { other: None });
        }
        let postgres = User::from_name("postgres").ok().flatten().ok_or(EmbeddedError::NoAccount)?;
        Ok(Self { other: Some(postgres) })
    }

    /// A command that runs as this account, away from our terminal and signals, and that no `PG...` variable of ours
    /// can misdirect.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("LC_ALL", "C").env("TZ", "UTC");
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.current_dir("/").stdin(Stdio::null()).process_group(0);
        if let Some(user) = &self.other {
            // std drops the supplementary groups too.
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
    }

    /// Gives a folder or file of ours to this account.
    pub(super) fn own(&self, path: &Path) -> Result<(), EmbeddedError> {
        let Some(user) = &self.other else { return Ok(()) };
        std::os::unix::fs::chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
            .map_err(EmbeddedError::file("give user postgres", path))
    }

    /// Checks that this account can enter `folder`, and names the folder on the way that blocks if not.
    pub(super) fn must_reach(&self, folder: &Path) -> Result<(), EmbeddedError> {
        let Some(user) = &self.other else { return Ok(()) };
        let mut way: Vec<&Path> = folder.ancestors().collect();
        way.reverse();
        for step in way {
            let entered = self
                .command(Path::new("/bin/sh"))
                .args(["-c", "test -x \"$1\"", "sh"])
                .arg(step)
                .status()
                .map_err(EmbeddedError::run("/bin/sh"))?;
            if !entered.success() {
                return Err(EmbeddedError::Blocked { folder: step.to_owned(), user: user.name.clone() });
            }
        }
        Ok(())
    }
}
