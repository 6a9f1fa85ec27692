//! The storage layout does what it is for: no plan scans a table, and keys don't get in each other's way.

use pgsemaphore::store::SESSION_SETTINGS;
use pgsemaphore_tests::{Db, InProcess, message, verify};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use std::path::{Path, PathBuf};

/// Statements that read a whole table by intent, outside rounds.
const SCANS: [&str; 3] = ["read_due_keys", "read_idle_keys", "read_keys_to_judge"];
/// What a round and a batch of syncs execute; each must find its rows by the key.
const TABLES: [&str; 6] = ["semaphores", "slots", "pending", "clients", "group_usage", "group_limits"];

fn queries() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/queries");
    let files =
        std::fs::read_dir(folder).expect("the folder of queries").map(|file| file.expect("a file").path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "sql")).collect();
    files.sort();
    files
}

/// The plan as EXPLAIN prints it, for a statement whose parameters the planner doesn't know.
async fn plan(connection: &mut PgConnection, sql: &str) -> String {
    let parameters = (1..=99).rev().find(|n| sql.contains(&format!("${n}"))).unwrap_or(0);
    sqlx::raw_sql("DEALLOCATE ALL").execute(&mut *connection).await.expect("DEALLOCATE");
    let prepare = format!("PREPARE q AS {sql}");
    sqlx::raw_sql(AssertSqlSafe(prepare))
        .execute(&mut *connection)
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e}"));
    let nulls = vec!["NULL"; parameters].join(", ");
    let explain =
        if parameters == 0 { "EXPLAIN EXECUTE q".to_owned() } else { format!("EXPLAIN EXECUTE q({nulls})") };
    let rows: Vec<String> = sqlx::query_scalar(AssertSqlSafe(explain))
        .persistent(false)
        .fetch_all(connection)
        .await
        .expect("EXPLAIN");
    rows.join("\n")
}

/// Keys of one client and one group, with a block each.
async fn fill(connection: &mut PgConnection, keys: i64) {
    for statement in [
        "INSERT INTO pgsemaphore_data.semaphores (key) SELECT 'k' || n FROM generate_series(1, $1) AS n",
        "INSERT INTO pgsemaphore_data.slots (key, slot) SELECT 'k' || n, 0 FROM generate_series(1, $1) AS n",
        "INSERT INTO pgsemaphore_data.pending (key, n) SELECT 'k' || n, 0 FROM generate_series(1, $1) AS n",
        "INSERT INTO pgsemaphore_data.clients (key, client_id) SELECT 'k' || n, 'c' FROM generate_series(1, $1) AS n",
        "INSERT INTO pgsemaphore_data.group_usage (key, grp) SELECT 'k' || n, 'g' FROM generate_series(1, $1) AS n",
    ] {
        let statement = format!("{statement} ON CONFLICT DO NOTHING");
        sqlx::query(AssertSqlSafe(statement))
            .bind(keys)
            .persistent(false)
            .execute(&mut *connection)
            .await
            .expect("rows");
    }
    for limit in 1..=keys.min(1000) {
        let pattern = format!("k{limit}");
        let set = "SELECT pgsemaphore.set_limit($1, 5), pgsemaphore.set_group_limit($1, 'g', 5)";
        sqlx::query(set).bind(pattern).persistent(false).execute(&mut *connection).await.expect("a policy");
    }
    sqlx::raw_sql("ANALYZE").execute(connection).await.expect("ANALYZE");
}

/// With statistics of no row, of one and of many: a plan that is made while tables are small is kept.
#[tokio::test]
async fn every_statement_of_a_round_finds_its_rows_by_the_key() {
    let db = Db::new().await;
    let mut connection = PgConnection::connect(db.url()).await.expect("a connection");
    for (name, value) in SESSION_SETTINGS {
        let set = format!("SET {name} = '{value}'");
        sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut connection).await.expect("a setting");
    }
    for keys in [0, 1, 10_000] {
        fill(&mut connection, keys).await;
        check_plans(&mut connection, keys).await;
    }
}

async fn check_plans(connection: &mut PgConnection, keys: i64) {
    let mut checked = 0;
    for path in queries() {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let sql = std::fs::read_to_string(&path).expect("a query");
        let header = sql.lines().take_while(|line| line.starts_with("--")).count();
        assert!(header >= 2, "{name}: a header says what it does and what its parameters are");
        if ["drop_schemas", "lock_semaphores"].contains(&name.as_str()) {
            continue; // such have no plan
        }
        let plan = plan(connection, &sql).await;
        let in_round = ["take_", "read_", "write_"].iter().any(|verb| name.starts_with(verb));
        if !in_round || SCANS.contains(&name.as_str()) {
            continue;
        }
        checked += 1;
        let scanned = TABLES.iter().find(|table| plan.contains(&format!("Seq Scan on {table}")));
        assert_eq!(scanned, None, "{name} scans a table of {keys} keys:\n{plan}");
        // The condition on the index names the key wherever it names the client, whichever index it is.
        let by_client_alone = plan.lines().filter(|line| line.contains("Index Cond")).any(|line| {
            line.contains("client_id =") && !line.contains("key =") && name != "read_keys_of_client"
        });
        assert!(!by_client_alone, "{name} looks at a client's rows on all of {keys} keys:\n{plan}");
    }
    assert!(checked > 15, "{checked} statements checked");
}

/// 1000 keys on small tables, 16 connections: transactions of different keys must not abort each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_do_not_conflict_with_each_other() {
    const KEYS: usize = 1000;
    const WORKERS: usize = 16;
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("k*", json!({"limit": 3, "round_wait_ms": 0, "round_period_ms": 0})).await;
    let holder = std::sync::Arc::new(holder);
    let drive = |rounds: usize| {
        let workers = (0..WORKERS).map(|worker| {
            let holder = holder.clone();
            tokio::spawn(async move {
                for at in 0..rounds * KEYS / WORKERS {
                    let key = format!("k{}", (at * WORKERS + worker) % KEYS);
                    one_item(&holder, &key).await;
                }
            })
        });
        futures_util::future::join_all(workers.collect::<Vec<_>>())
    };
    drive(1).await;
    let before = holder.holder().store().attempts();
    drive(2).await;
    let after = holder.holder().store().attempts();
    let (begun, repeated) = (after.begun - before.begun, after.repeated - before.repeated);
    println!("{repeated} of {begun} transactions repeated");
    assert!(begun >= 4 * KEYS as u64, "{begun} transactions");
    assert!(repeated * 200 < begun, "{repeated} of {begun} transactions had false conflicts");
    assert_eq!(verify(&db).await, []);
}

async fn one_item(holder: &InProcess, key: &str) {
    let ask = json!({"demand": [{"group": "", "count": 1}], "grants": []});
    let (status, reply) = holder.request(key, message("c", ask)).await;
    assert_eq!(status, 200, "{reply}");
    let id = &reply["grants"][0]["id"];
    let used = json!({"seen": reply["round"], "grants": [{"id": id, "claimed": 1, "released": 1}]});
    let (status, reply) = holder.sync(key, message("c", used)).await;
    assert_eq!((status, &reply["grants"][0]["status"]), (200, &json!("settled")));
}
