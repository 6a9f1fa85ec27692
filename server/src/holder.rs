//! A holder: answers requests and syncs of any key, and acts on deadlines without being asked.

use crate::actor::Command;
use crate::clock;
use crate::hints::{self, Epoch};
use crate::housekeeping;
use crate::keys::Keys;
use crate::outbox::{self, Outbox};
use crate::parked::{Awaits, Park};
use crate::pending::{Caller, Pending};
use crate::refusal::Refusal;
use crate::round::Heard;
use crate::store::Store;
use pgsemaphore_allocation::{ClientId, Demand, GrantReport, Group, LeaseReport, SemaphoreKey};
use queue_wire::{Message, Reply};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A handle to a running holder; clones share it.
#[derive(Clone)]
pub struct Holder {
    shared: Arc<Shared>,
}

/// What the parts of a holder share.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) keys: Keys,
    pub(crate) policies: Epoch,
    pub(crate) outbox: Outbox,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
    waiting: Arc<AtomicUsize>,
}

impl Holder {
    /// Starts a holder over `store`. Rows of keys with nothing counted and no message for `forget_after` are deleted.
    pub fn start(store: Store, forget_after: Duration) -> Self {
        let shared = Arc::new(Shared {
            store,
            keys: Keys::default(),
            policies: Epoch::default(),
            outbox: Outbox::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            waiting: Arc::default(),
        });
        shared.tasks.spawn(housekeeping::watch_deadlines(shared.clone()));
        shared.tasks.spawn(housekeeping::forget_idle_keys(shared.clone(), forget_after));
        shared.tasks.spawn(hints::listen(shared.clone()));
        shared.tasks.spawn(outbox::send_hints(shared.clone()));
        Self { shared }
    }

    /// The database.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// Waits for the key's next round with `message`, and answers when it is committed. With demand and `wait_ms`, a
    /// request that got nothing waits for more rounds, for up to that long from now, until one brings something.
    ///
    /// # Errors
    /// Any [`Refusal`].
    ///
    /// # Cancel safety
    /// A caller that drops this before its round starts takes no permits and its reports are not applied. Once the
    /// round has started it goes on; what was granted is delivered again to the client's next message.
    pub async fn request(&self, key: SemaphoreKey, message: Message) -> Result<Reply, Refusal> {
        let wants = message.demand.iter().any(|demand| demand.count > 0);
        let park = park(&message, Awaits::Permits).filter(|_| wants);
        self.call(key, message, park, Command::Request).await
    }

    /// Applies the reports of `message` and answers when they are committed. Its demand is ignored. With `wait_ms` it is
    /// answered when the client's state differs from `known_state`, or after that time.
    ///
    /// # Errors
    /// Any [`Refusal`] but [`Refusal::Superseded`].
    ///
    /// # Cancel safety
    /// As for [`request`](Self::request).
    pub async fn sync(&self, key: SemaphoreKey, mut message: Message) -> Result<Reply, Refusal> {
        message.demand.clear();
        let known = message.known_state.take();
        let park = park(&message, Awaits::Change { known });
        self.call(key, message, park, Command::Sync).await
    }

    async fn call(
        &self,
        key: SemaphoreKey,
        message: Message,
        park: Option<Park>,
        command: impl FnOnce(Pending) -> Command,
    ) -> Result<Reply, Refusal> {
        if self.shared.stop.is_cancelled() {
            return Err(Refusal::ShuttingDown);
        }
        let (caller, answer) = Caller::new(&message, &self.shared.waiting)?;
        let pending = Pending { heard: heard(message, clock::now()), caller, park, said: None };
        self.shared.keys.send(&self.shared, &key, command(pending));
        answer.await.unwrap_or(Err(Refusal::Unavailable))
    }

    /// Makes the next round of every key look at its policy's wait and period afresh.
    pub fn policies_changed(&self) {
        self.shared.policies.advance();
    }

    /// Refuses who waits, finishes the transactions under way, and closes the connections.
    pub async fn stop(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        self.shared.store.close().await;
    }
}

/// How long a message asks to be kept open.
fn park(message: &Message, awaits: Awaits) -> Option<Park> {
    let wait = Duration::from_millis(message.wait_ms);
    (!wait.is_zero()).then(|| Park { until: clock::now() + wait, awaits })
}

fn heard(message: Message, arrival: Instant) -> Heard {
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let demand = message.demand.into_iter().map(|demand| Demand {
        group: Group::new(demand.group),
        count: count(demand.count),
        oldest_age: count(demand.oldest_age_ms).saturating_mul(1000),
    });
    let grants = message.grants.unwrap_or_default().into_iter().map(|report| GrantReport {
        id: report.id,
        claimed: count(report.claimed),
        released: count(report.released),
    });
    let takes_leases = message.leases.is_some();
    let leases = message.leases.unwrap_or_default().into_iter().map(|report| LeaseReport {
        id: report.id,
        drawn: count(report.drawn),
        released: count(report.released),
        stopped: report.stopped,
    });
    Heard {
        client: ClientId::new(message.client_id),
        seen: message.seen,
        arrival,
        demand: demand.collect(),
        grants: grants.collect(),
        leases: leases.collect(),
        takes_leases,
        applied: false,
    }
}
