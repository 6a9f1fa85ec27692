//! Keys that nobody uses are forgotten, and nothing else is.

use std::collections::BTreeMap;
use std::time::Duration;

use pgsemaphore_tests::{Db, InProcess, Worker, until, verify};
use serde_json::json;
use sqlx::AssertSqlSafe;

/// Rows of each table that has keys, for one key. What was declared is kept for people.
async fn rows(db: &Db, key: &str) -> BTreeMap<String, i64> {
    let query = "SELECT table_name::text FROM information_schema.columns
                 WHERE table_schema = 'pgsemaphore_data' AND column_name = 'key' AND table_name <> 'audit' ORDER BY 1";
    let tables: Vec<String> = sqlx::query_scalar(query).fetch_all(db.pool()).await.expect("the catalogue");
    assert!(tables.len() >= 4, "{tables:?}");
    let mut rows = BTreeMap::new();
    for table in tables {
        let query = AssertSqlSafe(format!("SELECT count(*) FROM pgsemaphore_data.{table} WHERE key = $1"));
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
