//! Migrations that are stuck, or end in the middle.

use crate::command_line::{fails, ok};
use pgsemaphore_tests::{Db, Process, Serve, until};
use sqlx::migrate::Migrate as _;
use sqlx::{Connection as _, PgConnection};

async fn without_schema() -> Db {
    let db = Db::new().await;
    ok(&db, &["uninstall", "--yes"]).await;
    db
}

/// Case 04: the lock of migrations stays behind in a session of a pool, and all who start wait for it without a word.
#[tokio::test]
async fn who_cannot_get_the_lock_of_migrations_ends_and_says_so() {
    let db = without_schema().await;
    let mut stuck = PgConnection::connect(db.url()).await.expect("a session");
    stuck.lock().await.expect("the lock of migrations");
    let serve = ["serve", "--migrate", "--listen", "127.0.0.1:0"];
    for (code, line) in <[_; 2]>::from(tokio::join!(fails(&db, &["migrate"]), fails(&db, &serve))) {
        assert_eq!(code, 1);
        assert!(line.contains("another migration") && line.contains("pg_locks"), "{line}");
    }
    stuck.close().await.expect("an orderly goodbye");
    ok(&db, &["migrate"]).await;
    Serve::start(db.url()).await.terminate();
}

/// Case 04: a migration is killed in the middle, and its lock outlives it.
#[tokio::test]
async fn a_migration_that_is_killed_leaves_no_lock() {
    let db = without_schema().await;
    let mut blocker = PgConnection::connect(db.url()).await.expect("a session");
    let begin = "BEGIN; CREATE SCHEMA pgsemaphore_data";
    sqlx::raw_sql(begin).execute(&mut blocker).await.expect(begin);
    let mut killed = Process::start(["migrate", "--database-url", db.url()]);
    until("it waits with the lock in its hand", async || {
        let query = sqlx::query_scalar(
            "SELECT count(*) FROM pg_locks AS held JOIN pg_locks AS wanted USING (pid)
             JOIN pg_stat_activity USING (pid)
             WHERE datname = current_database() AND held.locktype = 'advisory' AND held.granted AND NOT wanted.granted",
        );
        let stuck: i64 = query.fetch_one(db.pool()).await.expect("pg_locks");
        stuck > 0
    })
    .await;
    killed.kill();
    killed.wait().await;
    sqlx::raw_sql("ROLLBACK").execute(&mut blocker).await.expect("ROLLBACK");
    ok(&db, &["migrate"]).await;
    Serve::start(db.url()).await.terminate();
}
