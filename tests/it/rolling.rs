//! Holders that come and go under load: clients with the URLs of all of them hear nothing of it, and no limit is exceeded.
//!
//! The witness is [`Truth`], the test's own record of what ran. `WORLD_SECONDS` makes it last longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use pgsemaphore_tests::{Caller, Db, InProcess, Proxy, Serve, Truth, Worker, until, verify, within_reason};
use queue_client::QueueClient;
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinHandle;

const KEYS: usize = 8;
const DEFAULT_SECONDS: u64 = 15;
/// How long a holder is left alone before the next one is killed.
const BETWEEN_KILLS: Duration = Duration::from_secs(7);

fn length() -> Duration {
    let seconds = std::env::var("WORLD_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(DEFAULT_SECONDS))
}

fn policy(limit: u64) -> Value {
    json!({"limit": limit, "round_wait_ms": 5, "round_period_ms": 10, "grant_timeout_ms": 2000})
}

/// Holders, each behind a proxy that gives it an address which outlives it.
struct Holders {
    db: Db,
    all: Vec<(Serve, Proxy)>,
    urls: Vec<String>,
}

impl Holders {
    async fn start(count: usize, limit: u64) -> Self {
        let db = Db::new().await;
        let mut holders = Self { db, all: Vec::new(), urls: Vec::new() };
        for _ in 0..count {
            let serve = Serve::start(holders.db.url()).await;
            let proxy = Proxy::before(serve.url()).await;
            holders.urls.push(proxy.through(serve.url()));
            holders.all.push((serve, proxy));
        }
        Caller::of(&holders.urls[0]).policy("*", &policy(limit)).await;
        holders
    }

    /// A client that asks this one first.
    fn client(&self, number: usize) -> QueueClient {
        let urls = self.urls.iter().cycle().skip(number % self.urls.len()).take(self.urls.len());
        let builder = QueueClient::builder().client_id(format!("client-{number}"));
        urls.fold(builder, |builder, url| builder.url(url)).build().expect("a client")
    }

    async fn restart(&mut self, at: usize, kill: bool) {
        let (serve, proxy) = &mut self.all[at];
        if kill {
            serve.kill()
        } else {
            serve.terminate()
        }
        serve.wait().await;
        *serve = Serve::start(self.db.url()).await;
        proxy.retarget(serve.url());
    }

    /// Grants that nobody claimed come back by their deadline; all else came back before.
    async fn must_be_at_rest(&self) {
        let query = "SELECT coalesce(sum(grants + leases), 0)::bigint FROM pgsemaphore.usage";
        until("nothing is in use", async || {
            let used: i64 = sqlx::query_scalar(query).fetch_one(self.db.pool()).await.expect("usage");
            used == 0
        })
        .await;
        assert_eq!(verify(&self.db).await, []);
    }
}

/// Clients that start and end items on random keys until they are told to end.
struct Load {
    truth: Truth,
    ended: Arc<AtomicBool>,
    items: Arc<AtomicU64>,
    loops: Vec<JoinHandle<()>>,
    clients: Vec<QueueClient>,
}

impl Load {
    fn start(holders: &Holders, clients: usize, limit: u64) -> Self {
        let (truth, ended, items) = (Truth::default(), Arc::new(AtomicBool::new(false)), Arc::default());
        (0..KEYS).for_each(|key| truth.limit(&format!("key:{key}"), None, limit));
        let clients: Vec<_> = (0..clients).map(|number| holders.client(number)).collect();
        let mut load = Self { truth, ended, items, loops: Vec::new(), clients };
        for client in &load.clients {
            let (client, truth) = (client.clone(), load.truth.clone());
            let (ended, items) = (load.ended.clone(), load.items.clone());
            load.loops.push(tokio::spawn(async move {
                while !ended.load(Ordering::SeqCst) {
                    let semaphore = client.semaphore(format!("key:{}", rand::random_range(0..KEYS)));
                    let permit = semaphore.acquire("").await.expect("no restart is an error");
                    let running = truth.start(semaphore.key(), "");
                    tokio::time::sleep(Duration::from_millis(rand::random_range(0..50))).await;
                    drop(running);
                    drop(permit);
                    items.fetch_add(1, Ordering::SeqCst);
                }
            }));
        }
        load
    }

    fn items(&self) -> u64 {
        self.items.load(Ordering::SeqCst)
    }

    async fn until_more(&self, more: u64) {
        let before = self.items();
        until("items run", async || self.items() >= before + more).await;
    }

    /// Everybody gets what it waits for, and gives everything back.
    async fn end(self) {
        self.ended.store(true, Ordering::SeqCst);
        let ended = within_reason("everybody is served", join_all(self.loops)).await;
        ended.into_iter().for_each(|ended| ended.expect("no operation failed"));
        let drained =
            within_reason("all is given back", join_all(self.clients.iter().map(QueueClient::drain))).await;
        drained.into_iter().for_each(|drained| drained.expect("drained"));
        assert_eq!(self.truth.violations(), [] as [String; 0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_fails_nothing() {
    let mut holders = Holders::start(3, 4).await;
    let load = Load::start(&holders, 100, 4);
    for at in 0..3 {
        load.until_more(50).await;
        holders.restart(at, false).await;
    }
    load.until_more(50).await;
    load.end().await;
    holders.must_be_at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_that_are_killed_one_after_the_other_exceed_no_limit() {
    let length = length();
    let mut holders = Holders::start(4, 7).await;
    let load = Load::start(&holders, 30, 7);
    let (started, mut kills) = (Instant::now(), 0);
    while started.elapsed() < length {
        let next = Instant::now() + BETWEEN_KILLS.min(length);
        while Instant::now() < next {
            look(&holders.db, &load.truth).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        holders.restart(kills % 4, true).await;
        kills += 1;
    }
    load.until_more(50).await;
    load.end().await;
    holders.must_be_at_rest().await;
}

/// All that ran the whole time while it was counted is counted (P2), and no more than the limit (P1).
async fn look(db: &Db, truth: &Truth) {
    for key in (0..KEYS).map(|key| format!("key:{key}")) {
        let before = truth.running(&key, None);
        let query = "SELECT coalesce(sum(grants), 0)::bigint FROM pgsemaphore.usage WHERE key = $1";
        let counted: i64 = sqlx::query_scalar(query).bind(&key).fetch_one(db.pool()).await.expect("usage");
        let counted = u64::try_from(counted).expect("usage is never negative");
        let running = truth.running(&key, None).intersection(&before).count();
        assert!(running as u64 <= counted, "{key}: {running} run, {counted} are counted");
        assert!(Some(counted) <= truth.highest(&key, None), "{key}: {counted} are counted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brand_new_keys_asked_for_everywhere_at_once_have_one_owner_each() {
    /// As many as there is time for, between these.
    const NEW_KEYS: std::ops::Range<u64> = 5..300;
    const CLIENTS: usize = 40;
    let db = Db::new().await;
    let mut holders = Vec::new();
    for _ in 0..4 {
        holders.push(InProcess::start(db.url()).await);
    }
    let limit = json!({"limit": 1, "round_wait_ms": 5, "round_period_ms": 0, "grant_timeout_ms": 3_600_000});
    holders[0].policy("*", limit).await;
    let truth = Truth::default();
    let (all_ready, enough) = (Arc::new(Barrier::new(CLIENTS)), Arc::new(AtomicBool::new(false)));
    let started = Instant::now();
    let clients = (0..CLIENTS).map(|n| {
        let (caller, truth) = (holders[n % 4].caller(), truth.clone());
        let (all_ready, enough) = (all_ready.clone(), enough.clone());
        tokio::spawn(async move {
            for number in 0..NEW_KEYS.end {
                if all_ready.wait().await.is_leader() {
                    let late = number >= NEW_KEYS.start && started.elapsed() > length();
                    enough.store(late, Ordering::SeqCst);
                }
                all_ready.wait().await;
                if enough.load(Ordering::SeqCst) {
                    return;
                }
                let key = format!("new:{number}");
                truth.limit(&key, None, 1);
                let mut worker = Worker::new(format!("c{n}"));
                tokio::time::sleep(Duration::from_micros(rand::random_range(0..5000))).await;
                worker.hear(&caller.insist(&key, &worker.wants(1)).await);
                worker.claim();
                if worker.permits() > 0 {
                    worker.hear(&caller.insist_sync(&key, &worker.reports()).await);
                    let running: Vec<_> = (0..worker.running()).map(|_| truth.start(&key, "")).collect();
                    tokio::task::yield_now().await;
                    drop(running);
                    worker.release();
                    worker.hear(&caller.insist_sync(&key, &worker.reports()).await);
                    assert_eq!(worker.blocks.len(), 0);
                }
            }
        })
    });
    for client in join_all(clients).await {
        client.expect("no panic");
    }
    assert_eq!(truth.violations(), [] as [String; 0]);
    let asked: i64 = sqlx::query_scalar("SELECT count(*) FROM pgsemaphore.usage")
        .fetch_one(db.pool())
        .await
        .expect("usage");
    assert!(truth.started() >= asked.unsigned_abs(), "{} items of {asked} keys", truth.started());
    let used: i64 = sqlx::query_scalar("SELECT coalesce(sum(grants), 0)::bigint FROM pgsemaphore.usage")
        .fetch_one(db.pool())
        .await
        .expect("usage");
    assert_eq!((used, verify(&db).await), (0, vec![]));
}
