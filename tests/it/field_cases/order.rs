//! Who is next, and what a new limit does to those who wait.

use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use pgsemaphore_tests::{Caller, Db, InProcess, Worker, until, verify, within_reason};
use serde_json::{Value, json};

const KEY: &str = "k";

fn policy(limit: u64) -> Value {
    json!({"limit": limit, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000})
}

/// What a worker says that wants one permit, and waits for it; its work is five seconds old.
fn waits(worker: &Worker) -> Value {
    let mut message = worker.wants(1);
    (message["wait_ms"], message["demand"][0]["oldest_age_ms"]) = (json!(60_000), json!(5000));
    message
}

/// Waits for the one permit, notes its turn, and gives it back, until all turns are over.
async fn take_turns(caller: Caller, name: usize, turns: Arc<Mutex<Vec<usize>>>, all: usize) {
    let mut worker = Worker::new(format!("w{name}"));
    while turns.lock().expect("no panic").len() < all {
        while worker.permits() == 0 {
            worker.hear(&caller.insist(KEY, &waits(&worker)).await);
        }
        turns.lock().expect("no panic").push(name);
        worker.release();
        worker.hear(&caller.insist_sync(KEY, &worker.reports()).await);
    }
}

/// Case 21: ties are broken anyhow, so that one waiter can lose every time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_have_waited_equally_long_take_turns() {
    const WAITERS: usize = 6;
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy(KEY, policy(1)).await;
    let turns = Arc::new(Mutex::new(Vec::new()));
    let waiters =
        (0..WAITERS).map(|name| tokio::spawn(take_turns(holder.caller(), name, turns.clone(), 8 * WAITERS)));
    for waiter in within_reason("all turns are over", join_all(waiters)).await {
        waiter.expect("no panic");
    }
    let turns = turns.lock().expect("no panic").clone();
    for name in 0..WAITERS {
        let own: Vec<usize> = (0..turns.len()).filter(|at| turns[*at] == name).collect();
        assert!(own.len() >= 4, "{name} had {} turns of {}", own.len(), turns.len());
        let longest = own.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(longest <= Some(2 * WAITERS), "{name} waited for {longest:?} turns");
    }
    assert_eq!(verify(&db).await, []);
}

/// Case 26: a raised limit is not noticed by those who wait; one that is set again counts from nothing, or brings the old
/// one back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raise_reaches_who_waits_anywhere_and_saying_it_again_changes_nothing() {
    let db = Db::new().await;
    let holders = [InProcess::start(db.url()).await, InProcess::start(db.url()).await];
    let callers = [holders[0].caller(), holders[1].caller()];
    callers[0].policy(KEY, &policy(10)).await;
    let mut busy = Worker::new("busy");
    busy.hear(&callers[0].insist(KEY, &busy.wants(10)).await);
    busy.claim();
    busy.hear(&callers[1].insist_sync(KEY, &busy.reports()).await);
    let waiting: Vec<_> = (0..20)
        .map(|n| {
            let (caller, mut worker) = (callers[n % 2].clone(), Worker::new(format!("w{n}")));
            tokio::spawn(async move {
                while worker.permits() == 0 {
                    worker.hear(&caller.insist(KEY, &waits(&worker)).await);
                }
            })
        })
        .collect();
    let used = async || callers[0].usage(KEY).await["grants"].as_u64().expect("grants");
    let lacking = async || callers[0].usage(KEY).await["blocked"].as_array().map_or(0, Vec::len);
    until("all wait", async || lacking().await == 20).await;

    callers[1].policy(KEY, &policy(15)).await;
    until("five more are admitted", async || used().await == 15).await;
    let policies = [policy(15), policy(15)];
    join_all(callers.iter().zip(&policies).map(|(caller, policy)| caller.policy(KEY, policy))).await;
    for limit in [5, 15] {
        callers[0].policy(KEY, &policy(limit)).await;
    }
    let _ = callers[1].insist(KEY, &Worker::new("observer").wants(0)).await;
    until("those who wait were looked at", async || lacking().await == 15).await;
    assert_eq!(used().await, 15);

    busy.release();
    busy.hear(&callers[0].insist_sync(KEY, &busy.reports()).await);
    until("ten more are admitted", async || waiting.iter().filter(|call| call.is_finished()).count() == 15)
        .await;
    assert_eq!(used().await, 15);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    let who: (i64, bool) = sqlx::query_as(
        "SELECT permit_limit::bigint, set_by <> '' AND set_at <= clock_timestamp() FROM pgsemaphore.policies",
    )
    .fetch_one(db.pool())
    .await
    .expect("the view");
    assert_eq!(who, (15, true), "who set it, and when");
    assert_eq!(verify(&db).await, []);
}
