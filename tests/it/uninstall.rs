//! `uninstall`: nothing is left, and nothing goes by mistake.

use crate::command_line::{at_a_terminal, fails, ok};
use pgsemaphore_tests::{Db, InProcess, Serve, message};
use serde_json::json;

async fn schemas(db: &Db) -> i64 {
    let count = sqlx::query_scalar("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'pgsemaphore%'");
    count.fetch_one(db.pool()).await.expect("the schemas")
}

#[tokio::test]
async fn nothing_goes_unless_somebody_says_yes() {
    let db = Db::new().await;
    let (code, line) = fails(&db, &["uninstall"]).await;
    assert_eq!(code, 2);
    assert!(line.contains("--yes"), "{line}");
    assert_eq!(schemas(&db).await, 2);
}

#[tokio::test]
async fn a_person_is_asked() {
    let db = Db::new().await;
    for (answer, code, left) in [("no\n", 2, 2), ("yes\n", 0, 0)] {
        let (found, said) = at_a_terminal(&db, "uninstall", answer).await;
        assert_eq!(found, code, "{said}");
        assert!(said.contains("Type yes to go on") && said.contains("127.0.0.1"), "{said}");
        assert_eq!(schemas(&db).await, left);
    }
}

#[tokio::test]
async fn everything_goes_and_can_come_again() {
    let db = Db::new().await;
    for _ in 0..2 {
        let told = ok(&db, &["uninstall", "--yes"]).await;
        assert!(told.contains("gone"), "{told}");
        assert_eq!(schemas(&db).await, 0);
    }
    let left: Vec<String> = sqlx::query_scalar(
        "SELECT c.oid::regclass::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
         WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')",
    )
    .fetch_all(db.pool())
    .await
    .expect("what is left");
    assert_eq!(left, Vec::<String>::new());
    ok(&db, &["migrate"]).await;
    Serve::start(db.url()).await.terminate();
}

#[tokio::test]
async fn permits_in_use_keep_it_unless_by_force() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("k", json!({"limit": 3, "round_wait_ms": 0, "round_period_ms": 0})).await;
    let wants = json!({"demand": [{"group": "", "count": 2}]});
    let (status, reply) = holder.request("k", message("w", wants)).await;
    assert_eq!(status, 200, "{reply}");
    let (code, line) = fails(&db, &["uninstall", "--yes"]).await;
    assert_eq!(code, 1);
    assert!(line.contains("2 permits") && line.contains("--force"), "{line}");
    assert_eq!(schemas(&db).await, 2);
    assert_eq!(holder.usage("k").await["grants"], 2, "rounds go on");
    ok(&db, &["uninstall", "--yes", "--force"]).await;
    assert_eq!(schemas(&db).await, 0);
}
