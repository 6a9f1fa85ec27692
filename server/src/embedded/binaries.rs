//! Finds the server binaries: `PGSEMAPHORE_PG_BIN`, then Debian's folders, newest first, then `PATH`.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::EmbeddedError;
use super::folder::Folder;

const OLDEST_MAJOR: u32 = 15;
const DEBIAN: &str = "/usr/lib/postgresql";

#[derive(Debug, Clone)]
pub(super) struct Binaries {
    pub(super) folder: PathBuf,
}

impl Binaries {
    /// The newest binaries, or those that made the cluster of `cluster` when there is one already.
    pub(super) fn find(cluster: &Folder) -> Result<Self, EmbeddedError> {
        let wanted = cluster.cluster_version()?;
        let found = match std::env::var_os("PGSEMAPHORE_PG_BIN") {
            Some(folder) => vec![PathBuf::from(folder)],
            None => installed(),
        };
        let mut newest: Option<(u32, PathBuf)> = None;
        for folder in found.into_iter().filter(|folder| is_complete(folder)) {
            // They are run from another folder than ours.
            let folder = folder.canonicalize().map_err(EmbeddedError::file("read", &folder))?;
            let major = major_version(&folder)?;
            if wanted.as_ref().is_some_and(|wanted| *wanted == major.to_string()) {
                return Ok(Self { folder });
            }
            if newest.as_ref().is_none_or(|(best, _)| major > *best) {
                newest = Some((major, folder));
            }
        }
        let (major, folder) = newest.ok_or_else(|| EmbeddedError::BinariesMissing { looked_in: places() })?;
        match wanted {
            Some(made_by) => Err(EmbeddedError::OtherVersion {
                folder: cluster.path().to_owned(),
                made_by,
                installed: major.to_string(),
            }),
            None if major < OLDEST_MAJOR => {
                Err(EmbeddedError::TooOld { folder, found: major, oldest: OLDEST_MAJOR })
            }
            None => Ok(Self { folder }),
        }
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

fn installed() -> Vec<PathBuf> {
    let debian =
        std::fs::read_dir(DEBIAN).into_iter().flatten().flatten().map(|entry| entry.path().join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    debian.chain(std::env::split_paths(&path)).collect()
}

fn places() -> String {
    match std::env::var_os("PGSEMAPHORE_PG_BIN") {
        Some(folder) => format!("PGSEMAPHORE_PG_BIN={}", folder.display()),
        None => format!("{DEBIAN}/*/bin and PATH"),
    }
}

fn is_complete(folder: &Path) -> bool {
    ["initdb", "postgres", "pg_ctl"].iter().all(|name| folder.join(name).is_file())
}

fn major_version(folder: &Path) -> Result<u32, EmbeddedError> {
    let program = folder.join("postgres");
    let output = Command::new(&program).arg("--version").output().map_err(EmbeddedError::run(&program))?;
    Ok(parse_major(&String::from_utf8_lossy(&output.stdout)).unwrap_or(0))
}

/// `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`, `postgres (PostgreSQL) 18beta1`
fn parse_major(version: &str) -> Option<u32> {
    let number = version.split_whitespace().nth(2)?;
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::parse_major;

    #[test]
    fn versions() {
        assert_eq!(parse_major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(parse_major("postgres (PostgreSQL) 18beta1"), Some(18));
        assert_eq!(parse_major("postgres"), None);
    }
}
