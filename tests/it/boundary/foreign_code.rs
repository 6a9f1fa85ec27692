//! O-08: functions of users run in sessions that are lent to other keys afterwards.

use pgsemaphore_tests::{Db, InProcess, message, verify};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use std::time::Duration;

/// What a function does before it answers, and whether its answer counts.
const MISDEEDS: [(&str, bool); 17] = [
    ("SET statement_timeout = 1", true),
    ("SET LOCAL statement_timeout = 1", true),
    ("SET synchronous_commit = off", true),
    ("SET LOCAL synchronous_commit = off", true),
    ("SET search_path = public", true),
    ("SET lock_timeout = 1", true),
    ("SET ROLE nobody_at_all", true),
    ("SET LOCAL ROLE nobody_at_all", true),
    ("SET SESSION AUTHORIZATION nobody_at_all", true),
    ("LISTEN pgsemaphore", true),
    ("CREATE TEMP TABLE semaphores (key text)", true),
    ("SELECT pg_advisory_lock(17)", true),
    ("SET TRANSACTION READ ONLY", true),
    ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", true),
    ("PREPARE mine AS SELECT 1", false),
    ("DEALLOCATE ALL", false),
    ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", false),
];

async fn run(db: &Db, sql: String) {
    let done = sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(db.pool()).await;
    done.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

fn policy(fields: Value) -> Value {
    let mut policy = json!({"round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000});
    policy.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
    policy
}

/// One session serves all keys, so that whatever stays behind in it is noticed by others.
async fn over_one_session(db: &Db) -> InProcess {
    InProcess::start_with(db.url(), 1, Duration::from_secs(600)).await
}

async fn ask(holder: &InProcess, key: &str, client: &str) -> (u16, Value) {
    holder.request(key, message(client, json!({"demand": [{"group": "", "count": 1}]}))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stays_behind_in_a_session() {
    let db = Db::new().await;
    run(&db, "DROP ROLE IF EXISTS nobody_at_all; CREATE ROLE nobody_at_all".to_owned()).await;
    let holder = over_one_session(&db).await;
    holder.policy("good", policy(json!({"limit": 1000}))).await;
    for (n, (misdeed, counts)) in MISDEEDS.iter().enumerate() {
        let (key, function) = (format!("bad:{n}"), format!("public.bad_{n}"));
        run(
            &db,
            format!(
                "CREATE FUNCTION {function}(key text) RETURNS integer LANGUAGE plpgsql AS $f$ BEGIN
                     EXECUTE $misdeed${misdeed}$misdeed$;
                     RETURN 9;
                 END $f$"
            ),
        )
        .await;
        holder.policy(&key, policy(json!({"limit_function": function}))).await;
        for client in ["a", "b"] {
            let (status, reply) = ask(&holder, &key, client).await;
            assert_eq!(status, 200, "{misdeed}: {reply}");
            let granted = reply["grants"].as_array().map_or(0, Vec::len);
            assert_eq!(granted, usize::from(*counts), "{misdeed}: {reply}");
            let (status, reply) = ask(&holder, "good", &format!("{n}-{client}")).await;
            assert_eq!(status, 200, "another key after {misdeed}: {reply}");
        }
        let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 17";
        let locks: i64 = sqlx::query_scalar(locks).fetch_one(db.pool()).await.expect("locks");
        assert_eq!(locks, 0, "{misdeed}");
    }
    assert_eq!(verify(&db).await, []);
    run(&db, "DROP ROLE nobody_at_all".to_owned()).await;
}

/// O-02: functions of users find what the login's sessions would find, and the product's own statements do not.
#[tokio::test]
async fn functions_are_called_with_the_path_that_the_database_gives() {
    let db = Db::new().await;
    let name = db.url().rsplit('/').next().expect("a name");
    run(
        &db,
        format!(
            "CREATE SCHEMA shop;
             CREATE TABLE shop.limits (permits integer);
             INSERT INTO shop.limits VALUES (3);
             CREATE FUNCTION shop.limit_of(key text) RETURNS integer LANGUAGE sql
                 BEGIN ATOMIC SELECT 3; END;
             CREATE FUNCTION shop.looks_up(key text) RETURNS integer LANGUAGE plpgsql
                 AS $$ BEGIN RETURN (SELECT permits FROM limits); END $$;
             ALTER DATABASE {name} SET search_path = shop, public"
        ),
    )
    .await;
    let holder = over_one_session(&db).await;
    for function in ["shop.limit_of", "shop.looks_up"] {
        holder.policy(function, policy(json!({"limit_function": function}))).await;
        let (status, reply) = ask(&holder, function, "w").await;
        assert_eq!((status, reply["grants"].as_array().map(Vec::len)), (200, Some(1)), "{reply}");
    }
}
