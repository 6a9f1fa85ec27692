//! Files that are read again when their contents change: tokens and certificates, replaced without a restart.
//!
//! Contents are compared, not times: a mounted secret is swapped as a link. What can't be used is logged once, and the
//! last good contents stay in force.

use crate::panics;
use futures_util::FutureExt as _;
use sha2::{Digest as _, Sha256};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// A file, or another place of configuration, that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}")]
pub struct Unusable {
    /// The file's path, or the variable's name.
    pub place: String,
    /// What is wrong, without anything of its contents.
    pub why: String,
}

impl Unusable {
    pub(crate) fn new(place: impl Into<String>, why: impl Into<String>) -> Self {
        Self { place: place.into(), why: why.into() }
    }

    pub(crate) fn file(path: &Path, why: impl Into<String>) -> Self {
        Self::new(path.display().to_string(), why)
    }
}

/// What was made of some files, as they are now. Clones see the same.
#[derive(Debug)]
pub(crate) struct Live<T>(watch::Receiver<Arc<T>>);

impl<T> Clone for Live<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Send + Sync + 'static> Live<T> {
    /// What `make` makes of the contents of `files`, now and whenever they change. Files are looked at until the last
    /// clone is gone.
    ///
    /// # Errors
    /// The files can't be used as they are now.
    pub(crate) async fn of(
        files: Vec<PathBuf>,
        make: impl Fn(&[Vec<u8>]) -> Result<T, Unusable> + Send + Sync + 'static,
    ) -> Result<Self, Unusable> {
        let read = read(files.clone()).await?;
        let (sender, receiver) = watch::channel(Arc::new(make(&read)?));
        if !files.is_empty() {
            tokio::spawn(watch(sender, files, digest(&read), make));
        }
        Ok(Self(receiver))
    }

    /// As it is now.
    pub(crate) fn current(&self) -> Arc<T> {
        self.0.borrow().clone()
    }
}

/// Keeps looking, also after a panic: an old certificate must not stay in force for ever without a word.
async fn watch<T>(
    sender: watch::Sender<Arc<T>>,
    files: Vec<PathBuf>,
    digest_now: [u8; 32],
    make: impl Fn(&[Vec<u8>]) -> Result<T, Unusable>,
) {
    while let Err(panic) = AssertUnwindSafe(keep(&sender, &files, digest_now, &make)).catch_unwind().await {
        panics::log("watched_files", panic.as_ref());
    }
}

async fn keep<T>(
    sender: &watch::Sender<Arc<T>>,
    files: &[PathBuf],
    digest_now: [u8; 32],
    make: impl Fn(&[Vec<u8>]) -> Result<T, Unusable>,
) {
    let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    let names = names.join(", ");
    let mut known = Ok(digest_now);
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = sender.closed() => return,
        }
        let read = read(files.to_vec()).await;
        let found = read.as_ref().map(|contents| digest(contents)).map_err(Clone::clone);
        if found == known {
            continue;
        }
        known = found;
        match read.and_then(|contents| make(&contents)) {
            Ok(made) => {
                sender.send_replace(Arc::new(made));
                tracing::info!(files = names, "read again");
            }
            Err(error) => tracing::error!(%error, "this can't be used, what was read before stays in force"),
        }
    }
}

async fn read(files: Vec<PathBuf>) -> Result<Vec<Vec<u8>>, Unusable> {
    let read = move || {
        let read = |file: &PathBuf| std::fs::read(file).map_err(|why| Unusable::file(file, why.to_string()));
        files.iter().map(read).collect()
    };
    tokio::task::spawn_blocking(read)
        .await
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Secrets are not kept to be compared.
fn digest(contents: &[Vec<u8>]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for content in contents {
        hash.update(Sha256::digest(content));
    }
    hash.finalize().into()
}
