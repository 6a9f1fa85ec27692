//! Schemas of other ages, and migrations that fail or meet.

use crate::command_line::{fails, ok};
use pgsemaphore_tests::{Api, Db, InProcess, Serve, message, until};
use serde_json::json;

async fn without_schema() -> Db {
    let db = Db::new().await;
    ok(&db, &["uninstall", "--yes"]).await;
    db
}

async fn applied(db: &Db) -> Vec<i64> {
    let query = "SELECT version FROM pgsemaphore_data._sqlx_migrations WHERE success ORDER BY version";
    sqlx::query_scalar(query).fetch_all(db.pool()).await.expect("the migrations")
}

fn all() -> Vec<i64> {
    pgsemaphore::MIGRATOR.iter().map(|migration| migration.version).collect()
}

async fn execute(db: &Db, statement: &'static str) {
    sqlx::raw_sql(statement).execute(db.pool()).await.expect(statement);
}

async fn is_ready(url: &str) {
    until("it is ready", async || Api::new(url).get("/readyz").await.status == 200).await;
}

#[tokio::test]
async fn an_older_holder_runs_on_a_newer_schema() {
    let db = Db::new().await;
    execute(&db,
        "INSERT INTO pgsemaphore_data._sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'of a later version', true, '', 0);
         ALTER TABLE pgsemaphore_data.semaphores ADD COLUMN of_a_later_version integer").await;
    let holder = InProcess::start(db.url()).await;
    is_ready(holder.url()).await;
    holder.policy("k", json!({"limit": 3, "round_wait_ms": 0, "round_period_ms": 0})).await;
    let wants = json!({"demand": [{"group": "", "count": 2}]});
    let (status, reply) = holder.request("k", message("w", wants)).await;
    assert_eq!((status, &reply["grants"][0]["permits"]), (200, &json!(2)), "{reply}");
    Serve::start_with(db.url(), &["--migrate"]).await.terminate();
    ok(&db, &["migrate"]).await;
    assert_eq!(applied(&db).await.last(), Some(&9999), "left as it is");
}

#[tokio::test]
async fn a_second_migration_does_nothing() {
    let db = without_schema().await;
    ok(&db, &["migrate"]).await;
    let seen =
        "SELECT jsonb_agg(to_jsonb(m) ORDER BY m.version)::text FROM pgsemaphore_data._sqlx_migrations AS m";
    let look = async || sqlx::query_scalar::<_, String>(seen).fetch_one(db.pool()).await.expect("the list");
    let before = look().await;
    ok(&db, &["migrate"]).await;
    assert_eq!(look().await, before);
}

#[tokio::test]
async fn the_next_run_goes_on_where_a_migration_failed() {
    let db = without_schema().await;
    execute(&db, "CREATE SCHEMA pgsemaphore; CREATE TABLE pgsemaphore.audit ()").await;
    let (code, line) = fails(&db, &["migrate"]).await;
    assert_eq!(code, 1);
    assert!(line.contains("audit"), "{line}");
    assert_eq!(applied(&db).await, [all()[0]], "the first one is done, of the second one nothing");
    let (code, line) = fails(&db, &["serve", "--listen", "127.0.0.1:0"]).await;
    assert!(code == 1 && line.contains("pgsemaphore migrate"), "{line}");
    execute(&db, "DROP TABLE pgsemaphore.audit").await;
    ok(&db, &["migrate"]).await;
    assert_eq!(applied(&db).await, all());
    Serve::start(db.url()).await.terminate();
}

#[tokio::test]
async fn holders_and_a_migration_that_start_together_migrate_once() {
    let db = without_schema().await;
    let start = || Serve::start_with(db.url(), &["--migrate"]);
    let migrate = ok(&db, &["migrate"]);
    let (first, second, third, _) = tokio::join!(start(), start(), start(), migrate);
    assert_eq!(applied(&db).await, all());
    for holder in [&first, &second, &third] {
        is_ready(holder.url()).await;
    }
}
