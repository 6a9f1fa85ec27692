//! One client per process: its identity, its holders, its semaphores, and draining them all.
//!
//! Authoritative for who this process is. Not authoritative for permits, which each semaphore keeps for itself.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use queue_wire::{CLIENT_ID_MAX_BYTES, SAFE_INTEGER_MAX};
use tokio::time::Instant;

use crate::admission::{Semaphore, Shared};
use crate::credentials::Credentials;
use crate::detached::DetachedPermit;
use crate::error::{AcquireError, BuildError, DrainError, ResumeError};
use crate::generation::Generation;
use crate::http::HttpTransport;
use crate::ledger::Identity;
use crate::permit::Permit;
use crate::transport::Transport;

/// The connection of one process to its holders. Cheap to clone; all clones are the same client.
///
/// Build one per process. Two clients are two competitors for the budget, with a `client_id` each.
#[derive(Clone)]
pub struct QueueClient(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) identity: Identity,
    pub(crate) generation: Generation,
    /// Goes on with what earlier processes held.
    pub(crate) resumes: bool,
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
        Semaphore::new(self.shared(key.into()))
    }

    /// Makes a detached permit one that is released when it is dropped: to end the job that it stands for, in the
    /// process that detached it or in a later one that was built with [`Builder::resume`]. No I/O.
    ///
    /// Whether it is counted still, [`Permit::is_counted`] says. Must be called within a Tokio runtime.
    ///
    /// # Errors
    ///
    /// This process knows of no such permit; see [`ResumeError`].
    pub fn resume(&self, detached: &DetachedPermit) -> Result<Permit, ResumeError> {
        let known = self.0.semaphores().in_use.get(&detached.key).and_then(Weak::upgrade);
        let permit = known.and_then(|shared| shared.attach(&detached.permit, &detached.group));
        permit.ok_or_else(|| ResumeError { key: detached.key.clone(), group: detached.group.clone() })
    }

    /// Ends the client in good order: from now on it gives no permits and its waiting acquires fail with
    /// [`AcquireError::Draining`]; what runs may end; then everything is given back. Ready when the holder has confirmed
    /// that nothing of this client counts any more but permits that are [detached](Permit::detach).
    ///
    /// It waits for permits that are held and through outages, so give it a time limit if the process must end. What is
    /// not drained then comes back by its deadline if it was not claimed, else when a successor takes over or the client
    /// is settled. A semaphore that the client is shut out of is drained when what runs on it has ended.
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
            result = result.and(shared.drained().await);
        }
        result
    }

    pub(crate) fn shared(&self, key: String) -> Arc<Shared> {
        let mut semaphores = self.0.semaphores();
        let known = semaphores.in_use.get(&key).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let stopped = semaphores.draining.then_some(AcquireError::Draining);
            let last_call = self.0.last_call.load(Ordering::Relaxed);
            let shared = Arc::new(Shared::new(key.clone(), self.0.clone(), last_call, stopped));
            semaphores.in_use.insert(key, Arc::downgrade(&shared));
            shared
        })
    }

    /// Goes on where earlier processes ended: first all that runs still is declared, then the holder is spoken to.
    fn go_on(&self, running: &[DetachedPermit]) -> Result<(), BuildError> {
        tokio::runtime::Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        if let Some(foreign) = running.iter().find(|permit| permit.client_id != self.client_id()) {
            return Err(BuildError::ForeignPermit { of: foreign.client_id.clone() });
        }
        let declared = running.iter().map(|permit| {
            let shared = self.shared(permit.key.clone());
            shared.state().ledger.declare(&permit.permit, &permit.block);
            shared
        });
        let declared: Vec<Arc<Shared>> = declared.collect();
        declared.iter().for_each(Shared::reconcile);
        self.clone().take_over_in_background();
        Ok(())
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

    /// Something has changed for all keys.
    pub(crate) fn wake_all(&self) {
        let in_use: Vec<Arc<Shared>> = self.semaphores().in_use.values().filter_map(Weak::upgrade).collect();
        in_use.iter().for_each(|shared| shared.wake.notify_one());
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
    generation: Option<u64>,
    running: Option<Vec<DetachedPermit>>,
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

    /// The name of this process, 1 to 256 bytes; no two processes may use one at the same time. Default: the host's name
    /// and a random part.
    ///
    /// A process that starts under the name of an earlier one, such as `worker-7` of a fixed set, is its successor: it
    /// takes over, key by key as it first speaks of each, and on all keys by [`QueueClient::take_over`]. What the earlier
    /// one held comes back then, so it must be dead, and its items with it; if it lives all the same, it is shut out:
    /// see [`AcquireError::Fenced`]. Where items may outlive their process, see [`resume`](Self::resume).
    pub fn client_id(mut self, client_id: impl Into<String>) -> Self {
        self.client_id = Some(client_id.into());
        self
    }

    /// Which process of this `client_id` it is, 1 to 2^53 - 1: above that of every earlier one. Default: the time in ms
    /// since 1970 by this machine's clock.
    ///
    /// A process that is told of a higher one before anything was accepted from it goes on with that, once: so a clock
    /// that is behind does no harm.
    pub fn generation(mut self, generation: u64) -> Self {
        self.generation = Some(generation);
        self
    }

    /// Goes on where an earlier process of this `client_id` ended, whose items may still run: `running` are the detached
    /// permits of all jobs that do, of all keys. They stay counted, at every moment, until each is made a permit again by
    /// [`QueueClient::resume`] and dropped. Everything else that earlier processes held is released: permits that were
    /// not detached, and those of jobs that ended while nobody could tell.
    ///
    /// Call it at every start of a client that detaches permits, with none the first time; a client that is built
    /// without it declares dead what earlier processes held, detached permits too. [`build`](Self::build) must then be
    /// called within a Tokio runtime.
    pub fn resume(mut self, running: impl IntoIterator<Item = DetachedPermit>) -> Self {
        self.running.get_or_insert_default().extend(running);
        self
    }

    /// Uses another transport than HTTP; URLs, token and certificates have no effect then.
    pub fn transport(mut self, transport: impl Transport) -> Self {
        self.transport = Some(Arc::new(transport));
        self
    }

    /// Makes the client. No I/O, but for what [`resume`](Self::resume) starts in the background.
    ///
    /// # Errors
    ///
    /// Something given is malformed, or there is neither a URL nor a transport. See [`BuildError`].
    pub fn build(self) -> Result<QueueClient, BuildError> {
        let client_id = self.client_id.unwrap_or_else(unique_client_id);
        queue_wire::check_text(&client_id, 1, CLIENT_ID_MAX_BYTES).map_err(BuildError::InvalidClientId)?;
        let generation = self.generation.unwrap_or_else(now_ms);
        if generation == 0 || generation > SAFE_INTEGER_MAX {
            return Err(BuildError::InvalidGeneration(generation));
        }
        let transport = match self.transport {
            Some(transport) => transport,
            None => Arc::new(HttpTransport::new(&self.urls, &self.credentials)?),
        };
        let client = QueueClient(Arc::new(Inner {
            identity: Identity { client_id, process: random() },
            generation: Generation::new(generation),
            resumes: self.running.is_some(),
            transport,
            started: Instant::now(),
            semaphores: Mutex::default(),
            last_call: AtomicU64::new(0),
        }));
        if let Some(running) = self.running {
            client.go_on(&running)?;
        }
        Ok(client)
    }
}

#[expect(clippy::disallowed_methods, reason = "a number that rises from start to start, not a time")]
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(SAFE_INTEGER_MAX).max(1)
}

fn unique_client_id() -> String {
    let host = gethostname::gethostname().to_string_lossy().replace('\0', "");
    let host: String = host.chars().take(48).collect();
    format!("{host}-{}", random())
}

fn random() -> String {
    format!("{:032x}", rand::random::<u128>())
}
