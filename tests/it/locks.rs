//! Somebody holds a row, or all connections are in use: others are served, and those concerned wait for a bounded time.

use std::time::{Duration, Instant};

use pgsemaphore_tests::{
    Act, COMMIT, Caller, Db, InProcess, Proxy, Worker, faults, message, until, verify, within_reason,
};
use serde_json::{Value, json};

const FORGET: Duration = Duration::from_secs(600);

fn policy(limit: u64, round_wait_ms: u64) -> Value {
    json!({
        "limit": limit, "round_wait_ms": round_wait_ms, "round_period_ms": 0, "grant_timeout_ms": 60_000
    })
}

#[tokio::test]
async fn a_locked_row_delays_its_key_alone_and_costs_no_claim_time() {
    let db = Db::new().await;
    // Two connections: one is stuck, everybody else shares the other.
    let holder = InProcess::start_with(db.url(), 2, FORGET).await;
    let caller = holder.caller();
    holder.policy("*", policy(5, 0)).await;
    let _ = caller.insist("locked", &Worker::new("w").wants(0)).await;

    let lock = faults::RowLock::hold(db.url(), "locked").await;
    let (stuck, worker) = (caller.clone(), Worker::new("w"));
    let message = worker.wants(2);
    let waits = tokio::spawn(async move { (stuck.request("locked", &message).await, Instant::now()) });
    faults::until_locked_out(db.pool(), 1).await;
    let locked_at = Instant::now();
    while locked_at.elapsed() < Duration::from_secs(2) {
        let reply = caller.insist("free", &Worker::new(format!("{locked_at:?}")).wants(1)).await;
        assert!(reply["round"].as_u64() > Some(0));
    }
    let released_at = Instant::now();
    lock.release().await;
    let (heard, answered_at) = within_reason("the round", waits).await.expect("no panic");
    let reply = heard.expect("an answer").ok();
    let claim_within = reply["grants"][0]["claim_within_ms"].as_u64().expect("a claim time");
    // Only the time since the lock was gone may be missing.
    let since = u64::try_from((answered_at - released_at).as_millis()).expect("a short time");
    assert!(
        claim_within + since + 1 >= 60_000,
        "{claim_within} ms are left, {since} ms after the lock was gone"
    );
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn a_row_that_stays_locked_is_a_503_and_then_forgotten() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let caller = holder.caller();
    holder.policy("*", policy(5, 0)).await;
    let mut worker = Worker::new("w");
    worker.hear(&caller.insist("k", &worker.wants(1)).await);
    worker.claim();

    let lock = faults::RowLock::hold(db.url(), "k").await;
    let (request, sync) = (Worker::new("other").wants(2), worker.reports());
    let (request, sync) = tokio::join!(caller.request("k", &request), caller.sync("k", &sync));
    request.expect("an answer").must_be_unavailable();
    sync.expect("an answer").must_be_unavailable();
    lock.release().await;

    worker.hear(&caller.insist_sync("k", &worker.reports()).await);
    assert_eq!(worker.running(), 1);
    let mut other = Worker::new("other");
    other.hear(&caller.insist("k", &other.wants(2)).await);
    assert_eq!(caller.usage("k").await["grants"], 3, "what was refused has left nothing behind");
    assert_eq!(verify(&db).await, []);
}

/// A holder vanishes in the middle of a round, and nobody tells PostgreSQL: its session goes on holding the row.
#[tokio::test]
async fn a_row_that_a_vanished_holder_locked_is_free_in_bounded_time() {
    let db = Db::new().await;
    let proxy = Proxy::before(db.url()).await;
    let vanished = InProcess::start(&proxy.through(db.url())).await;
    let holder = InProcess::start(db.url()).await;
    let (first, caller) = (vanished.caller(), holder.caller());
    holder.policy("*", policy(5, 0)).await;
    let _ = caller.insist("k", &Worker::new("w").wants(0)).await;

    proxy.trap(COMMIT, Act::Hold, 1);
    let message = Worker::new("first").wants(3);
    let call = tokio::spawn(async move { first.request("k", &message).await });
    until("the round is about to be committed", async || proxy.sprung() == 1).await;
    let mut second = Worker::new("second");
    // Others wait until PostgreSQL ends the session; it does that by the session's own settings. Then both rounds run, in
    // any order: what the holder computed before counts for nothing.
    second.hear(&caller.request("k", &second.wants(4)).await.expect("an answer").ok());
    let heard = within_reason("the caller of the vanished holder is told", call).await.expect("no panic");
    let mut first = Worker::new("first");
    first.hear(&heard.expect("an answer").ok());
    assert!(matches!((first.permits(), second.permits()), (1, 4) | (3, 2)), "{first:?}, {second:?}");
    assert_eq!(caller.usage("k").await["grants"], 5);
    assert_eq!(verify(&db).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_wait_hold_no_connection() {
    let db = Db::new().await;
    let holder = InProcess::start_with(db.url(), 2, FORGET).await;
    let caller = holder.caller();
    holder.policy("slow:*", policy(1000, 60_000)).await;
    holder.policy("fast", policy(1000, 0)).await;
    let waiting: Vec<_> = (0..500)
        .map(|n| {
            let (holder, client) = (holder.holder().clone(), Worker::new(format!("c{n}")));
            let message = serde_json::from_value(client.wants(1)).expect("a message");
            let key = pgsemaphore_allocation::SemaphoreKey::new(format!("slow:{}", n % 60));
            tokio::spawn(async move { holder.request(key, message).await })
        })
        .collect();
    for n in 0..40 {
        let reply = caller.insist("fast", &Worker::new(format!("c{n}")).wants(1)).await;
        assert_eq!(reply["grants"][0]["permits"], 1);
        assert_eq!(caller.usage("slow:0").await["grants"], 0);
    }
    until("no session of the holder works", async || {
        let query = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
             AND application_name = 'pgsemaphore' AND state <> 'idle'",
        );
        let busy: i64 = query.fetch_one(db.pool()).await.expect("pg_stat_activity");
        busy == 0
    })
    .await;
    let ended = waiting.iter().filter(|call| call.is_finished()).count();
    assert_eq!(ended, 0, "of 500 requests that wait for a minute");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Syncs by two holders, which report the same blocks in opposite order, and two keys in opposite order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_in_opposite_order_do_not_deadlock() {
    const GROUPS: usize = 100;
    let db = Db::new().await;
    let holders = [InProcess::start(db.url()).await, InProcess::start(db.url()).await];
    holders[0].policy("*", policy(1000, 0)).await;
    let callers: [Caller; 2] = [holders[0].caller(), holders[1].caller()];
    let demand: Vec<Value> = (0..GROUPS).map(|n| json!({"group": format!("g{n}"), "count": 20})).collect();
    let mut ids = Vec::new();
    for key in ["k1", "k2"] {
        let reply = callers[0].insist(key, &message("w", json!({"demand": demand}))).await;
        let grants = reply["grants"].as_array().expect("grants").clone();
        ids.push(
            grants.iter().map(|grant| grant["id"].as_str().expect("an id").to_owned()).collect::<Vec<_>>(),
        );
        assert_eq!(ids.last().map(Vec::len), Some(GROUPS.min(50)), "as many as the limit is enough for");
    }
    let before = faults::deadlocks(db.pool()).await;
    for step in 1..=10 {
        let sync = async |holder: usize, key: usize, backwards: bool| {
            let mut reports: Vec<Value> =
                ids[key].iter().map(|id| json!({"id": id, "claimed": step, "released": step - 1})).collect();
            if backwards {
                reports.reverse();
            }
            let message = message("w", json!({"seen": 1, "grants": reports}));
            callers[holder].sync(["k1", "k2"][key], &message).await.expect("an answer").ok()
        };
        let there = async { (sync(0, 0, false).await, sync(0, 1, false).await) };
        let back = async { (sync(1, 1, true).await, sync(1, 0, true).await) };
        tokio::join!(there, back);
    }
    assert_eq!(faults::deadlocks(db.pool()).await, before);
    assert_eq!(verify(&db).await, []);
}
