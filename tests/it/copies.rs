//! O-07: a database that is a copy of another one has its rows of holders, too. They run over the original.

use std::process::Command;
use std::time::Duration;

use pgsemaphore_tests::{Db, InProcess, Metrics, Standby, Worker, private_cluster, until};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::task::JoinHandle;

const KEYS: i64 = 20;

/// Keeps the rows of holders of an original alive in its copy, as logical replication does.
struct Replication(JoinHandle<()>);

impl Drop for Replication {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// `write` gets rows of the original as `$1`.
async fn replicate(original: &PgPool, copy: &PgPool, write: &'static str) -> Replication {
    let (original, copied) = (original.clone(), copy.clone());
    let task = tokio::spawn(async move {
        loop {
            let read = "SELECT coalesce(jsonb_agg(h), '[]') FROM pgsemaphore_data.holders AS h";
            let rows: Value = sqlx::query_scalar(read).fetch_one(&original).await.expect("the original");
            sqlx::query(write).bind(rows).execute(&copied).await.expect("the copy");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let seen = "SELECT count(*) FROM pgsemaphore_data.holders WHERE last_heartbeat > clock_timestamp() - interval '1 s'";
    until("rows come over", async || {
        sqlx::query_scalar::<_, i64>(seen).fetch_one(copy).await.expect("the copy") > 0
    })
    .await;
    Replication(task)
}

/// The rows as they are.
const AS_THEY_ARE: &str = "
    INSERT INTO pgsemaphore_data.holders
    SELECT * FROM jsonb_populate_recordset(NULL::pgsemaphore_data.holders, $1)
    ON CONFLICT (holder) DO UPDATE SET last_heartbeat = excluded.last_heartbeat";

/// The rows as if those holders used the copy.
const FORGED: &str = "
    INSERT INTO pgsemaphore_data.holders
    SELECT h.holder, h.url, pgsemaphore_data.this_database(), h.started_at, h.last_heartbeat, h.returned_at
    FROM jsonb_populate_recordset(NULL::pgsemaphore_data.holders, $1) AS h
    ON CONFLICT (holder) DO UPDATE SET last_heartbeat = excluded.last_heartbeat, database = excluded.database";

async fn policy(holder: &InProcess) {
    let policy =
        json!({"limit": 100, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000});
    holder.policy("*", policy).await;
}

async fn granted(pool: &PgPool) -> i64 {
    let query = sqlx::query_scalar("SELECT coalesce(sum(grants), 0)::bigint FROM pgsemaphore.usage");
    query.fetch_one(pool).await.expect("usage")
}

async fn database(pool: &PgPool) -> String {
    let query = sqlx::query_scalar("SELECT pgsemaphore_data.this_database()");
    query.fetch_one(pool).await.expect("its name")
}

/// A holder over the copy decides all requests that it gets there.
async fn all_is_decided_in_the_copy(original: &PgPool, copy: &PgPool, url: &str) -> InProcess {
    let holder = InProcess::start(url).await;
    for number in 0..KEYS {
        let (status, reply) = holder.request(&format!("k:{number}"), Worker::new("w").wants(1)).await;
        assert_eq!(status, 200, "{reply}");
    }
    assert_eq!((granted(original).await, granted(copy).await), (0, KEYS));
    holder
}

/// The copy shows whose rows they are.
async fn only_its_own_holder_is_live(copy: &PgPool, holder: &InProcess) {
    let query = "SELECT array_agg(url) FROM pgsemaphore.holders WHERE live";
    let live: Vec<String> = sqlx::query_scalar(query).fetch_one(copy).await.expect("the view");
    assert_eq!(live, [holder.url()]);
}

/// The original's dump, in a database of the same cluster.
async fn dump_and_restore(original: &Db, copy: &Db) {
    let script = format!(
        "set -o pipefail; pg_dump --clean --if-exists -n pgsemaphore -n pgsemaphore_data '{}' \
         | psql -qX -v ON_ERROR_STOP=1 '{}'",
        original.url(),
        copy.url()
    );
    let run = move || Command::new("bash").args(["-c", &script]).output().expect("bash runs");
    let output = tokio::task::spawn_blocking(run).await.expect("no panic");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn a_holder_over_a_restored_dump_asks_no_holder_of_the_original() {
    let (original, copy) = (Db::new().await, Db::new().await);
    let holder = InProcess::start(original.url()).await;
    policy(&holder).await;
    dump_and_restore(&original, &copy).await;
    let _replication = replicate(original.pool(), copy.pool(), AS_THEY_ARE).await;
    let other = all_is_decided_in_the_copy(original.pool(), copy.pool(), copy.url()).await;
    only_its_own_holder_is_live(copy.pool(), &other).await;
    let metrics = Metrics::of(other.url()).await;
    for outcome in ["answered", "fell_back"] {
        let series = format!("pgsemaphore_forwarded_calls_total{{outcome=\"{outcome}\"}}");
        assert_eq!(metrics.find(&series).unwrap_or_default(), 0.0, "nothing was passed on");
    }
}

#[tokio::test]
async fn a_holder_refuses_what_is_passed_on_in_another_database() {
    let (original, copy) = (Db::new().await, Db::new().await);
    let holder = InProcess::start(original.url()).await;
    policy(&holder).await;
    dump_and_restore(&original, &copy).await;
    let _replication = replicate(original.pool(), copy.pool(), FORGED).await;
    let other = all_is_decided_in_the_copy(original.pool(), copy.pool(), copy.url()).await;
    let refused =
        Metrics::of(other.url()).await.value("pgsemaphore_forwarded_calls_total{outcome=\"fell_back\"}");
    assert!(refused > 0.0, "it was asked");
}

/// A copy of the files has the cluster's identifier and the database's oid, too.
#[tokio::test]
async fn a_holder_over_a_promoted_copy_asks_no_holder_of_the_original() {
    let primary = private_cluster().await;
    let holder = InProcess::start(&primary.url()).await;
    policy(&holder).await;
    let standby = Standby::of(&primary).await;
    let original = PgPool::connect(&primary.url()).await.expect("the primary");
    for change in ["ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()"] {
        sqlx::raw_sql(change).execute(&original).await.expect("a primary that waits for nobody");
    }
    standby.promote().await;
    let copy = PgPool::connect(&standby.url()).await.expect("the copy");
    let [one, other] = [database(&original).await, database(&copy).await];
    assert_eq!(one.rsplit_once('/').map(|name| name.0), other.rsplit_once('/').map(|name| name.0));
    assert_ne!(one, other);
    let _replication = replicate(&original, &copy, AS_THEY_ARE).await;
    let other = all_is_decided_in_the_copy(&original, &copy, &standby.url()).await;
    only_its_own_holder_is_live(&copy, &other).await;
}
