//! Permits for items: what an application asks of a semaphore and of its groups.
//!
//! Authoritative for how each kind of acquire waits. All of it is under one short lock per key, except for permits of
//! the lease that is in its group's fund: these are drawn and given back with one atomic operation each.
//! Not authoritative for whose turn it is (`place.rs`), whether a permit exists (`ledger`), what ends it (`permit.rs`)
//! or what is sent (`driver.rs`).

use std::sync::Arc;
use std::time::Duration;

use crate::blocked::Blocked;
use crate::error::AcquireError;
use crate::ledger::fund::Fund;
use crate::permit::{Permit, Source};
use crate::place::Place;
use crate::shared::Shared;
use crate::spans;
use tracing::Instrument as _;

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

    /// As [`acquire`](Self::acquire), for `limit` at most. See [`Group::acquire_timeout`].
    ///
    /// # Errors
    ///
    /// [`AcquireError::TimedOut`], or what waiting does not cure.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`Group::acquire`].
    pub async fn acquire_timeout(&self, group: &str, limit: Duration) -> Result<Permit, AcquireError> {
        self.group(group).acquire_timeout(limit).await
    }

    /// Waits for at least one permit and takes up to `most`. See [`Group::acquire_up_to`].
    ///
    /// # Errors
    ///
    /// What waiting does not cure; see [`AcquireError`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`Group::acquire_up_to`].
    pub async fn acquire_up_to(&self, group: &str, most: usize) -> Result<Vec<Permit>, AcquireError> {
        self.group(group).acquire_up_to(most).await
    }

    /// A permit for one item of `group` that this process can give at once, or none. See [`Group::try_acquire`].
    pub fn try_acquire(&self, group: &str) -> Option<Permit> {
        if !self.shared.client.is_original() {
            return None;
        }
        let mut state = self.shared.state();
        let drawn = state.try_serve(group)?;
        let fund = state.ledger.fund(group);
        drop(state);
        Some(Permit::new(Group::new(self.shared.clone(), fund), drawn.into()))
    }

    /// The groups in which somebody waits here, and why. No I/O.
    pub fn blocked(&self) -> Vec<Blocked> {
        let state = self.shared.state();
        let groups: Vec<String> = state.ledger.waiting_groups().map(str::to_owned).collect();
        groups.iter().filter_map(|group| state.blocked(group, self.shared.client.started)).collect()
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
    pub(crate) fn new(shared: Arc<Shared>, fund: Arc<Fund>) -> Self {
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
    /// Must be awaited within a Tokio runtime, unless the client has [a thread of its own](crate::Builder::own_thread). What
    /// is to be reported when that runtime ends is reported from the next one that the client is used in: see
    /// [`drain`](crate::QueueClient::drain).
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
        self.waiting(async {
            let mut place = Place::take(&self.0.shared, self.name())?;
            Ok(self.permit(place.turn().await?))
        })
        .await
    }

    /// As [`acquire`](Self::acquire), for `limit` at most.
    ///
    /// # Errors
    ///
    /// [`AcquireError::TimedOut`], which says what it waited for at the end; or what waiting does not cure.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`acquire`](Self::acquire). So is the end of the time.
    pub async fn acquire_timeout(&self, limit: Duration) -> Result<Permit, AcquireError> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(AcquireError::NoRuntime);
        }
        let acquire = std::pin::pin!(self.acquire());
        match tokio::time::timeout(limit, acquire).await {
            Ok(acquired) => acquired,
            // Its place is not given up yet, so it is known why it waits.
            Err(_) => Err(AcquireError::TimedOut { cause: self.blocked().map(|blocked| blocked.cause) }),
        }
    }

    /// Waits for at least one permit and takes all that are there by then, up to `most`: for pollers that fetch as many
    /// jobs at once as they may run.
    ///
    /// The demand that is stated is `most`, so others see what is queued here; what one round does not grant is not
    /// waited for. Permits of a lease are given at once, as many as there are. With `most` 0 it returns at once, empty.
    ///
    /// # Errors
    ///
    /// What waiting does not cure; see [`AcquireError`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: when the future is dropped its places in the queue are given up, and permits that were already on
    /// their way go to the group's next waiters, or back to the holder.
    pub async fn acquire_up_to(&self, most: usize) -> Result<Vec<Permit>, AcquireError> {
        let drawn = || Some(self.permit(Source::Lease(self.0.fund.draw()?)));
        let permits: Vec<Permit> = std::iter::from_fn(drawn).take(most).collect();
        if most == 0 || !permits.is_empty() {
            return Ok(permits);
        }
        self.waiting(async {
            let mut places = Place::take_several(&self.0.shared, self.name(), most)?;
            // The group is first in, first out: the first place is served before the others.
            let first = match places.first_mut() {
                Some(first) => first.turn().await?,
                None => return Ok(permits),
            };
            let served = std::iter::once(first).chain(Place::served(&mut places));
            Ok(served.map(|source| self.permit(source)).collect())
        })
        .await
    }

    /// A permit for one item of the group that this process can give at once: of a lease, or confirmed by the holder and
    /// needed by no waiter any more. No I/O is done and no demand is stated, so this alone never brings a permit here.
    pub fn try_acquire(&self) -> Option<Permit> {
        let source = match self.0.fund.draw() {
            Some(ticket) => Source::Lease(ticket),
            None if !self.0.shared.client.is_original() => return None,
            None => self.0.shared.state().try_serve(self.name())?.into(),
        };
        Some(self.permit(source))
    }

    /// Why whoever waits in this group waits, and since when; none if nobody does. No I/O.
    pub fn blocked(&self) -> Option<Blocked> {
        let shared = &self.0.shared;
        shared.state().blocked(self.name(), shared.client.started)
    }

    /// What waits is a span, and is counted with how long it takes.
    async fn waiting<T>(
        &self,
        turn: impl Future<Output = Result<T, AcquireError>>,
    ) -> Result<T, AcquireError> {
        let wait = self.0.shared.client.metrics.wait();
        let result = turn.instrument(spans::of_acquire(self.key(), self.name())).await;
        wait.ended(&result);
        result
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
