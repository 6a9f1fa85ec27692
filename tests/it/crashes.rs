//! `kill -9` of a holder, and of PostgreSQL under one: what is counted is what it was, and clients go on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pgsemaphore::embedded::StopMode;
use pgsemaphore_tests::{Caller, Db, Serve, Worker, private_cluster, until, verify, within_reason};
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

const LIMIT: u64 = 6;

fn policy(grant_timeout_ms: u64) -> Value {
    json!({"limit": LIMIT, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": grant_timeout_ms})
}

/// One client of one key that works until `stop`, or until the holder is gone.
struct Traffic {
    key: String,
    worker: Worker,
    /// What it said last, and is not answered yet.
    unanswered: Option<(&'static str, Value)>,
}

impl Traffic {
    fn new(key: impl Into<String>, client_id: impl Into<String>) -> Self {
        Self { key: key.into(), worker: Worker::new(client_id), unanswered: None }
    }

    /// Takes, claims and releases again and again, with 0 to 2 permits held in between.
    async fn run(mut self, caller: Caller, answers: Arc<AtomicU64>) -> Self {
        loop {
            let (endpoint, message) = match rand::random_range(0..4) {
                0 | 1 => ("request", self.worker.wants(rand::random_range(1..3))),
                2 => {
                    self.worker.claim();
                    ("sync", self.worker.reports())
                }
                _ => {
                    self.worker.release();
                    ("sync", self.worker.reports())
                }
            };
            self.unanswered = Some((endpoint, message.clone()));
            let heard = match endpoint {
                "request" => caller.request(&self.key, &message).await,
                _ => caller.sync(&self.key, &message).await,
            };
            let Some(heard) = heard else { return self };
            self.worker.hear(&heard.ok());
            self.unanswered = None;
            answers.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// All that the views say of the keys that start with `prefix`.
async fn stored(pool: &PgPool, prefix: &str) -> Vec<String> {
    let query = sqlx::query_scalar(
        "SELECT g::text FROM pgsemaphore.grants AS g WHERE starts_with(key, $1)
         UNION ALL SELECT u::text FROM pgsemaphore.usage AS u WHERE starts_with(key, $1)
         UNION ALL SELECT u::text FROM pgsemaphore.group_usage AS u WHERE starts_with(key, $1)
         UNION ALL SELECT (b.key, b.client_id, b.grp, b.count, b.reason)::text
                   FROM pgsemaphore.blocked AS b WHERE starts_with(key, $1)
         ORDER BY 1",
    );
    query.bind(prefix).fetch_all(pool).await.expect("the views")
}

async fn until_no_sessions(pool: &PgPool) {
    until("the dead holder's sessions are gone", async || {
        let query = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND application_name = 'pgsemaphore'",
        );
        let sessions: i64 = query.fetch_one(pool).await.expect("pg_stat_activity");
        sessions == 0
    })
    .await;
}

/// A grant that nobody claims and that is still counted when the holder is dead. Its key is returned.
async fn die_with_an_unclaimed_grant(db: &Db, mut holder: Serve) -> String {
    for timeout in [2000, 4000, 8000, 16000] {
        let key = format!("short:{timeout}");
        let caller = Caller::of(holder.url());
        caller.policy(&key, &policy(timeout)).await;
        let _ = caller.insist(&key, &Worker::new("lost").wants(2)).await;
        holder.kill();
        holder.wait().await;
        until_no_sessions(db.pool()).await;
        if !counted(db.pool(), &key).await.is_empty() {
            return key;
        }
        holder = Serve::start(db.url()).await;
    }
    panic!("grants are gone although nobody was there to take them back");
}

async fn counted(pool: &PgPool, key: &str) -> Vec<i64> {
    let query = sqlx::query_scalar("SELECT grants FROM pgsemaphore.usage WHERE key = $1 AND grants > 0");
    query.bind(key).fetch_all(pool).await.expect("usage")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_loses_and_invents_nothing() {
    let db = Db::new().await;
    let mut holder = Serve::start(db.url()).await;
    let caller = Caller::of(holder.url());
    caller.policy("held:*", &policy(3_600_000)).await;

    let answers = Arc::new(AtomicU64::new(0));
    let clients = (0..12).map(|n| Traffic::new(format!("held:{}", n % 3), format!("c{n}")));
    let tasks: Vec<_> =
        clients.map(|traffic| tokio::spawn(traffic.run(caller.clone(), answers.clone()))).collect();
    until("traffic flows", async || answers.load(Ordering::SeqCst) > 100).await;
    holder.kill();
    holder.wait().await;
    let mut clients = Vec::new();
    for task in tasks {
        clients.push(within_reason("the caller's connection ends", task).await.expect("no panic"));
    }
    until_no_sessions(db.pool()).await;
    let before = stored(db.pool(), "held:").await;
    assert_eq!(verify(&db).await, []);

    // Another one dies with a grant that nobody will claim, of a key that nobody will ask for.
    let lost = die_with_an_unclaimed_grant(&db, Serve::start(db.url()).await).await;
    let holder = Serve::start(db.url()).await;
    until("the grant comes back without a message", async || counted(db.pool(), &lost).await.is_empty())
        .await;
    assert_eq!(stored(db.pool(), "held:").await, before, "a restart changes nothing");

    let caller = Caller::of(holder.url());
    for Traffic { key, worker, unanswered } in &mut clients {
        // The call that was not answered, again; what it was given in vain is delivered now.
        match unanswered.take() {
            Some(("request", message)) => worker.hear(&caller.insist(key, &message).await),
            _ => worker.hear(&caller.insist_sync(key, &worker.reports()).await),
        }
        let query = sqlx::query_scalar("SELECT id FROM pgsemaphore.grants WHERE key = $1 AND client_id = $2");
        let ids: Vec<String> =
            query.bind(&*key).bind(&worker.client_id).fetch_all(db.pool()).await.expect("the grants");
        let (stored, known): (BTreeSet<_>, BTreeSet<_>) =
            (ids.iter().collect(), worker.blocks.keys().collect());
        assert_eq!(stored, known, "{} of {key} knows what it holds", worker.client_id);
    }
    for Traffic { key, worker, .. } in &mut clients {
        worker.release();
        worker.hear(&caller.insist_sync(key, &worker.reports()).await);
        assert_eq!(worker.blocks.len(), 0, "every release is accepted");
    }
    for n in 0..3 {
        assert_eq!(caller.usage(&format!("held:{n}")).await["grants"], 0);
    }
    assert_eq!(verify(&db).await, []);
}

/// Takes, claims and releases until `stop`, outages or not.
async fn work_through(
    key: String,
    client_id: String,
    caller: Caller,
    running: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
) -> Worker {
    let mut worker = Worker::new(client_id);
    while !stop.load(Ordering::SeqCst) {
        worker.hear(&caller.insist(&key, &worker.wants(2)).await);
        worker.claim();
        worker.hear(&caller.insist_sync(&key, &worker.reports()).await);
        let mine = worker.running();
        let all = running.fetch_add(mine, Ordering::SeqCst) + mine;
        assert!(all <= LIMIT, "{all} run");
        tokio::task::yield_now().await;
        running.fetch_sub(mine, Ordering::SeqCst);
        worker.release();
        worker.hear(&caller.insist_sync(&key, &worker.reports()).await);
    }
    worker
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_postgresql_is_waited_for() {
    let mut cluster = private_cluster().await;
    let holder = Serve::start(&cluster.url()).await;
    let caller = Caller::of(holder.url());
    caller.policy("*", &policy(3_600_000)).await;
    let mut keeper = Worker::new("keeper");
    keeper.hear(&caller.insist("kept", &keeper.wants(4)).await);

    let stop = Arc::new(AtomicBool::new(false));
    let running: Vec<_> = (0..2).map(|_| Arc::new(AtomicU64::new(0))).collect();
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let running = running[n % 2].clone();
            let (key, client) = (format!("k{}", n % 2), format!("c{n}"));
            tokio::spawn(work_through(key, client, caller.clone(), running, stop.clone()))
        })
        .collect();
    for mode in [StopMode::Kill, StopMode::Immediate] {
        let before = caller.refused();
        let mut down = cluster;
        down.stop(mode).expect("PostgreSQL can be stopped");
        until("callers are refused", async || caller.refused() > before).await;
        down.restart().expect("PostgreSQL starts again");
        cluster = down;
        let round = caller.insist("k0", &Worker::new(format!("{mode:?}")).wants(0)).await;
        assert!(round["round"].as_u64() > Some(0), "the holder has recovered by itself: {round}");
    }
    stop.store(true, Ordering::SeqCst);
    for task in tasks {
        let worker = within_reason("the client is served", task).await.expect("no panic");
        assert_eq!(worker.blocks.len(), 0, "all that it held was given back");
    }
    assert_eq!(caller.unanswered(), 0, "the holder lives, so it answers");
    for key in ["k0", "k1"] {
        assert_eq!(caller.usage(key).await["grants"], 0);
    }
    // What was told before is as it was.
    assert_eq!(caller.usage("kept").await["grants"], 4);
    keeper.claim();
    keeper.hear(&caller.insist_sync("kept", &keeper.reports()).await);
    assert_eq!(keeper.running(), 4);

    let pool = PgPoolOptions::new().connect(&cluster.url()).await.expect("PostgreSQL is back");
    let query = sqlx::query_scalar("SELECT count(*) FROM pgsemaphore.verify(NULL)");
    let differences: i64 = query.fetch_one(&pool).await.expect("verify");
    assert_eq!(differences, 0);
}
