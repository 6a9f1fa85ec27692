//! Holders that freeze (SIGSTOP) under clients of the crate: nobody is declared dead, nothing runs twice, and a permit that
//! is free is used.
//!
//! The witness is the test's own record of who waits and what runs. `FREEZE_SECONDS` makes the world last longer; from 60 on
//! each wait beside a free permit is judged by [`SERVED_WITHIN`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use pgsemaphore_tests::{Db, Running, Serve, Truth, until, until_acquainted, verify, within_reason};
use queue_client::QueueClient;
use serde_json::json;
use tokio::task::JoinSet;

const CLIENTS: usize = 30;
/// A client that is not heard for so long is settled.
const SETTLED_AFTER: Duration = Duration::from_secs(6);
/// A holder stays frozen for longer than that.
const FROZEN_FOR: Duration = Duration::from_secs(7);
/// The bound of each wait beside a free permit.
const SERVED_WITHIN: Duration = Duration::from_secs(15);
const DEFAULT_SECONDS: u64 = 15;

/// Keys, their limits, and how leases are provided. Of the last two everybody finds a permit at any time.
const KEYS: [(&str, u64, &str); 3] =
    [("scarce", 3, "none"), ("ample", CLIENTS as u64, "none"), ("lent", 10 * CLIENTS as u64, "strict")];

/// When in a permit's life a holder freezes: as soon as this query finds something.
const PHASES: [(&str, &str); 7] = [
    ("asked", "SELECT EXISTS (SELECT FROM pgsemaphore.blocked)"),
    (
        "inside the transaction",
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
                        AND application_name = 'pgsemaphore' AND state LIKE 'idle in transaction%')",
    ),
    ("granted", "SELECT EXISTS (SELECT FROM pgsemaphore.grants WHERE claimed < permits)"),
    ("claimed", "SELECT EXISTS (SELECT FROM pgsemaphore.grants WHERE released < claimed)"),
    ("running", "SELECT coalesce(sum(grants), 0) >= 3 FROM pgsemaphore.usage"),
    ("released", "SELECT EXISTS (SELECT FROM pgsemaphore.usage WHERE key = 'scarce' AND available > 0)"),
    ("leased", "SELECT EXISTS (SELECT FROM pgsemaphore.leases WHERE drawn < permits)"),
];

/// Who waits for a key, what runs, and how long somebody waited in vain: to the start of the item itself where everybody
/// finds a permit, else for as long as nothing started beside a free permit.
#[derive(Debug)]
struct Record {
    limit: u64,
    waiting: u64,
    running: u64,
    /// Since when somebody waits beside a free permit.
    idle_since: Option<Instant>,
    longest: Duration,
}

#[derive(Debug, Clone)]
struct Records(Arc<Mutex<Vec<Record>>>);

impl Records {
    fn new() -> Self {
        let record = |(_, limit, _)| Record {
            limit,
            waiting: 0,
            running: 0,
            idle_since: None,
            longest: Duration::ZERO,
        };
        Self(Arc::new(Mutex::new(KEYS.map(record).into())))
    }

    fn waits(&self, key: usize) {
        self.all()[key].note(|record| record.waiting += 1);
    }

    fn starts(&self, key: usize, waited: Duration) {
        let record = &mut self.all()[key];
        record.ends_idling();
        if record.limit >= CLIENTS as u64 {
            record.longest = record.longest.max(waited);
        }
        record.note(|record| (record.waiting, record.running) = (record.waiting - 1, record.running + 1));
    }

    fn ends(&self, key: usize) {
        self.all()[key].note(|record| record.running -= 1);
    }

    fn all(&self) -> MutexGuard<'_, Vec<Record>> {
        self.0.lock().expect("no panic while locked")
    }
}

impl Record {
    fn note(&mut self, change: impl FnOnce(&mut Self)) {
        change(self);
        if self.waiting == 0 || self.running >= self.limit {
            self.ends_idling();
        } else {
            self.idle_since.get_or_insert_with(Instant::now);
        }
    }

    fn ends_idling(&mut self) {
        let idled = self.idle_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        self.longest = self.longest.max(idled);
    }
}

struct World {
    db: Db,
    holders: Vec<Serve>,
    truth: Truth,
    records: Records,
    stop: Arc<AtomicBool>,
    length: Duration,
}

impl World {
    async fn new(holders: usize) -> Self {
        let seconds = std::env::var("FREEZE_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
        let (db, truth) = (Db::new().await, Truth::default());
        let mut serves = Vec::new();
        for _ in 0..holders {
            serves.push(Serve::start(db.url()).await);
        }
        for (key, limit, provisioning) in KEYS {
            let settled_after = u64::try_from(SETTLED_AFTER.as_millis()).expect("a short time");
            let policy = json!({"limit": limit, "provisioning": provisioning, "permits_per_lease": 4,
                "settle_lost_clients_after_ms": settled_after});
            let query = sqlx::query("SELECT pgsemaphore.configure($1, $2)").bind(key).bind(policy);
            query.execute(db.pool()).await.expect("configure");
            truth.limit(key, None, limit);
        }
        until_acquainted(db.pool(), i64::try_from(holders).expect("a few")).await;
        let length = Duration::from_secs(seconds.unwrap_or(DEFAULT_SECONDS));
        Self { db, holders: serves, truth, records: Records::new(), stop: Arc::default(), length }
    }

    /// Each asks another holder first than the one before it.
    fn clients(&self) -> Vec<QueueClient> {
        let holders = self.holders.len();
        let client = |n: usize| {
            let urls = (0..holders).map(|at| self.holders[(n + at) % holders].url());
            urls.fold(QueueClient::builder().client_id(format!("c{n}")), |client, url| client.url(url))
                .build()
        };
        (0..CLIENTS).map(client).collect::<Result<_, _>>().expect("clients")
    }

    /// Items of every client on every key, until `stop`.
    fn items(&self, clients: &[QueueClient]) -> JoinSet<()> {
        let mut items = JoinSet::new();
        for client in clients {
            for (at, (key, _, _)) in KEYS.into_iter().enumerate() {
                let (semaphore, truth, stop) = (client.semaphore(key), self.truth.clone(), self.stop.clone());
                let records = self.records.clone();
                items.spawn(async move {
                    while !stop.load(Ordering::SeqCst) {
                        let since = Instant::now();
                        records.waits(at);
                        let permit = semaphore.acquire("").await.expect("no frozen holder is an error");
                        records.starts(at, since.elapsed());
                        let running: Running = truth.start(key, "");
                        // Now and then an item runs for as long as a holder is frozen.
                        let long = at > 0 && rand::random_ratio(1, 20);
                        let most = if long { 8_000 } else { 200 };
                        tokio::time::sleep(Duration::from_millis(rand::random_range(1..most))).await;
                        drop(running);
                        records.ends(at);
                        drop(permit);
                    }
                });
            }
        }
        items
    }

    /// Freezes one holder after the other, each in the next phase, and lets it go on.
    async fn freeze_in_turn(&self) {
        let (started, first) = (Instant::now(), rand::random_range(0..PHASES.len()));
        for turn in first.. {
            let (phase, query) = PHASES[turn % PHASES.len()];
            until(phase, async || {
                sqlx::query_scalar(query).fetch_one(self.db.pool()).await.expect("a look at the phase")
            })
            .await;
            let holder = &self.holders[rand::random_range(0..self.holders.len())];
            holder.freeze();
            tokio::time::sleep(FROZEN_FOR).await;
            holder.thaw();
            self.look(phase).await;
            if started.elapsed() > self.length {
                return;
            }
            // Until the others see it again, and one more than one of them is never away.
            until_acquainted(self.db.pool(), i64::try_from(self.holders.len()).expect("a few")).await;
        }
    }

    /// What must hold at any moment.
    async fn look(&self, phase: &str) {
        let query = "SELECT client_id || ' on ' || key || ': ' || action FROM pgsemaphore.audit
                     WHERE action <> 'policy'";
        let declared: Vec<String> =
            sqlx::query_scalar(query).fetch_all(self.db.pool()).await.expect("the audit");
        assert_eq!(declared, [] as [String; 0], "after a freeze when {phase}");
        assert_eq!(self.truth.violations(), [] as [String; 0], "after a freeze when {phase}");
    }

    fn judge_waits(&self) {
        for (record, (key, _, _)) in self.records.all().iter().zip(KEYS) {
            eprintln!("{key}: the longest wait beside a free permit took {:?}", record.longest);
            if self.length >= Duration::from_secs(60) {
                assert!(record.longest <= SERVED_WITHIN, "{key}: {:?}", record.longest);
            }
        }
    }
}

async fn freeze_one_of(holders: usize) {
    let world = World::new(holders).await;
    let clients = world.clients();
    let mut items = world.items(&clients);
    world.freeze_in_turn().await;
    world.stop.store(true, Ordering::SeqCst);
    within_reason("all items end", async {
        while let Some(item) = items.join_next().await {
            item.expect("no panic");
        }
    })
    .await;
    for client in &clients {
        within_reason("a drain", client.drain()).await.expect("drained");
    }
    world.look("all was over").await;
    world.judge_waits();
    assert_eq!(verify(&world.db).await, []);
    let used = "SELECT coalesce(sum(grants + leases), 0)::bigint FROM pgsemaphore.usage";
    until("all permits have come back", async || {
        let used: i64 = sqlx::query_scalar(used).fetch_one(world.db.pool()).await.expect("usage");
        used == 0
    })
    .await;
}

/// O-10, O-12.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_one_of_two_holders_frozen_nobody_is_settled_and_everybody_is_served() {
    freeze_one_of(2).await;
}

/// O-10, O-12.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_one_of_three_holders_frozen_nobody_is_settled_and_everybody_is_served() {
    freeze_one_of(3).await;
}
