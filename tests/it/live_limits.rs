//! Limits that are raised and lowered under load, over HTTP, in SQL and by the command line.

use std::time::Duration;

use crate::command_line::ok;
use pgsemaphore_tests::{Api, Caller, Db, InProcess, Serve, Truth, Worker, message, until, verify};
use queue_client::QueueClient;
use serde_json::json;
use tokio::task::JoinSet;

const KEY: &str = "account:42";
const PATTERN: &str = "account:*";

/// Sets the limit at one of three places.
async fn set(db: &Db, caller: &Caller, place: usize, limit: u64) {
    match place % 3 {
        0 => {
            let policy = json!({"limit": limit, "round_wait_ms": 5, "round_period_ms": 10});
            caller.policy(PATTERN, &policy).await;
        }
        1 => {
            let set = sqlx::query("SELECT pgsemaphore.set_limit($1, $2)").bind(PATTERN);
            set.bind(i64::try_from(limit).expect("a limit"))
                .execute(db.pool())
                .await
                .expect("a limit by SQL");
        }
        _ => {
            ok(db, &["policy", "set", PATTERN, "--limit", &limit.to_string()]).await;
        }
    }
}

/// One item after the other, for ever.
async fn work(client: QueueClient, truth: Truth) {
    let semaphore = client.semaphore(KEY);
    loop {
        let permit = semaphore.acquire("").await.expect("a permit");
        let running = truth.start(KEY, "");
        tokio::time::sleep(Duration::from_millis(5)).await;
        drop(running);
        drop(permit);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_holds_from_the_next_round_on_wherever_it_was_set() {
    let db = Db::new().await;
    let holders = tokio::join!(Serve::start(db.url()), Serve::start(db.url()));
    let caller = Caller::of(holders.0.url());
    let truth = Truth::default();
    set(&db, &caller, 0, 3).await;
    let clients: Vec<QueueClient> = [&holders.0, &holders.1, &holders.0, &holders.1]
        .iter()
        .map(|holder| QueueClient::builder().url(holder.url()).build().expect("a client"))
        .collect();
    let mut items = JoinSet::new();
    for client in &clients {
        (0..6).for_each(|_| drop(items.spawn(work(client.clone(), truth.clone()))));
    }
    let counted = async || caller.usage(KEY).await["grants"].as_u64().expect("grants");
    until("work is under way", async || truth.started() > 10).await;
    let mut before = 3;
    for (place, limit) in [8, 2, 6, 0, 4, 1, 7].into_iter().enumerate() {
        truth.limit(KEY, None, limit);
        set(&db, &caller, place, limit).await;
        if limit > before {
            until("more is admitted", async || counted().await > before).await;
        } else {
            until("usage has fallen below the limit", async || counted().await <= limit).await;
        }
        let started = truth.started();
        until("more items have run, none too many", async || {
            let running = truth.running(KEY, None).len() as u64;
            assert!(running <= limit, "{running} run, the limit is {limit}");
            assert!(counted().await <= limit);
            limit == 0 || truth.started() > started + 20
        })
        .await;
        before = limit;
    }
    items.shutdown().await;
    for client in clients {
        client.drain().await.expect("everything is given back");
    }
    assert_eq!(truth.violations(), Vec::<String>::new());
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn running_work_outlives_its_policy_and_counts_under_the_next() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let (caller, api) = (holder.caller(), Api::new(holder.url()));
    let policy = |limit: u64| json!({"limit": limit, "round_wait_ms": 0, "round_period_ms": 0});
    let wants = |worker: &Worker, count: u64| {
        let mut message = worker.wants(count);
        message["demand"][0]["group"] = json!("nightly");
        message
    };
    caller.policy("k", &policy(2)).await;
    let (mut running, mut next) = (Worker::new("running"), Worker::new("next"));
    running.hear(&caller.insist("k", &wants(&running, 2)).await);
    running.claim();
    running.hear(&caller.insist_sync("k", &running.reports()).await);

    assert_eq!(api.delete("/v1/policies/k").await.status, 204);
    let refused = caller.request("k", &wants(&next, 1)).await.expect("an answer");
    assert_eq!((refused.status, &refused.body["code"]), (404, &json!("semaphore_not_found")));
    assert_eq!(caller.usage("k").await["grants"], 2);

    caller.policy("k", &policy(3)).await;
    assert_eq!(api.put("/v1/policies/k/groups/nightly", r#"{"limit": 2}"#).await.status, 200);
    let reply = caller.insist("k", &wants(&next, 1)).await;
    assert_eq!(reply["blocked"], json!([{"group": "nightly", "count": 1, "reason": "group_limit"}]));
    assert_eq!(api.delete("/v1/policies/k/groups/nightly").await.status, 204);
    next.hear(&caller.insist("k", &wants(&next, 2)).await);
    assert_eq!(next.permits(), 1, "the limit is 3, and 2 run");

    running.release();
    running.hear(&caller.insist_sync("k", &running.reports()).await);
    assert_eq!(running.blocks.len(), 0);
    let reply = caller.insist("k", &message("idle", json!({}))).await;
    assert_eq!((&reply["contended"], caller.usage("k").await["grants"].as_u64()), (&json!(true), Some(1)));
    assert_eq!(verify(&db).await, []);
}
