//! One client per process: its identity, its holders, its semaphores, and draining them all.
//!
//! Authoritative for who this process is. Not authoritative for permits, which each semaphore keeps for itself.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::admission::Semaphore;
use crate::builder::Builder;
use crate::detached::DetachedPermit;
use crate::error::{AcquireError, BuildError, DrainError, ResumeError};
use crate::events::{Events, Feed};
use crate::generation::Generation;
use crate::ledger::{Identity, Ledger};
use crate::metrics::Metrics;
use crate::own_thread::OwnThread;
use crate::permit::Permit;
use crate::shared::Shared;
use crate::takeover::Background;
use crate::transport::Transport;
use crate::warning;

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
    /// Where drivers run, if not where they are started.
    pub(crate) own_thread: Option<OwnThread>,
    /// Which process made the client.
    pub(crate) process_id: u32,
    /// Warnings go to standard error while there is no log.
    pub(crate) aloud: bool,
    /// That no holder answers has been said there.
    pub(crate) said: AtomicBool,
    pub(crate) takeover: Background,
    pub(crate) feed: Feed,
    pub(crate) metrics: Metrics,
    /// What the milliseconds of every ledger count from.
    pub(crate) started: Instant,
    semaphores: Mutex<Semaphores>,
    /// Above the calls of every semaphore that is not in use any more.
    last_call: AtomicU64,
    /// There are ledgers in `semaphores.left`.
    any_left: AtomicBool,
}

#[derive(Default)]
struct Semaphores {
    draining: bool,
    in_use: BTreeMap<String, Weak<Shared>>,
    /// What is not reported of semaphores that nobody refers to: their driver's runtime has ended.
    left: BTreeMap<String, Ledger>,
}

impl QueueClient {
    /// Starts to configure a client.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A client as the environment says, for processes of which one goes by one client.
    /// See [`Builder::from_env`] for the variables.
    ///
    /// # Errors
    ///
    /// A variable is missing or malformed. See [`BuildError`].
    pub fn from_env() -> Result<Self, BuildError> {
        Builder::from_env()?.build()
    }

    pub(crate) fn new(
        identity: Identity,
        generation: u64,
        transport: Arc<dyn Transport>,
        own_thread: Option<OwnThread>,
        metrics: Metrics,
        running: Option<&[DetachedPermit]>,
        aloud: bool,
    ) -> Result<Self, BuildError> {
        let client = Self(Arc::new(Inner {
            identity,
            generation: Generation::new(generation),
            resumes: running.is_some(),
            transport,
            own_thread,
            process_id: std::process::id(),
            aloud,
            said: AtomicBool::new(false),
            takeover: Background::default(),
            feed: Feed::default(),
            metrics,
            started: Instant::now(),
            semaphores: Mutex::default(),
            last_call: AtomicU64::new(0),
            any_left: AtomicBool::new(false),
        }));
        client.0.metrics.observe(&client.0);
        if let Some(running) = running {
            client.go_on(running)?;
        }
        Ok(client)
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

    /// What happens from now on to the semaphores of this client, for logs, metrics and alarms. Each call makes a
    /// listener of its own; one that does not keep up loses the oldest events, and nothing waits for it.
    pub fn events(&self) -> Events {
        self.0.feed.listen()
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
        let permit =
            self.known(&detached.key).and_then(|shared| shared.attach(&detached.permit, &detached.group));
        permit.ok_or_else(|| ResumeError { key: detached.key.clone(), group: detached.group.clone() })
    }

    /// Ends the client in good order: from now on it gives no permits and its waiting acquires fail with
    /// [`AcquireError::Draining`]; what runs may end; then everything is given back. Ready when the holder has confirmed
    /// that nothing of this client counts any more but permits that are [detached](Permit::detach).
    ///
    /// It waits for permits that are held and through outages: see [`drain_timeout`](Self::drain_timeout) for a process
    /// that must end. What is not drained then comes back by its deadline if it was not claimed, else when a successor takes over or the client
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
        if !self.0.is_original() {
            return Err(DrainError::Forked);
        }
        self.0.semaphores().draining = true;
        let _recovered = self.recovered(); // they are in use while this is
        let in_use = self.0.in_use();
        in_use.iter().for_each(|shared| shared.stop(&AcquireError::Draining));
        let mut result = Ok(());
        for shared in in_use {
            result = result.and(shared.drained().await);
        }
        result
    }

    /// As [`drain`](Self::drain), for `limit` at most.
    ///
    /// # Errors
    ///
    /// [`DrainError::TimedOut`] says what is left; or the holder refuses this client's reports. Must be called within a Tokio
    /// runtime.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`drain`](Self::drain): when the time is over the client goes on draining, and another call waits
    /// for the same end.
    pub async fn drain_timeout(&self, limit: Duration) -> Result<(), DrainError> {
        match tokio::time::timeout(limit, self.drain()).await {
            Ok(drained) => drained,
            Err(_) => {
                let left: Vec<_> = self.0.in_use().iter().filter_map(|shared| shared.undrained()).collect();
                if left.is_empty() { Ok(()) } else { Err(DrainError::TimedOut { limit, left }) }
            }
        }
    }

    pub(crate) fn shared(&self, key: String) -> Arc<Shared> {
        loop {
            let mut semaphores = self.0.semaphores();
            match semaphores.in_use.get(&key).map(Weak::upgrade) {
                Some(Some(known)) => return known,
                // Its last handle is being dropped: then its ledger goes on.
                Some(None) => drop(semaphores),
                None => {
                    let stopped = semaphores.draining.then_some(AcquireError::Draining);
                    let ledger = semaphores.left.remove(&key).unwrap_or_else(|| self.0.new_ledger());
                    let shared = Arc::new(Shared::new(key.clone(), self.0.clone(), ledger, stopped));
                    semaphores.in_use.insert(key, Arc::downgrade(&shared));
                    return shared;
                }
            }
            std::thread::yield_now();
        }
    }

    /// The semaphore `key`, if this process has anything to do with it.
    fn known(&self, key: &str) -> Option<Arc<Shared>> {
        let semaphores = self.0.semaphores();
        let known = semaphores.in_use.contains_key(key) || semaphores.left.contains_key(key);
        drop(semaphores);
        known.then(|| self.shared(key.to_owned()))
    }

    /// The semaphores of which something is not reported and nobody else refers to.
    pub(crate) fn recovered(&self) -> Vec<Arc<Shared>> {
        if !self.0.any_left.swap(false, Ordering::Relaxed) {
            return Vec::new();
        }
        let left: Vec<String> = self.0.semaphores().left.keys().cloned().collect();
        left.into_iter().map(|key| self.shared(key)).collect()
    }

    /// Goes on where earlier processes ended: first all that runs still is declared, then the holder is spoken to.
    fn go_on(&self, running: &[DetachedPermit]) -> Result<(), BuildError> {
        if self.0.own_thread.is_none() {
            tokio::runtime::Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        }
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
        self.0.takeover.due.store(true, Ordering::Relaxed);
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

    pub(crate) fn in_use(&self) -> Vec<Arc<Shared>> {
        self.semaphores().in_use.values().filter_map(Weak::upgrade).collect()
    }

    fn new_ledger(&self) -> Ledger {
        let mut ledger = Ledger::new(self.identity.clone(), self.last_call.load(Ordering::Relaxed));
        if self.resumes {
            ledger.resume();
        }
        ledger
    }

    /// Something has changed for all keys.
    pub(crate) fn wake_all(&self) {
        self.in_use().iter().for_each(|shared| shared.wake.notify_one());
    }

    /// A semaphore that nobody refers to is forgotten, but for what is not reported of it; whoever asks for its key again
    /// goes on after its calls.
    pub(crate) fn forget(&self, key: &str, ledger: Ledger) {
        self.last_call.fetch_max(ledger.last_call(), Ordering::Relaxed);
        let mut semaphores = self.semaphores();
        semaphores.in_use.remove(key);
        if !ledger.is_settled() {
            semaphores.left.insert(key.to_owned(), ledger);
            self.any_left.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Inner {
    /// Nobody will report what is left.
    fn drop(&mut self) {
        let semaphores = self.semaphores.get_mut().unwrap_or_else(PoisonError::into_inner);
        let left = semaphores.left.iter().filter_map(|(key, ledger)| {
            let permits = ledger.unconfirmed() + ledger.running().saturating_sub(ledger.detached());
            (permits > 0).then(|| format!("{permits} of {key:?}"))
        });
        let left: Vec<String> = left.collect();
        if !left.is_empty() && self.process_id == std::process::id() {
            let text = format!(
                "the client {:?} ended without giving back all permits: holders go on counting {}, until a successor takes \
                 over or the client is settled. Call `client.drain().await` before the runtime ends",
                self.identity.client_id,
                left.join(", ")
            );
            warning::warn(self.aloud, &text);
        }
    }
}
