//! A holder: answers requests and syncs of any key, and acts on deadlines without being asked.

use crate::access::Keys;
use crate::actor::Command;
use crate::clock;
use crate::hearing;
use crate::hinted::{self, Hinted};
use crate::hints::{self, Epoch};
use crate::homes::Homes;
use crate::housekeeping;
use crate::keys;
use crate::metrics::Metrics;
use crate::open_calls::{OpenCalls, Voice};
use crate::outbox::{self, Outbox};
use crate::panics;
use crate::parked::{Awaits, Park};
use crate::pending::{Caller, Pending, Places};
use crate::policy_changes;
use crate::refusal::Refusal;
use crate::round::Heard;
use crate::self_check;
use crate::speaker::Speaker;
use crate::store::{SettleError, Settled, Store, StoreError};
use crate::takeover::{Asked, Takeovers};
use pgsemaphore_allocation::{ClientId, Demand, GrantReport, Group, Incarnation, LeaseReport, SemaphoreKey};
use queue_wire::{Message, Reply, TakenOver, Takeover};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long the holder's row may take to be deleted before the holder ends all the same.
const LEAVE: Duration = Duration::from_secs(1);
/// How long transactions under way may take to end.
const FINISH: Duration = Duration::from_secs(4);

/// A handle to a running holder; clones share it.
#[derive(Clone)]
pub struct Holder {
    shared: Arc<Shared>,
}

/// What the parts of a holder share.
pub(crate) struct Shared {
    pub(crate) store: Store,
    /// Random: this holder's row among the holders.
    pub(crate) name: String,
    /// Where other holders reach it.
    pub(crate) url: String,
    pub(crate) homes: Homes,
    pub(crate) keys: keys::Keys,
    pub(crate) policies: Epoch,
    pub(crate) hinted: Hinted,
    pub(crate) outbox: Outbox,
    pub(crate) takeovers: Takeovers,
    /// Its first heartbeat was tried.
    pub(crate) joined: CancellationToken,
    pub(crate) open_calls: Arc<OpenCalls>,
    /// It takes no new calls, and its row is to go.
    pub(crate) leave: CancellationToken,
    /// Its row is gone, or could not be deleted.
    pub(crate) left: CancellationToken,
    /// Those who wait are refused, and nothing more is begun.
    pub(crate) stop: CancellationToken,
    /// What is still under way is not waited for any longer.
    pub(crate) abandoned: CancellationToken,
    pub(crate) tasks: TaskTracker,
    places: Arc<Places>,
}

impl Shared {
    /// Runs `work` in a task that its caller cannot cancel. None: it panicked.
    pub(crate) fn to_the_end<T, W>(
        self: &Arc<Self>,
        task: &'static str,
        work: W,
    ) -> impl Future<Output = Option<T>> + Send + use<T, W>
    where
        T: Send + 'static,
        W: Future<Output = T> + Send + 'static,
    {
        let shared = self.clone();
        let work = self.tasks.spawn(async move { panics::caught(task, shared.store.metrics(), work).await });
        async move { work.await.ok().flatten() }
    }

    /// Runs a duty until the holder stops.
    fn keep<F>(self: &Arc<Self>, task: &'static str, duty: impl Fn(Arc<Self>) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(panics::keep(task, self.clone(), duty));
    }
}

/// What a holder does without being asked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Rows of keys with nothing counted and no message for so long are deleted.
    pub forget_after: Duration,
    /// How often the holder looks at its database for metrics, and counts some keys again.
    pub self_check_every: Duration,
    /// Keys that get metrics of their own.
    pub metrics_keys: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        let (forget_after, self_check_every) = (Duration::from_secs(600), Duration::from_secs(10));
        Self { forget_after, self_check_every, metrics_keys: Vec::new() }
    }
}

impl Holder {
    /// Starts a holder over `store`, which others reach at `url`. It is among the holders when this is ready, unless that
    /// failed, which it tries again.
    pub async fn start(store: Store, url: impl Into<String>, settings: Settings) -> Self {
        let Settings { forget_after, self_check_every, metrics_keys } = settings;
        store.metrics().build_info.set([env!("CARGO_PKG_VERSION").into()], 1);
        let name = format!("{:016x}", rand::random::<u64>());
        let shared = Arc::new(Shared {
            store,
            homes: Homes::new(name.as_str()),
            name,
            url: url.into(),
            keys: keys::Keys::default(),
            policies: Epoch::default(),
            hinted: Hinted::default(),
            outbox: Outbox::default(),
            takeovers: Takeovers::default(),
            joined: CancellationToken::new(),
            open_calls: Arc::default(),
            leave: CancellationToken::new(),
            left: CancellationToken::new(),
            stop: CancellationToken::new(),
            abandoned: CancellationToken::new(),
            tasks: TaskTracker::new(),
            places: Arc::default(),
        });
        shared.keep("heartbeat", housekeeping::beat);
        shared.keep("policies", policy_changes::watch);
        shared.keep("deadlines", housekeeping::watch_deadlines);
        shared.keep("sweep", move |shared| housekeeping::forget_idle_keys(shared, forget_after));
        let check = move |shared| self_check::watch(shared, self_check_every, metrics_keys.clone());
        shared.keep("self_check", check);
        shared.keep("open_calls", hearing::note_open_calls);
        shared.keep("listener", hints::listen);
        shared.keep("hints", hinted::look_up);
        shared.keep("outbox", outbox::send_hints);
        shared.joined.cancelled().await;
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
        self.request_since(key, message, clock::now()).await
    }

    /// As [`request`](Self::request), of a call that arrived at `arrival`, perhaps at another holder.
    pub(crate) async fn request_since(
        &self,
        key: SemaphoreKey,
        message: Message,
        arrival: Instant,
    ) -> Result<Reply, Refusal> {
        let wants = message.demand.iter().any(|demand| demand.count > 0);
        let park = park(&message, arrival, Awaits::Permits).filter(|_| wants);
        self.call(key, message, arrival, park, true).await
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
        let (known, arrival) = (message.known_state.take(), clock::now());
        let park = park(&message, arrival, Awaits::Change { known });
        self.call(key, message, arrival, park, false).await
    }

    async fn call(
        &self,
        key: SemaphoreKey,
        message: Message,
        arrival: Instant,
        park: Option<Park>,
        asks: bool,
    ) -> Result<Reply, Refusal> {
        if self.is_ending() {
            return Err(Refusal::ShuttingDown);
        }
        let (caller, answer) = Caller::new(&message, &self.shared.places)?;
        let heard = heard(message, arrival, asks);
        let voice = Voice { client: heard.client.clone(), from: heard.from.clone() };
        let _open = self.shared.open_calls.open(&key, voice, clock::now());
        let pending = Pending { heard, caller, park, waits: false, said: None };
        self.shared.keys.send(&self.shared, &key, Command::Call(Box::new(pending)));
        answer.await.unwrap_or(Err(Refusal::Unavailable))
    }

    /// Has requests that wait here, and give way to a newer one that waits elsewhere, answered.
    pub(crate) fn give_way(&self, key: &SemaphoreKey, new: Speaker) {
        self.shared.keys.tell(key, Command::GiveWay(new));
    }

    /// This holder's name among the holders.
    pub(crate) fn name(&self) -> &str {
        &self.shared.name
    }

    /// Which holders are keys' homes.
    pub(crate) fn homes(&self) -> &Homes {
        &self.shared.homes
    }

    /// Ready when this holder stops.
    pub(crate) async fn stops(&self) {
        self.shared.stop.cancelled().await;
    }

    /// Declares a client dead on a key, as [`Store::settle_client`] does, and has those look again who wait for it.
    ///
    /// # Errors
    /// Any [`SettleError`].
    ///
    /// # Cancel safety
    /// Once begun it goes on without its caller.
    pub async fn settle(
        &self,
        key: &SemaphoreKey,
        client: &ClientId,
        reason: Option<&str>,
        actor: &str,
        force: bool,
    ) -> Result<Settled, SettleError> {
        let (shared, key, client) = (self.shared.clone(), key.clone(), client.clone());
        let (reason, actor) = (reason.map(str::to_owned), actor.to_owned());
        let settle = async move {
            let settled = shared.store.settle_client(&key, &client, reason.as_deref(), &actor, force).await?;
            let came_back = u64::try_from(settled.grants + settled.leases).unwrap_or(0);
            shared.store.metrics().permits_reclaimed.add([], came_back);
            Ok(settled)
        };
        let panicked = || Err(StoreError::Unavailable(sqlx::Error::WorkerCrashed).into());
        self.shared.to_the_end("settle", settle).await.unwrap_or_else(panicked)
    }

    /// Makes `takeover.process` the process that speaks for `client`, on every one of `keys` where the client holds something:
    /// one transaction a key, in any order. Asking again is safe, and joins the same takeover while that is under way.
    ///
    /// # Errors
    /// [`Refusal::Unavailable`], [`Refusal::ShuttingDown`]; some keys may be taken over then.
    /// [`Refusal::TooManyWaiting`]; none is.
    ///
    /// # Cancel safety
    /// Once begun it goes on without its caller.
    pub async fn take_over(
        &self,
        client: ClientId,
        takeover: Takeover,
        keys: &Keys,
    ) -> Result<TakenOver, Refusal> {
        if self.is_ending() {
            return Err(Refusal::ShuttingDown);
        }
        self.shared.takeovers.join(&self.shared, Asked { client, takeover, keys: keys.clone() }).await
    }

    /// What is counted, as it is now.
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        let shared = &self.shared;
        let metrics = shared.store.metrics();
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        metrics.waiting_requests.set([], count(shared.places.waiting()));
        metrics.parked_calls.set([], count(shared.places.kept()));
        metrics.active_keys.set([], count(shared.keys.len()));
        let (used, idle) = shared.store.connections_in_use();
        metrics.database_connections.set(["used".into()], count(used));
        metrics.database_connections.set(["idle".into()], count(idle));
        metrics
    }

    /// How many counters this holder found different from the blocks that they count.
    pub fn drift(&self) -> i64 {
        self.shared.store.metrics().drift_counters.level([])
    }

    /// Makes the next round of every key look at its policy's wait and period afresh.
    pub fn policies_changed(&self) {
        self.shared.policies.advance();
    }

    /// Whether new calls are refused.
    pub fn is_ending(&self) -> bool {
        self.shared.leave.is_cancelled()
    }

    /// Refuses new calls, and deletes this holder's row, so that others stop counting on it: within a second, or not at
    /// all. Those who wait go on waiting.
    pub async fn leave(&self) {
        self.shared.leave.cancel();
        if tokio::time::timeout(LEAVE, self.shared.left.cancelled()).await.is_err() {
            tracing::warn!("the database does not answer; this holder counts as gone in 3 s");
            self.shared.left.cancel();
        }
    }

    /// Leaves, refuses who waits, finishes the transactions under way, and closes the connections. What the database has
    /// not done after 4 s is abandoned; PostgreSQL rolls it back.
    pub async fn stop(&self) {
        self.leave().await;
        self.shared.stop.cancel();
        self.shared.tasks.close();
        let finish = async {
            self.shared.tasks.wait().await;
            self.shared.store.close().await;
        };
        if tokio::time::timeout(FINISH, finish).await.is_err() {
            tracing::warn!("the database does not answer; what was under way is abandoned");
        }
        self.abandon();
    }

    /// Has the callers answered that still wait for the database.
    pub fn abandon(&self) {
        self.shared.abandoned.cancel();
    }

    /// Ready when the database is not waited for any longer.
    pub(crate) async fn abandoned(&self) {
        self.shared.abandoned.cancelled().await;
    }
}

/// How long a message that arrived at `arrival` asks to be kept open.
fn park(message: &Message, arrival: Instant, awaits: Awaits) -> Option<Park> {
    let wait = Duration::from_millis(message.wait_ms);
    (!wait.is_zero()).then(|| Park { until: arrival + wait, awaits })
}

fn heard(message: Message, arrival: Instant, asks: bool) -> Heard {
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
        from: Incarnation {
            generation: message.generation,
            process: message.process,
            resumes: message.resume,
        },
        seen: message.seen,
        all: message.all,
        arrival,
        asks,
        demand: demand.collect(),
        grants: grants.collect(),
        leases: leases.collect(),
        takes_leases,
        applied: false,
    }
}
