//! What is told is durable: a database that forgets commits is not worked with.

use pgsemaphore::embedded::StopMode;
use pgsemaphore_tests::{
    Caller, Db, Process, Serve, Worker, faults, private_cluster, until, until_some, verify,
};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

async fn execute(db: &Db, statement: String) {
    sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(db.pool()).await.expect(&statement);
}

fn name(db: &Db) -> &str {
    db.url().rsplit('/').next().expect("a database name")
}

#[tokio::test]
async fn a_database_without_durable_commits_is_refused_at_the_start() {
    for target in ["DATABASE", "ROLE postgres IN DATABASE"] {
        let db = Db::new().await;
        execute(&db, format!("ALTER {target} {} SET synchronous_commit = off", name(&db))).await;
        let mut process = Process::start(["serve", "--database-url", db.url(), "--listen", "127.0.0.1:0"]);
        assert_eq!(process.code().await, 1, "{target}");
        let stderr = until_some("the reason", async || {
            Some(process.stderr()).filter(|stderr| stderr.contains("synchronous_commit"))
        })
        .await;
        assert!(!process.stdout().contains("listening"), "{stderr}");
    }
}

#[tokio::test]
async fn weaker_but_durable_commits_are_accepted() {
    for setting in ["local", "remote_write", "remote_apply"] {
        let db = Db::new().await;
        execute(&db, format!("ALTER DATABASE {} SET synchronous_commit = {setting}", name(&db))).await;
        let holder = Serve::start(db.url()).await;
        Caller::of(holder.url()).policy("*", &json!({"limit": 1, "round_wait_ms": 0})).await;
    }
}

#[tokio::test]
async fn later_connections_without_durable_commits_grant_nothing() {
    for target in ["DATABASE", "ROLE postgres IN DATABASE"] {
        let db = Db::new().await;
        let holder = Serve::start(db.url()).await;
        let caller = Caller::of(holder.url());
        caller.policy("*", &json!({"limit": 5, "round_wait_ms": 0, "round_period_ms": 0})).await;
        let mut worker = Worker::new("w");
        worker.hear(&caller.insist("k", &worker.wants(1)).await);
        worker.claim();

        execute(&db, format!("ALTER {target} {} SET synchronous_commit = off", name(&db))).await;
        faults::terminate_sessions(db.pool()).await;
        let (request, sync) = (Worker::new("other").wants(1), worker.reports());
        let (request, sync) = tokio::join!(caller.request("k", &request), caller.sync("k", &sync));
        request.expect("an answer").must_be_unavailable();
        sync.expect("an answer").must_be_unavailable();
        let query = sqlx::query_scalar("SELECT sum(permits)::bigint FROM pgsemaphore.grants");
        let granted: i64 = query.fetch_one(db.pool()).await.expect("the view");
        assert_eq!(granted, 1, "{target}");

        execute(&db, format!("ALTER {target} {} RESET synchronous_commit", name(&db))).await;
        worker.hear(&caller.insist_sync("k", &worker.reports()).await);
        assert_eq!(worker.running(), 1);
        assert_eq!(verify(&db).await, []);
    }
}

#[tokio::test]
async fn what_was_told_survives_a_crash_of_postgresql() {
    let mut cluster = private_cluster().await;
    let holder = Serve::start(&cluster.url()).await;
    let caller = Caller::of(holder.url());
    caller.policy("*", &json!({"limit": 1000, "round_wait_ms": 0, "round_period_ms": 0})).await;
    for round in 0..5 {
        let mut worker = Worker::new(format!("w{round}"));
        worker.hear(&caller.insist("k", &worker.wants(7)).await);
        worker.claim();
        worker.hear(&caller.insist_sync("k", &worker.reports()).await);
        assert_eq!(worker.running(), 7);
        // At once: nothing that was told may still be on its way to the disk.
        cluster.stop(StopMode::Kill).expect("PostgreSQL can be killed");
        cluster.restart().expect("PostgreSQL starts again");
        let mut connection = PgConnection::connect(&cluster.url()).await.expect("PostgreSQL is back");
        let query = sqlx::query_scalar("SELECT claimed::bigint FROM pgsemaphore.grants WHERE client_id = $1");
        let claimed: i64 =
            query.bind(&worker.client_id).fetch_one(&mut connection).await.expect("the grant is there");
        assert_eq!(claimed, 7);
    }
}

#[tokio::test]
async fn a_reload_that_ends_durable_commits_is_noticed_in_open_sessions() {
    let cluster = private_cluster().await;
    let admin = sqlx::PgPool::connect(&cluster.url()).await.expect("a session");
    let holder = Serve::start(&cluster.url()).await;
    let caller = Caller::of(holder.url());
    caller.policy("*", &json!({"limit": 5, "round_wait_ms": 0, "round_period_ms": 0})).await;
    caller.insist("k", &Worker::new("w").wants(1)).await;

    let reload = async |statement: &'static str| {
        sqlx::raw_sql(statement).execute(&admin).await.expect("the setting");
        sqlx::raw_sql("SELECT pg_reload_conf()").execute(&admin).await.expect("the reload");
    };
    reload("ALTER SYSTEM SET synchronous_commit = off").await;
    until("the holder grants nothing any more", async || {
        caller.request("k", &Worker::new("other").wants(1)).await.is_some_and(|answer| answer.status == 503)
    })
    .await;
    reload("ALTER SYSTEM RESET synchronous_commit").await;
    caller.insist("k", &Worker::new("last").wants(1)).await;
}
