//! The product as a whole in a hostile database.

use crate::{differential, worlds};
use pgsemaphore_tests::{Db, Process, Serve, hostile};
use sqlx::AssertSqlSafe;

const DIFFERENTIAL_WORLDS: u64 = 10;

#[tokio::test]
async fn rounds_answer_as_ever() {
    let db = Db::hostile().await;
    differential::answers_are_alike(&db, DIFFERENTIAL_WORLDS).await;
    assert_eq!(hostile::caught(db.pool()).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_world_of_clients_and_holders_keeps_the_promises() {
    worlds::world(17, Db::hostile().await).await;
}

/// P7: what the operator says of durability is not overridden, so it is refused.
#[tokio::test]
async fn commits_that_are_not_durable_are_refused() {
    let db = Db::hostile().await;
    let name = db.url().rsplit('/').next().expect("a name");
    let off = format!("ALTER ROLE postgres IN DATABASE {name} SET synchronous_commit = off");
    sqlx::raw_sql(AssertSqlSafe(off)).execute(db.pool()).await.expect("a setting");
    let (code, _, stderr) = Process::run(["usage", "--database-url", db.url()]).await;
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("synchronous_commit"), "{stderr}");
}

#[tokio::test]
async fn commands_work_from_the_first_to_the_last() {
    let db = Db::hostile().await;
    let run = async |arguments: &[&str]| {
        let (code, stdout, stderr) = Process::run([arguments, &["--database-url", db.url()]].concat()).await;
        assert_eq!(code, 0, "{arguments:?}: {stderr}");
        stdout
    };
    run(&["uninstall", "--yes"]).await;
    run(&["migrate"]).await;
    run(&["roles", "create"]).await;
    let holder = Serve::start(db.url()).await;
    run(&["policy", "set", "k", "--limit", "3"]).await;
    let shown = run(&["policy", "get", "k"]).await;
    assert!(shown.contains('3'), "{shown}");
    for command in [
        &["policy", "list"][..],
        &["usage"],
        &["usage", "k"],
        &["explain", "k"],
        &["client", "list"],
        &["audit"],
        &["policy", "delete", "k"],
    ] {
        run(command).await;
    }
    drop(holder);
    run(&["uninstall", "--yes"]).await;
    assert_eq!(hostile::caught(db.pool()).await, 0);
}
