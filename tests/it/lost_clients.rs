//! What clients that are gone held comes back: an operator says so, over HTTP, in SQL or on the command line, or the
//! client's own words show that it does not hold it.

use crate::command_line::at_a_terminal;
use pgsemaphore_tests::{Api, Db, InProcess, Process, Worker, message, until, verify};
use serde_json::{Value, json};
use sqlx::postgres::PgDatabaseError;

const KEY: &str = "k";

async fn holder(db: &Db, limit: u64) -> InProcess {
    let holder = InProcess::start(db.url()).await;
    let policy = json!({
        "limit": limit, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000, "provisioning": "strict"
    });
    holder.policy("*", policy).await;
    holder
}

/// A client with two running items, one permit unclaimed, and a lease of what is left.
async fn holding(holder: &InProcess, client: &str, generation: u64) -> Value {
    let process = format!("p{generation}");
    let speak = |fields: Value| {
        let mut spoken = message(client, fields);
        (spoken["generation"], spoken["process"]) = (generation.into(), process.as_str().into());
        spoken
    };
    let demand = json!([{"group": "g", "count": 3}]);
    let (status, reply) = holder.request(KEY, speak(json!({"demand": demand, "leases": []}))).await;
    assert_eq!(status, 200, "{reply}");
    let grants = json!([{"id": reply["grants"][0]["id"], "claimed": 2}]);
    let (status, reply) = holder.sync(KEY, speak(json!({"seen": reply["round"], "grants": grants}))).await;
    assert_eq!(status, 200, "{reply}");
    reply
}

async fn audit(db: &Db) -> Vec<(String, String, i64, i64, Option<String>)> {
    let query = "SELECT action, client_id, grants, leases, detail FROM pgsemaphore.audit
                 WHERE action <> 'policy' ORDER BY at";
    sqlx::query_as(query).fetch_all(db.pool()).await.expect("the view")
}

async fn used(holder: &InProcess) -> (u64, u64) {
    let usage = holder.usage(KEY).await;
    (usage["grants"].as_u64().expect("grants"), usage["leases"].as_u64().expect("leases"))
}

#[tokio::test]
async fn an_operator_settles_a_client_over_http() {
    let db = Db::new().await;
    let holder = holder(&db, 8).await;
    let _ = holding(&holder, "gone/x", 7).await;
    assert_eq!(used(&holder).await, (3, 5));
    let api = Api::new(holder.url());
    let target = "/v1/semaphores/k/clients/gone%2Fx/settle";

    let heard = api.post(target, r#"{"reason": "it seems so"}"#).await;
    assert_eq!(heard.code(), (409, "client_heard"));
    let detail = heard.body["detail"].as_str().expect("a detail");
    assert!(
        detail.contains("client gone/x was heard ") && detail.contains("holds 8 permits of k;"),
        "{detail}"
    );
    assert!(detail.ends_with(r#"pass {"force": true}"#), "{detail}");
    assert_eq!((used(&holder).await, audit(&db).await), ((3, 5), vec![]));
    let first = api.post(target, r#"{"reason": "its host burnt down", "force": true}"#).await;
    let expected =
        json!({"v": 1, "key": KEY, "client_id": "gone/x", "generation": 8, "grants": 3, "leases": 5});
    assert_eq!((first.status, &first.body), (200, &expected));
    assert_eq!(used(&holder).await, (0, 0));
    assert_eq!(verify(&db).await, []);
    let again = api.post(target, "").await;
    assert_eq!((again.status, &again.body["generation"], &again.body["grants"]), (200, &json!(8), &json!(0)));
    let entry = ("settle".into(), "gone/x".into(), 3, 5, Some("its host burnt down".into()));
    assert_eq!(audit(&db).await, [entry]);

    // The one that was declared dead is refused and told what to do, its successor is not.
    let late =
        json!({"generation": 7, "process": "p7", "grants": [{"id": "1-0", "claimed": 2, "released": 2}]});
    let (status, problem) = holder.sync(KEY, message("gone/x", late)).await;
    assert_eq!((status, &problem["code"], &problem["generation"]), (409, &json!("client_fenced"), &json!(8)));
    let (status, _) =
        holder.sync(KEY, message("gone/x", json!({"generation": 8, "process": "p8", "seen": 1}))).await;
    assert_eq!(status, 200);

    // What came back is there for others, and rows are used again.
    let mut other = Worker::new("other");
    other.hear(&holder.caller().insist(KEY, &other.wants(8)).await);
    assert_eq!(other.permits(), 8);
    assert_eq!(verify(&db).await, []);

    let unknown = api.post("/v1/semaphores/k/clients/nobody/settle", "").await;
    assert_eq!(unknown.code(), (404, "client_not_found"));
    for (target, body, field) in [
        ("/v1/semaphores/k/clients//settle", "", "client_id"),
        ("/v1/semaphores//clients/x/settle", "", "key"),
        (target, r#"{"reason": 5}"#, "/reason"),
        (target, r#"{"reason": ""}"#, "/reason"),
        (target, r#"{"cause": "x"}"#, "/cause"),
        (target, r#"{"force": 1}"#, "/force"),
    ] {
        assert_eq!(api.post(target, body).await.field(), (400, field), "{target} {body}");
    }
}

#[tokio::test]
async fn and_in_sql_while_demand_waits_for_it() {
    let db = Db::new().await;
    let holder = holder(&db, 3).await;
    let _ = holding(&holder, "gone", 1).await;
    let mut waits = Worker::new("waits");
    waits.hear(&holder.caller().insist(KEY, &waits.wants(2)).await);
    assert_eq!(waits.permits(), 0);
    let refused = sqlx::query("SELECT pgsemaphore.settle_client('k', 'gone')").execute(db.pool()).await;
    let refused =
        refused.expect_err("it was heard just now").into_database_error().expect("PostgreSQL's word");
    let refused = refused.downcast::<PgDatabaseError>();
    assert!(refused.message().ends_with("holds 3 permits of k"), "{refused}");
    assert!(refused.hint().is_some_and(|hint| hint.ends_with("pass force => true.")), "{refused:?}");
    let settled: (String, String, i64, i64, i64) =
        sqlx::query_as("SELECT * FROM pgsemaphore.settle_client($1, 'gone', force => true)")
            .bind(KEY)
            .fetch_one(db.pool())
            .await
            .expect("it is settled");
    assert_eq!(settled, (KEY.into(), "gone".into(), 2, 3, 0));
    assert_eq!(verify(&db).await, []);
    waits.hear(&holder.caller().insist(KEY, &waits.wants(2)).await);
    assert_eq!(waits.permits(), 2);
    let due: bool = sqlx::query_scalar(
        "SELECT next_deadline IS NOT NULL AND cardinality(batch_ns) = 1 FROM pgsemaphore_data.semaphores",
    )
    .fetch_one(db.pool())
    .await
    .expect("the row");
    assert!(due, "only the grant of the other one is due");
}

#[tokio::test]
async fn and_on_the_command_line() {
    let db = Db::new().await;
    let holder = holder(&db, 3).await;
    let _ = holding(&holder, "gone", 1).await;
    let run = async |arguments: &[&str]| {
        Process::run([&["client"], arguments, &["--database-url", db.url()]].concat()).await
    };
    let (code, listed, _) = run(&["list", KEY]).await;
    assert_eq!(code, 0);
    assert!(listed.lines().any(|line| line.starts_with("k ") && line.contains("gone")), "{listed}");
    let (code, _, stderr) = run(&["settle", KEY, "gone"]).await;
    assert_eq!((code, used(&holder).await), (2, (3, 0)), "nobody is at a terminal to be asked: {stderr}");
    assert!(stderr.contains(r#""gone" was heard "#) && stderr.contains("--yes"), "{stderr}");
    assert!(stderr.contains(r#"holds 3 permits of "k" (3 of grants, 0 of leases)"#), "{stderr}");
    let (code, said, stderr) = run(&["settle", KEY, "gone", "--reason", "gone for good", "--yes"]).await;
    assert_eq!(code, 0, "{stderr}");
    assert!(said.contains("3 permits of grants and 0 of leases came back"), "{said}");
    let (code, _, stderr) = run(&["settle", KEY, "nobody"]).await;
    assert_eq!(code, 1);
    assert!(stderr.contains("nobody") && stderr.contains("client list"), "{stderr}");
    let unheard = run(&["list", "--unheard", "--json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&unheard.1).expect("JSON"), json!([]));
}

/// What nobody was heard of for ten minutes shows up for people.
#[tokio::test]
async fn permits_of_clients_that_are_not_heard_are_visible() {
    let db = Db::new().await;
    let holder = holder(&db, 3).await;
    let _ = holding(&holder, "quiet", 1).await;
    sqlx::raw_sql("UPDATE pgsemaphore_data.clients SET last_seen = now() - interval '11 minutes'")
        .execute(db.pool())
        .await
        .expect("time passes");
    let (_, listed, _) =
        Process::run(["client", "list", "--unheard", "--json", "--database-url", db.url()]).await;
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!((&listed[0]["client_id"], &listed[0]["grants"]), (&json!("quiet"), &json!(3)));
}

/// The database comes back from a copy taken a while ago: reports get their verdicts, and what the copy brought back
/// is gone once each client has said all that it holds.
#[tokio::test]
async fn a_restored_database_does_not_keep_what_nobody_holds() {
    let db = Db::new().await;
    let holder = holder(&db, 10).await;
    let caller = holder.caller();
    let all = |worker: &Worker| {
        let mut message = worker.reports();
        (message["all"], message["leases"]) = (json!(true), json!([]));
        message
    };
    let [mut old, mut new] = ["old", "new"].map(Worker::new);
    old.hear(&caller.insist(KEY, &old.wants(4)).await);
    old.claim();
    old.hear(&caller.insist_sync(KEY, &old.reports()).await);

    sqlx::raw_sql(
        "CREATE SCHEMA copy;
         CREATE TABLE copy.semaphores AS TABLE pgsemaphore_data.semaphores;
         CREATE TABLE copy.group_usage AS TABLE pgsemaphore_data.group_usage;
         CREATE TABLE copy.slots AS TABLE pgsemaphore_data.slots;
         ALTER TABLE copy.slots DROP COLUMN counted;
         CREATE TABLE copy.pending AS TABLE pgsemaphore_data.pending;
         CREATE TABLE copy.clients AS TABLE pgsemaphore_data.clients;",
    )
    .execute(db.pool())
    .await
    .expect("a copy");
    old.release();
    old.hear(&caller.insist_sync(KEY, &old.reports()).await);
    new.hear(&caller.insist(KEY, &new.wants(5)).await);
    new.claim();
    new.hear(&caller.insist_sync(KEY, &new.reports()).await);
    assert_eq!((old.blocks.len(), new.running()), (0, 5));

    sqlx::raw_sql(
        "BEGIN;
         TRUNCATE pgsemaphore_data.semaphores, pgsemaphore_data.group_usage, pgsemaphore_data.slots,
             pgsemaphore_data.pending, pgsemaphore_data.clients;
         INSERT INTO pgsemaphore_data.semaphores TABLE copy.semaphores;
         INSERT INTO pgsemaphore_data.group_usage TABLE copy.group_usage;
         INSERT INTO pgsemaphore_data.slots (key, slot, kind, round, client_id, grp, permits, used, released, status,
             deadline, batch, created_at, stopped, ttl_ms, reported_at) TABLE copy.slots;
         INSERT INTO pgsemaphore_data.pending TABLE copy.pending;
         INSERT INTO pgsemaphore_data.clients TABLE copy.clients;
         COMMIT;",
    )
    .execute(db.pool())
    .await
    .expect("the copy comes back");
    assert_eq!(used(&holder).await, (4, 0), "as it was then");

    // The block that the copy does not know is told as such: its items run on, uncounted, until they end.
    let (status, reply) = holder.sync(KEY, all(&new)).await;
    assert_eq!((status, &reply["grants"][0]["status"]), (200, &json!("not_found")));
    // The blocks that it brought back are nobody's.
    let (status, _) = holder.sync(KEY, all(&old)).await;
    assert_eq!(status, 200);
    assert_eq!(used(&holder).await, (0, 0));
    let found = audit(&db).await;
    assert_eq!((found.len(), found[0].0.as_str(), found[0].2), (1, "unknown_to_client", 4));
    // Rounds still rise above all that was ever told.
    let mut fresh = Worker::new("fresh");
    fresh.hear(&caller.insist(KEY, &fresh.wants(1)).await);
    assert!(fresh.seen > new.seen);
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn fences_outlive_the_rows_of_their_key() {
    let db = Db::new().await;
    let holder = InProcess::start_forgetting(db.url(), std::time::Duration::from_millis(500)).await;
    holder.policy("*", json!({"limit": 3, "round_wait_ms": 0, "round_period_ms": 0})).await;
    let _ = holding(&holder, "gone", 4).await;
    let settled =
        Api::new(holder.url()).post("/v1/semaphores/k/clients/gone/settle", r#"{"force": true}"#).await;
    assert_eq!(settled.status, 200);
    let keys = async || {
        sqlx::query_scalar::<_, i64>("SELECT count(*) FROM pgsemaphore_data.semaphores")
            .fetch_one(db.pool())
            .await
            .expect("a count")
    };
    until("the key is forgotten", async || keys().await == 0).await;
    let message = message("gone", json!({"generation": 4, "process": "p4"}));
    let (status, problem) = holder.sync(KEY, message).await;
    assert_eq!((status, &problem["generation"]), (409, &json!(5)), "{problem}");
    sqlx::raw_sql(
        "UPDATE pgsemaphore_data.clients SET fenced_at = now() - interval '31 days', last_seen = 'epoch'",
    )
    .execute(db.pool())
    .await
    .expect("a month passes");
    let fences = async || {
        sqlx::query_scalar::<_, i64>("SELECT count(*) FROM pgsemaphore_data.clients")
            .fetch_one(db.pool())
            .await
            .expect("a count")
    };
    until("the fence is swept", async || fences().await == 0).await;
}

#[tokio::test]
async fn a_person_is_asked_about_a_client_that_was_heard_lately() {
    let db = Db::new().await;
    let holder = holder(&db, 3).await;
    let _ = holding(&holder, "alive", 1).await;
    for (answer, code, left) in [("no\n", 2, (3, 0)), ("yes\n", 0, (0, 0))] {
        let (found, said) = at_a_terminal(&db, "client settle k alive", answer).await;
        assert_eq!((found, used(&holder).await), (code, left), "{said}");
        assert!(said.contains(r#""alive" was heard "#) && said.contains("Type yes to go on"), "{said}");
    }
    let _ = holding(&holder, "silent", 1).await;
    let long_ago = "UPDATE pgsemaphore_data.clients SET last_seen = now() - interval '11 minutes'";
    sqlx::raw_sql(long_ago).execute(db.pool()).await.expect("silence");
    let (code, said) = at_a_terminal(&db, "client settle k silent", "").await;
    assert!(code == 0 && !said.contains("Type yes"), "nobody is asked about a client that is silent: {said}");
}
