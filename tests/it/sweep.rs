//! Keys that nobody uses are forgotten, and nothing else is.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use pgsemaphore_tests::{Caller, Db, InProcess, Serve, Worker, until, verify};
use serde_json::json;
use sqlx::AssertSqlSafe;

/// Rows of each table that has keys, for one key or a pattern of LIKE. What was declared is kept for people.
async fn rows(db: &Db, key: &str) -> BTreeMap<String, i64> {
    let query = "SELECT table_name::text FROM information_schema.columns
                 WHERE table_schema = 'pgsemaphore_data' AND column_name = 'key' AND table_name <> 'audit' ORDER BY 1";
    let tables: Vec<String> = sqlx::query_scalar(query).fetch_all(db.pool()).await.expect("the catalogue");
    assert!(tables.len() >= 4, "{tables:?}");
    let mut rows = BTreeMap::new();
    for table in tables {
        let query = AssertSqlSafe(format!("SELECT count(*) FROM pgsemaphore_data.{table} WHERE key LIKE $1"));
        let count = sqlx::query_scalar(query).bind(key).fetch_one(db.pool()).await.expect("a count");
        rows.insert(table, count);
    }
    rows
}

async fn is_forgotten(db: &Db, key: &str) -> bool {
    rows(db, key).await.values().all(|count| *count == 0)
}

#[tokio::test]
async fn idle_keys_are_forgotten_and_nothing_else_is() {
    let db = Db::new().await;
    let caller_of = |holder: &InProcess| holder.caller();
    // A holder that forgets nothing makes the state, so that all of it is there when the other one starts to forget.
    let patient = InProcess::start(db.url()).await;
    let caller = caller_of(&patient);
    let policy = json!({
        "limit": 2, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000, "group_limits": {"g": 1}
    });
    patient.policy("*", policy.clone()).await;
    patient.policy("lost", json!({"limit": 2, "round_wait_ms": 0, "grant_timeout_ms": 100})).await;
    patient.policy("none", json!({"limit": 0, "round_wait_ms": 0})).await;

    let [mut used, mut running, mut unclaimed] = [0; 3].map(|_| Worker::new("w"));
    used.hear(&caller.insist("used", &used.wants(2)).await);
    used.release();
    used.hear(&caller.insist_sync("used", &used.reports()).await);
    running.hear(&caller.insist("running", &running.wants(2)).await);
    running.claim();
    running.hear(&caller.insist_sync("running", &running.reports()).await);
    unclaimed.hear(&caller.insist("unclaimed", &unclaimed.wants(1)).await);
    let _ = caller.insist("none", &Worker::new("w").wants(5)).await;
    let _ = caller.insist("lost", &Worker::new("w").wants(2)).await;
    assert!(!is_forgotten(&db, "used").await && !is_forgotten(&db, "none").await);
    let kept = (rows(&db, "running").await, rows(&db, "unclaimed").await);

    let holder = InProcess::start_forgetting(db.url(), Duration::from_millis(500)).await;
    for key in ["used", "none", "lost"] {
        until("an idle key is forgotten", async || is_forgotten(&db, key).await).await;
    }
    // Another one comes and goes, so all keys have been looked at again.
    let caller = caller_of(&holder);
    let _ = caller.insist("again", &Worker::new("w").wants(0)).await;
    until("an idle key is forgotten", async || is_forgotten(&db, "again").await).await;
    assert_eq!((rows(&db, "running").await, rows(&db, "unclaimed").await), kept);
    let policies: i64 = sqlx::query_scalar("SELECT count(*) FROM pgsemaphore.policies")
        .fetch_one(db.pool())
        .await
        .expect("the view");
    assert_eq!(policies, 3);

    // What is kept works on, and is forgotten when it is given back. What was forgotten works as if it were new.
    running.release();
    running.hear(&caller.insist_sync("running", &running.reports()).await);
    assert_eq!(running.blocks.len(), 0);
    until("what was given back is forgotten", async || is_forgotten(&db, "running").await).await;
    let round = used.seen;
    used.hear(&caller.insist("used", &used.wants(2)).await);
    assert_eq!(used.permits(), 2);
    assert!(used.seen > round, "rounds rise");
    unclaimed.claim();
    unclaimed.hear(&caller.insist_sync("unclaimed", &unclaimed.reports()).await);
    assert_eq!(unclaimed.running(), 1);
    assert_eq!(verify(&db).await, []);
}

/// Each of these keys admits an item that runs and ends, many at a time.
async fn use_once(url: &str, keys: std::ops::Range<usize>) {
    const AT_ONCE: usize = 50;
    let caller = Caller::of(url);
    let users = (0..AT_ONCE).map(|first| {
        let (caller, keys) = (caller.clone(), keys.clone());
        tokio::spawn(async move {
            for key in keys.skip(first).step_by(AT_ONCE) {
                let (key, mut worker) = (format!("once-{key}"), Worker::new("w"));
                worker.hear(&caller.insist(&key, &worker.wants(1)).await);
                worker.claim();
                worker.hear(&caller.insist_sync(&key, &worker.reports()).await);
                assert_eq!(worker.running(), 1);
                worker.release();
                worker.hear(&caller.insist_sync(&key, &worker.reports()).await);
                assert_eq!(worker.blocks.len(), 0);
            }
        })
    });
    for user in join_all(users).await {
        user.expect("no panic");
    }
}

/// However long it takes, as long as it goes on.
async fn until_all_are_forgotten(db: &Db, keys: &str) {
    let left = async || rows(db, keys).await.into_values().sum::<i64>();
    let mut before = left().await;
    while before > 0 {
        until("more keys are forgotten", async || left().await < before).await;
        before = left().await;
    }
}

/// 1,000 keys, or as many as are asked for, after a tenth of them, with which the holder has grown to its size.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_were_used_once_leave_nothing_behind() {
    let keys = std::env::var("KEYS_USED_ONCE").ok().and_then(|keys| keys.parse().ok()).unwrap_or(1_000);
    let db = Db::new().await;
    let holder = Serve::start_with(db.url(), &["--forget-after", "2s"]).await;
    let policy = json!({"limit": 10, "round_wait_ms": 0, "round_period_ms": 0});
    Caller::of(holder.url()).policy("*", &policy).await;
    use_once(holder.url(), 0..keys / 10).await;
    until_all_are_forgotten(&db, "once-%").await;
    let before = holder.resident();

    use_once(holder.url(), keys / 10..keys).await;
    until_all_are_forgotten(&db, "once-%").await;
    let left = async || holder.resident() * 100 / before;
    until("its memory is within 20 % of what it was", async || left().await <= 120).await;
    println!("{keys} keys used once: {before} bytes before, {} after", holder.resident());
}
