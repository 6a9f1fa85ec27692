//! One client per process: its identity, its holders, its semaphores, and draining them all.
//!
//! Authoritative for who this process is. Not authoritative for permits, which each semaphore keeps for itself.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use queue_wire::CLIENT_ID_MAX_BYTES;
use tokio::time::Instant;

use crate::admission::{Semaphore, Shared};
use crate::credentials::Credentials;
use crate::error::{AcquireError, BuildError, DrainError};
use crate::http::HttpTransport;
use crate::ledger::Identity;
use crate::transport::Transport;

/// The connection of one process to its holders. Cheap to clone; all clones are the same client.
///
/// Build one per process. Two clients are two competitors for the budget, with a `client_id` each.
#[derive(Clone)]
pub struct QueueClient(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) identity: Identity,
    pub(crate) transport: Arc<dyn Transport>,
    /// What the milliseconds of every ledger count from.
    pub(crate) started: Instant,
    semaphores: Mutex<Semaphores>,
    /// Above the calls of every semaphore that is not in use any more.
    last_call: AtomicU64,
}

#[derive(Default)]
struct Semaphores {
    draining: bool,
    in_use: BTreeMap<String, Weak<Shared>>,
}

impl QueueClient {
    /// Starts to configure a client.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The `client_id` that holders know this process by.
    pub fn client_id(&self) -> &str {
        &self.0.identity.client_id
    }

    /// The semaphore `key`. No I/O: nothing is said about it until something waits for a permit.
    ///
    /// Every handle to one key shares one queue of waiters.
    pub fn semaphore(&self, key: impl Into<String>) -> Semaphore {
        let key = key.into();
        let mut semaphores = self.0.semaphores();
        let known = semaphores.in_use.get(&key).and_then(Weak::upgrade);
        let shared = known.unwrap_or_else(|| {
            let stopped = semaphores.draining.then_some(AcquireError::Draining);
            let last_call = self.0.last_call.load(Ordering::Relaxed);
            let shared = Arc::new(Shared::new(key.clone(), self.0.clone(), last_call, stopped));
            semaphores.in_use.insert(key, Arc::downgrade(&shared));
            shared
        });
        Semaphore::new(shared)
    }

    /// Ends the client in good order: from now on it gives no permits and its waiting acquires fail with
    /// [`AcquireError::Draining`]; what runs may end; then everything is given back. Ready when the holder has confirmed
    /// that nothing of this client counts any more.
    ///
    /// It waits for permits that are held and through outages, so give it a time limit if the process must end. What is
    /// not drained then comes back by its deadline if it was not claimed, else when an operator settles the client.
    ///
    /// # Errors
    ///
    /// The holder refuses this client's reports. Running items are waited for first. Draining again tries again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the client goes on draining, and another call waits for the same end.
    pub async fn drain(&self) -> Result<(), DrainError> {
        let in_use: Vec<Arc<Shared>> = {
            let mut semaphores = self.0.semaphores();
            semaphores.draining = true;
            semaphores.in_use.values().filter_map(Weak::upgrade).collect()
        };
        in_use.iter().for_each(|shared| shared.stop(&AcquireError::Draining));
        let mut result = Ok(());
        for shared in in_use {
            result = result.and(shared.settled().await);
        }
        result
    }
}

impl std::fmt::Debug for QueueClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueClient").field("client_id", &self.client_id()).finish_non_exhaustive()
    }
}

impl Inner {
    fn semaphores(&self) -> MutexGuard<'_, Semaphores> {
        self.semaphores.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A semaphore that nobody refers to is forgotten; whoever asks for its key again goes on after its calls.
    pub(crate) fn forget(&self, key: &str, last_call: u64) {
        self.last_call.fetch_max(last_call, Ordering::Relaxed);
        let mut semaphores = self.semaphores();
        if semaphores.in_use.get(key).is_some_and(|shared| shared.strong_count() == 0) {
            semaphores.in_use.remove(key);
        }
    }
}

/// Configures a [`QueueClient`].
#[derive(Default)]
#[must_use = "a builder does nothing until build() is called"]
pub struct Builder {
    urls: Vec<String>,
    credentials: Credentials,
    client_id: Option<String>,
    transport: Option<Arc<dyn Transport>>,
}

impl Builder {
    /// Adds a holder, such as `http://127.0.0.1:7070`. Any holder answers any call; with several, a call goes to another
    /// one when the first can't be reached.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.urls.push(url.into());
        self
    }

    /// Sent as `Authorization: Bearer` with each call. Default: none.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.credentials = self.credentials.token(token);
        self
    }

    /// The first token in this file is sent. It is read again when a holder does not accept it any more, so that tokens
    /// can be replaced while the client runs.
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.credentials = self.credentials.token_file(path);
        self
    }

    /// Trusts holders at `https` URLs that have a certificate of one of these authorities, in PEM. Default: those that
    /// the system trusts.
    pub fn authorities(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.credentials = self.credentials.authorities(pem);
        self
    }

    /// Shows this certificate to holders that ask for one, in PEM with those between it and its authority's; and its
    /// private key, in PEM. Default: none.
    pub fn certificate(mut self, pem: impl Into<Vec<u8>>, key_pem: impl Into<Vec<u8>>) -> Self {
        self.credentials = self.credentials.certificate(pem, key_pem);
        self
    }

    /// The name of this process, 1 to 256 bytes. It must be new for each start of a process, and no two processes may
    /// share it. Default: the host's name and a random part.
    pub fn client_id(mut self, client_id: impl Into<String>) -> Self {
        self.client_id = Some(client_id.into());
        self
    }

    /// Uses another transport than HTTP; URLs, token and certificates have no effect then.
    pub fn transport(mut self, transport: impl Transport) -> Self {
        self.transport = Some(Arc::new(transport));
        self
    }

    /// Makes the client. No I/O.
    ///
    /// # Errors
    ///
    /// Something given is malformed, or there is neither a URL nor a transport. See [`BuildError`].
    pub fn build(self) -> Result<QueueClient, BuildError> {
        let client_id = self.client_id.unwrap_or_else(unique_client_id);
        queue_wire::check_text(&client_id, 1, CLIENT_ID_MAX_BYTES).map_err(BuildError::InvalidClientId)?;
        let transport = match self.transport {
            Some(transport) => transport,
            None => Arc::new(HttpTransport::new(&self.urls, &self.credentials)?),
        };
        Ok(QueueClient(Arc::new(Inner {
            identity: Identity { client_id, process: random() },
            transport,
            started: Instant::now(),
            semaphores: Mutex::default(),
            last_call: AtomicU64::new(0),
        })))
    }
}

fn unique_client_id() -> String {
    let host = gethostname::gethostname().to_string_lossy().replace('\0', "");
    let host: String = host.chars().take(48).collect();
    format!("{host}-{}", random())
}

fn random() -> String {
    format!("{:032x}", rand::random::<u128>())
}
