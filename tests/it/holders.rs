//! Several holders over one database: they share nothing but its rows, and together admit what one would.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use pgsemaphore_tests::{Caller, Db, InProcess, Serve, Worker, message, verify};
use serde_json::{Value, json};

fn policy(limit: u64, round_wait_ms: u64) -> Value {
    json!({
        "limit": limit, "round_wait_ms": round_wait_ms, "round_period_ms": 0, "grant_timeout_ms": 3_600_000
    })
}

/// Rows of a brand-new key are made by all of them at once, when there is nothing yet that could be locked. None passes
/// its requests on, as when they cannot reach each other: it is the row that decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_holders_grant_a_limit_of_one_once() {
    const CLIENTS: usize = 16;
    let db = Db::new().await;
    let mut holders = Vec::new();
    for _ in 0..4 {
        holders.push(InProcess::start_apart(db.url()).await);
    }
    holders[0].policy("*", policy(1, 0)).await;
    let callers: Vec<Caller> = holders.iter().map(InProcess::caller).collect();
    let started = Instant::now();
    let mut keys = 0;
    while keys < 5 || started.elapsed() < Duration::from_secs(10) {
        let key = format!("new:{keys}");
        keys += 1;
        let calls = (0..CLIENTS).map(|n| {
            let (caller, key) = (callers[n % 4].clone(), key.clone());
            tokio::spawn(async move {
                let mut worker = Worker::new(format!("c{n}"));
                worker.hear(&caller.request(&key, &worker.wants(1)).await.expect("an answer").ok());
                worker
            })
        });
        let workers: Vec<Worker> =
            join_all(calls).await.into_iter().map(|worker| worker.expect("no panic")).collect();
        let granted: u64 = workers.iter().map(Worker::permits).sum();
        assert_eq!(granted, 1, "{key}: one of them gets it, and no other");
        for (n, mut worker) in workers.into_iter().enumerate().filter(|(_, worker)| worker.permits() > 0) {
            worker.release();
            // To another holder than the one that granted it.
            worker.hear(&callers[(n + 1) % 4].insist_sync(&key, &worker.reports()).await);
            assert_eq!(worker.blocks.len(), 0);
        }
        assert_eq!(callers[0].usage(&key).await["grants"], 0);
    }
    assert_eq!(verify(&db).await, []);
}

/// A message is as good at any holder, whichever heard the ones before it.
#[tokio::test]
async fn what_one_holder_granted_any_other_takes_back() {
    let db = Db::new().await;
    let holders = [InProcess::start(db.url()).await, InProcess::start(db.url()).await];
    let [one, other] = [holders[0].caller(), holders[1].caller()];
    holders[0].policy("*", policy(5, 0)).await;
    let mut worker = Worker::new("w");
    let lost = one.insist("k", &worker.wants(3)).await;
    worker.hear(&other.insist("k", &worker.wants(3)).await);
    assert_eq!(worker.permits(), 3, "delivered again: {lost}");
    worker.claim();
    worker.hear(&one.insist_sync("k", &worker.reports()).await);
    assert_eq!(worker.running(), 3);
    worker.release();
    let stale = one.insist_sync("k", &message("w", json!({"seen": worker.seen}))).await;
    worker.hear(&other.insist_sync("k", &worker.reports()).await);
    worker.hear(&stale);
    assert_eq!(worker.blocks.len(), 0);
    for caller in [one, other] {
        assert_eq!(caller.usage("k").await["grants"], 0);
    }
    assert_eq!(verify(&db).await, []);
}

/// Cumulative reports, recorded and then repeated, shuffled, by two holders in parallel: the end is the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_and_reordered_reports_free_nothing_twice() {
    let db = Db::new().await;
    let holders = [InProcess::start(db.url()).await, InProcess::start(db.url()).await];
    let callers = [holders[0].caller(), holders[1].caller()];
    holders[0].policy("*", policy(60, 0)).await;
    let mut worker = Worker::new("w");
    for _ in 0..10 {
        worker.hear(&callers[0].insist("k", &worker.wants(6)).await);
    }
    let ids: Vec<String> = worker.blocks.keys().cloned().collect();
    // Of each grant: 4 of 6 claimed, 3 of those released in the end, said in many steps.
    let mut recorded = Vec::new();
    for (id, step) in ids.iter().flat_map(|id| (0..6).map(move |step| (id, step))) {
        let (claimed, released) = ((step + 1).min(4), step.min(3));
        let report = json!([{"id": id, "claimed": claimed, "released": released}]);
        recorded.extend(std::iter::repeat_n(message("w", json!({"seen": worker.seen, "grants": report})), 2));
    }
    rand::seq::SliceRandom::shuffle(&mut recorded[..], &mut rand::rng());
    let halves = recorded.split_at(recorded.len() / 2);
    let replay = async |caller: &Caller, messages: &[Value]| {
        for message in messages {
            let usage = caller.sync("k", message).await.expect("an answer").ok();
            assert_eq!(usage["grants"].as_array().map(Vec::len), Some(1));
        }
    };
    tokio::join!(replay(&callers[0], halves.0), replay(&callers[1], halves.1));
    assert_eq!(callers[0].usage("k").await["grants"], 10 * (6 - 3));
    let query = sqlx::query_as("SELECT DISTINCT claimed::bigint, released::bigint FROM pgsemaphore.grants");
    let counts: Vec<(i64, i64)> = query.fetch_all(db.pool()).await.expect("the view");
    assert_eq!(counts, [(4, 3)]);
    assert_eq!(verify(&db).await, []);
}

/// A frozen process keeps its sessions, and with bad luck a row; others take over, and it does no harm when it wakes.
#[tokio::test]
async fn a_frozen_holder_holds_nobody_up() {
    let db = Db::new().await;
    let frozen = Serve::start(db.url()).await;
    let holder = InProcess::start(db.url()).await;
    let caller = holder.caller();
    holder.policy("*", policy(4, 0)).await;
    let (mut early, mut late) = (Worker::new("early"), Worker::new("late"));
    early.hear(&Caller::of(frozen.url()).insist("k", &early.wants(3)).await);
    frozen.freeze();
    late.hear(&caller.insist("k", &late.wants(3)).await);
    assert_eq!(late.permits(), 1);
    early.claim();
    early.hear(&caller.insist_sync("k", &early.reports()).await);
    assert_eq!(early.running(), 3);
    frozen.thaw();
    early.release();
    early.hear(&Caller::of(frozen.url()).insist_sync("k", &early.reports()).await);
    assert_eq!(early.blocks.len(), 0);
    assert_eq!(caller.usage("k").await["grants"], 1);
    assert_eq!(verify(&db).await, []);
}
