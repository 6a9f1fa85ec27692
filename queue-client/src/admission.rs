//! Permits for items: who may wait, whose turn it is, and what happens when a waiter is dropped.
//!
//! Authoritative for the hand-over between tasks and the ledger. All of it is under one short lock per key, except for
//! permits of the lease that is in its group's fund: these are drawn and given back with one atomic operation each.
//! Not authoritative for whether a permit exists (`ledger`), what ends it (`permit.rs`) or what is sent (`driver.rs`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use queue_wire::{GROUP_MAX_BYTES, KEY_MAX_BYTES, Problem};
use tokio::sync::{Notify, oneshot};

use crate::client::Inner;
use crate::driver;
use crate::error::{AcquireError, DrainError};
use crate::ledger::fund::Fund;
use crate::ledger::{Drawn, Ledger, Served, Waiter};
use crate::permit::{Permit, Source};

/// One shared budget, as this process sees it. Cheap to clone; made by
/// [`QueueClient::semaphore`](crate::QueueClient::semaphore).
#[derive(Clone)]
pub struct Semaphore {
    shared: Arc<Shared>,
}

impl Semaphore {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The semaphore's key.
    pub fn key(&self) -> &str {
        &self.shared.key
    }

    /// A handle to `group` (0 to 256 bytes; the empty group is a group), for callers that come back to it: it saves
    /// looking the group up. No I/O; a name that is too long is an error of [`acquire`](Group::acquire).
    pub fn group(&self, group: &str) -> Group {
        let fund = self.shared.state().ledger.fund(group);
        Group::new(self.shared.clone(), fund)
    }

    /// Waits for the right to run one item of `group`. See [`Group::acquire`].
    ///
    /// # Errors
    ///
    /// What waiting does not cure; see [`AcquireError`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`Group::acquire`].
    pub async fn acquire(&self, group: &str) -> Result<Permit, AcquireError> {
        self.group(group).acquire().await
    }

    /// A permit for one item of `group` that this process can give at once, or none. See [`Group::try_acquire`].
    pub fn try_acquire(&self, group: &str) -> Option<Permit> {
        let mut state = self.shared.state();
        let drawn = state.try_serve(group)?;
        let fund = state.ledger.fund(group);
        drop(state);
        Some(Permit::new(Group::new(self.shared.clone(), fund), drawn.into()))
    }
}

/// One group of a semaphore. Cheap to clone; made by [`Semaphore::group`].
///
/// While the process holds a lease of the group, taking a permit and dropping it costs two atomic operations each and
/// neither I/O, nor a lock, nor memory.
#[derive(Clone)]
pub struct Group(Arc<Handle>);

/// What a group and its permits refer to: one count of references for both parts.
pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) fund: Arc<Fund>,
}

impl Group {
    fn new(shared: Arc<Shared>, fund: Arc<Fund>) -> Self {
        Self(Arc::new(Handle { shared, fund }))
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.0
    }

    /// The semaphore's key.
    pub fn key(&self) -> &str {
        &self.0.shared.key
    }

    /// The group's name.
    pub fn name(&self) -> &str {
        self.0.fund.group()
    }

    /// Waits for the right to run one item of the group.
    ///
    /// A permit of a lease is given at once. Else waiters of a group are served first in, first out; groups don't wait
    /// for each other. Across processes the holder serves the oldest first. The permit is given only when the holder
    /// counts it as in use, so items that run never exceed what the holder counts. Outages, overload and restarts of
    /// holders are waited through, with retries that back off.
    ///
    /// Must be called within a Tokio runtime, which has to live on for what was acquired to be reported.
    ///
    /// # Errors
    ///
    /// What waiting does not cure; see [`AcquireError`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: when the future is dropped its place in the queue is given up, and a permit that was already on its
    /// way goes to the group's next waiter, or back to the holder.
    pub async fn acquire(&self) -> Result<Permit, AcquireError> {
        if let Some(ticket) = self.0.fund.draw() {
            return Ok(self.permit(Source::Lease(ticket)));
        }
        let mut place = Place::take(&self.0.shared, self.name())?;
        let source = (&mut place.turn).await.unwrap_or(Err(AcquireError::Draining))?;
        place.waiter = None;
        Ok(self.permit(source))
    }

    /// A permit for one item of the group that this process can give at once: of a lease, or confirmed by the holder and
    /// needed by no waiter any more. No I/O is done and no demand is stated, so this alone never brings a permit here.
    pub fn try_acquire(&self) -> Option<Permit> {
        let source = match self.0.fund.draw() {
            Some(ticket) => Source::Lease(ticket),
            None => self.0.shared.state().try_serve(self.name())?.into(),
        };
        Some(self.permit(source))
    }

    fn permit(&self, source: Source) -> Permit {
        Permit::new(self.clone(), source)
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("key", &self.key()).field("name", &self.name()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Semaphore").field("key", &self.key()).finish_non_exhaustive()
    }
}

/// A waiter's place; dropped with a waiter in it, it is given up.
struct Place<'a> {
    shared: &'a Shared,
    waiter: Option<Waiter>,
    turn: oneshot::Receiver<Result<Source, AcquireError>>,
}

impl<'a> Place<'a> {
    fn take(shared: &'a Arc<Shared>, group: &str) -> Result<Self, AcquireError> {
        check("key", &shared.key, 1, KEY_MAX_BYTES)?;
        check("group", group, 0, GROUP_MAX_BYTES)?;
        let mut state = shared.state();
        if let Some(stopped) = &state.stopped {
            return Err(stopped.clone());
        }
        let waiter = state.ledger.enqueue(group, shared.now_ms());
        let (sender, turn) = oneshot::channel();
        state.waiting.insert(waiter.clone(), sender);
        state.hand_out();
        shared.drive(state);
        Ok(Self { shared, waiter: Some(waiter), turn })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        let mut state = self.shared.state();
        if state.waiting.remove(&waiter).is_some() {
            state.ledger.cancel(&waiter);
        } else if let Ok(Ok(source)) = self.turn.try_recv() {
            state.put_back(&source);
            state.hand_out();
        }
        drop(state);
        self.shared.wake.notify_one();
    }
}

fn check(part: &'static str, name: &str, min: usize, max: usize) -> Result<(), AcquireError> {
    queue_wire::check_text(name, min, max).map_err(|why| AcquireError::InvalidName { part, why })
}

/// What the handles, permits and waiters of one key share with its driver.
pub(crate) struct Shared {
    pub(crate) key: String,
    pub(crate) client: Arc<Inner>,
    state: Mutex<State>,
    /// The driver has something to look at.
    pub(crate) wake: Notify,
    /// The driver has looked.
    pub(crate) progress: Notify,
    /// Permits that are in use may not be counted any more.
    pub(crate) lost: Notify,
}

pub(crate) struct State {
    pub(crate) ledger: Ledger,
    waiting: BTreeMap<Waiter, oneshot::Sender<Result<Source, AcquireError>>>,
    /// Why nothing is given any more.
    pub(crate) stopped: Option<AcquireError>,
    /// What the holder refused last, until it answers again.
    pub(crate) refused: Option<Box<Problem>>,
    /// A driver task runs. It ends when the ledger is settled.
    pub(crate) driven: bool,
}

impl Shared {
    pub(crate) fn new(
        key: String,
        client: Arc<Inner>,
        last_call: u64,
        stopped: Option<AcquireError>,
    ) -> Self {
        let mut ledger = Ledger::new(client.identity.clone(), last_call);
        if client.resumes {
            ledger.resume();
        }
        let state = State { ledger, waiting: BTreeMap::new(), stopped, refused: None, driven: false };
        let [wake, progress, lost] = [(); 3].map(|()| Notify::new());
        Self { key, client, state: Mutex::new(state), wake, progress, lost }
    }

    /// What an earlier process held of the key, and was not declared, goes back without anybody waiting.
    pub(crate) fn reconcile(self: &Arc<Self>) {
        let mut state = self.state();
        state.ledger.reconcile();
        self.drive(state);
    }

    /// The permit of this name, if it is detached.
    pub(crate) fn attach(self: &Arc<Self>, permit: &str, group: &str) -> Option<Permit> {
        let mut state = self.state();
        let block = state.ledger.attach(permit)?;
        let fund = state.ledger.fund(group);
        drop(state);
        Some(Permit::new(Group::new(self.clone(), fund), Source::Block(block)))
    }

    /// Wakes the driver, or starts one.
    fn drive(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if !std::mem::replace(&mut state.driven, true) {
            tokio::spawn(driver::drive(self.clone()));
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Held for a few operations in memory, never across an await.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.client.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Gives nothing any more, for `reason`.
    pub(crate) fn stop(&self, reason: &AcquireError) {
        let mut state = self.state();
        state.fail_waiting(reason);
        state.ledger.drain();
        state.refused = None;
        state.stopped.get_or_insert_with(|| reason.clone());
        drop(state);
        self.wake.notify_one();
    }

    /// Waits until the holder has confirmed that nothing counts but what is detached.
    pub(crate) async fn drained(&self) -> Result<(), DrainError> {
        loop {
            let progress = self.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            {
                let state = self.state();
                if state.ledger.is_drained() {
                    return Ok(());
                }
                let running = state.ledger.running() > state.ledger.detached();
                if let (false, Some(problem)) = (running, &state.refused) {
                    return Err(DrainError { key: self.key.clone(), problem: problem.clone() });
                }
            }
            progress.await;
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let last_call = self.state().ledger.last_call();
        self.client.forget(&self.key, last_call);
    }
}

impl State {
    fn try_serve(&mut self, group: &str) -> Option<Drawn> {
        if self.stopped.is_some() { None } else { self.ledger.try_serve(group) }
    }

    fn put_back(&mut self, source: &Source) {
        match source {
            Source::Block(block) => self.ledger.put_back(block),
            Source::Lease(ticket) => self.ledger.release_ticket(*ticket),
            Source::Nowhere => {}
        }
    }

    /// Tells waiters whose turn has come.
    pub(crate) fn hand_out(&mut self) {
        loop {
            let served = self.ledger.served();
            if served.is_empty() {
                return;
            }
            for Served { waiter, block, ticket } in served {
                let sent = match self.waiting.remove(&waiter) {
                    Some(sender) => sender.send(Ok(Source::new(block, ticket))),
                    None => Err(Ok(Source::new(block, ticket))),
                };
                if let Err(Ok(source)) = sent {
                    self.put_back(&source);
                }
            }
        }
    }

    pub(crate) fn anybody_waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn fail_waiting(&mut self, reason: &AcquireError) {
        self.ledger.cancel_all();
        for (_, sender) in std::mem::take(&mut self.waiting) {
            // A waiter that has just gone needs no reason.
            let _ = sender.send(Err(reason.clone()));
        }
    }
}
