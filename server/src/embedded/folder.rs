//! The folder of a cluster: `data` (the cluster), `log`, `password`, `port`, `url`, and two locks. `lock` is held by the process that
//! uses the folder, `guard.lock` by its guard, until the cluster is down.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::distr::{Alphanumeric, SampleString as _};

use super::EmbeddedError;
use super::account::Account;
use super::binaries::Binaries;

const LOCK: &str = "lock";
const GUARD_LOCK: &str = "guard.lock";
const ENTRIES: [&str; 8] = ["data", "data.new", "log", "password", PORT, URL, LOCK, GUARD_LOCK];
const PORT: &str = "port";
const URL: &str = "url";

/// How long to wait for the guard of a process that was killed.
const GUARD_ATTEMPTS: u32 = 600;
const GUARD_PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Folder {
    path: PathBuf,
    temporary: bool,
    _lock: File,
}

impl Folder {
    /// Creates the folder if it is not there, checks that it is ours and that `account` can enter it, and locks it.
    pub(super) fn open(path: Option<&Path>, account: &Account) -> Result<Self, EmbeddedError> {
        let temporary = path.is_none();
        let path = match path {
            Some(path) => create(path)?,
            None => tempfile::Builder::new()
                .prefix("pgsemaphore-")
                .permissions(Permissions::from_mode(0o700))
                .tempdir()
                .map_err(EmbeddedError::file("create a folder in", std::env::temp_dir()))?
                .keep(),
        };
        let path = path.canonicalize().map_err(EmbeddedError::file("read", &path))?;
        account.own(&path)?;
        account.must_reach(&path)?;
        let lock = lock(&path, LOCK, 1)?;
        Ok(Self { path, temporary, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_temporary(&self) -> bool {
        self.temporary
    }

    pub(super) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// The lock of the guard, once an earlier guard of this folder is done.
    pub(super) fn lock_for_guard(&self) -> Result<File, EmbeddedError> {
        lock(&self.path, GUARD_LOCK, GUARD_ATTEMPTS)
    }

    /// The major version that made the cluster; none if there is no cluster yet.
    pub(super) fn cluster_version(&self) -> Result<Option<String>, EmbeddedError> {
        read_word(&self.data().join("PG_VERSION"))
    }

    /// The port that the cluster had last; none before its first start.
    pub(super) fn last_port(&self) -> Result<Option<u16>, EmbeddedError> {
        Ok(read_word(&self.path.join(PORT))?.and_then(|word| word.parse().ok()))
    }

    /// Keeps the port for the next start, and the URL, which may contain the password, for people who may read it.
    pub(super) fn keep_address(&self, port: u16, url: &str) -> Result<(), EmbeddedError> {
        write_private(&self.path.join(PORT), &format!("{port}\n"))?;
        write_private(&self.path.join(URL), &format!("{url}\n"))
    }

    /// Creates the cluster unless there is one; the answer is the password of its superuser, if it has one.
    pub(super) fn create_cluster(
        &self,
        account: &Account,
        binaries: &Binaries,
        with_password: bool,
        durable: bool,
    ) -> Result<Option<String>, EmbeddedError> {
        let password_file = self.path.join("password");
        if self.cluster_version()?.is_some() {
            return read_word(&password_file);
        }
        // Renamed once it is complete: what an interrupted initdb left is not taken for a cluster.
        let draft = self.path.join("data.new");
        if draft.exists() {
            fs::remove_dir_all(&draft).map_err(EmbeddedError::file("remove", &draft))?;
        }
        let program = binaries.program("initdb");
        let mut initdb = account.command(&program);
        initdb.args(["--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--pgdata"]).arg(&draft);
        if !durable {
            initdb.arg("--no-sync");
        }
        let password = with_password.then(|| Alphanumeric.sample_string(&mut rand::rng(), 32));
        if let Some(password) = &password {
            write_private(&password_file, password)?;
            account.own(&password_file)?;
            initdb.arg("--auth=scram-sha-256").arg("--pwfile").arg(&password_file);
        } else {
            initdb.arg("--auth=trust");
        }
        let output = initdb.output().map_err(EmbeddedError::run(&program))?;
        if !output.status.success() {
            let output = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(EmbeddedError::Initdb { folder: self.path.clone(), output });
        }
        fs::rename(&draft, self.data()).map_err(EmbeddedError::file("rename", &draft))?;
        Ok(password)
    }
}

fn create(path: &Path) -> Result<PathBuf, EmbeddedError> {
    if !path.exists() {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(EmbeddedError::file("create", parent))?;
        }
        DirBuilder::new().mode(0o700).create(path).map_err(EmbeddedError::file("create", path))?;
    }
    for entry in fs::read_dir(path).map_err(EmbeddedError::file("read", path))? {
        let name = entry.map_err(EmbeddedError::file("read", path))?.file_name();
        if !ENTRIES.iter().any(|known| name == *known) {
            return Err(EmbeddedError::NotOurs { folder: path.to_owned() });
        }
    }
    Ok(path.to_owned())
}

fn lock(folder: &Path, name: &str, attempts: u32) -> Result<File, EmbeddedError> {
    let path = folder.join(name);
    let file = File::create(&path).map_err(EmbeddedError::file("create", &path))?;
    for attempt in 1..=attempts {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if attempt < attempts => std::thread::sleep(GUARD_PAUSE),
            Err(TryLockError::WouldBlock) => break,
            Err(TryLockError::Error(source)) => return Err(EmbeddedError::file("lock", path)(source)),
        }
    }
    Err(EmbeddedError::InUse { folder: folder.to_owned() })
}

fn read_word(path: &Path) -> Result<Option<String>, EmbeddedError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(EmbeddedError::file("read", path)(error)),
    }
}

fn write_private(path: &Path, text: &str) -> Result<(), EmbeddedError> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        std::io::Write::write_all(&mut file, text.as_bytes())
    };
    write().map_err(EmbeddedError::file("write", path))
}
