//! Limits, ceilings and permissions that functions say, and keys that are paused.

use futures_util::future::join_all;
use pgsemaphore_tests::{
    Api, Caller, Db, InProcess, Metrics, Process, Serve, Worker, message, until, verify, within_reason,
};
use serde_json::{Value, json};

const FUNCTIONS: &str = r"
    CREATE FUNCTION public.limit_of(key text) RETURNS integer LANGUAGE plpgsql AS $$
    BEGIN
        IF key = 'divides' THEN
            RETURN 1 / 0;
        ELSIF key = 'sleeps' THEN
            PERFORM pg_sleep(30);
        END IF;
        RETURN 2;
    END $$;
    CREATE FUNCTION public.goes_away(key text) RETURNS integer LANGUAGE sql AS 'SELECT 2';
    CREATE FUNCTION public.ceiling(key text, grp text) RETURNS integer LANGUAGE sql
        AS $$ SELECT CASE grp WHEN 'one' THEN 1 WHEN 'broken' THEN 1 / (length(grp) - 6) END $$;
    CREATE FUNCTION public.may(key text, client_id text, grp text) RETURNS boolean LANGUAGE sql
        AS $$ SELECT CASE client_id WHEN 'denied' THEN false WHEN 'unsaid' THEN NULL ELSE true END $$;
    CREATE FUNCTION public.bigint_of(key text) RETURNS bigint LANGUAGE sql AS 'SELECT 2::bigint';
";

async fn run(db: &Db, sql: &'static str) {
    sqlx::raw_sql(sql).execute(db.pool()).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

fn policy(fields: Value) -> Value {
    let mut policy = json!({"round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000});
    policy.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
    policy
}

async fn asks(caller: &Caller, key: &str, client: &str, group: &str) -> Value {
    let demand = json!([{"group": group, "count": 1}]);
    caller.insist(key, &message(client, json!({"demand": demand, "leases": []}))).await
}

fn reason(reply: &Value) -> &str {
    reply["blocked"][0]["reason"].as_str().unwrap_or("none")
}

/// Of 500 keys three have functions that are broken: those are blocked, the others don't notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_function_blocks_its_key_alone() {
    let db = Db::new().await;
    run(&db, FUNCTIONS).await;
    let holder = InProcess::start(db.url()).await;
    let caller = holder.caller();
    holder.policy("*", policy(json!({"limit_function": "limit_of"}))).await;
    holder.policy("missing", policy(json!({"limit_function": "public.goes_away"}))).await;
    run(&db, "DROP FUNCTION public.goes_away(text)").await;
    let broken = ["divides", "sleeps", "missing"];
    let keys: Vec<String> =
        (0..497).map(|n| format!("key:{n}")).chain(broken.iter().map(ToString::to_string)).collect();
    let replies = join_all(keys.iter().map(|key| asks(&caller, key, "w", ""))).await;
    for (key, reply) in keys.iter().zip(&replies) {
        let expected = if broken.contains(&key.as_str()) { "limit_resolution_error" } else { "none" };
        assert_eq!(reason(reply), expected, "{key}");
        assert_eq!(reply["grants"].as_array().map_or(0, Vec::len), usize::from(expected == "none"), "{key}");
    }
    let limit: Option<i32> =
        sqlx::query_scalar("SELECT permit_limit FROM pgsemaphore.usage WHERE key = 'key:7'")
            .fetch_one(db.pool())
            .await
            .expect("the view");
    assert_eq!(limit, Some(2), "as last resolved");

    // Each is served by the first round after it was repaired.
    run(
        &db,
        "CREATE OR REPLACE FUNCTION public.limit_of(key text) RETURNS integer LANGUAGE sql AS 'SELECT 2';
         CREATE FUNCTION public.goes_away(key text) RETURNS integer LANGUAGE sql AS 'SELECT 2'",
    )
    .await;
    for key in broken {
        assert_eq!(reason(&asks(&caller, key, "w", "").await), "none", "{key}");
    }
    assert_eq!(verify(&db).await, []);
}

/// Case 28.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_fails_is_counted_and_told_when_it_begins_and_when_it_works_again() {
    const ROUNDS: usize = 20;
    let db = Db::new().await;
    run(&db, FUNCTIONS).await;
    let holder = Serve::start(db.url()).await;
    let caller = Caller::of(holder.url());
    caller.policy("*", &policy(json!({"limit_function": "limit_of"}))).await;
    // Who is parked keeps the key in memory, so that it is one failure.
    let parked = tokio::spawn({
        let wants = json!({"demand": [{"group": "", "count": 1}], "wait_ms": 60_000});
        let (caller, wants) = (caller.clone(), message("parked", wants));
        async move { caller.insist("divides", &wants).await }
    });
    let failures = async || {
        let field = "pgsemaphore_function_failures_total{field=\"limit_function\"}";
        Metrics::of(holder.url()).await.value(field)
    };
    until("the first round fails", async || failures().await > 0.0).await;
    for n in 0..ROUNDS {
        assert_eq!(reason(&asks(&caller, "divides", "w", "").await), "limit_resolution_error");
        assert_eq!(reason(&asks(&caller, &format!("fine:{n}"), "w", "").await), "none");
    }
    assert!(failures().await >= ROUNDS as f64);
    let lines = |text: &str| {
        let log = holder.stderr();
        log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect::<Vec<_>>()
    };
    let told = lines("a function of the policy fails");
    assert_eq!(told.len(), 1, "{told:?}");
    for part in ["WARN", "divides", "limit_function", "limit_of", "division by zero"] {
        assert!(told[0].contains(part), "{part}: {told:?}");
    }
    assert_eq!(lines("work again").len(), 0);

    run(
        &db,
        "CREATE OR REPLACE FUNCTION public.limit_of(key text) RETURNS integer LANGUAGE sql AS 'SELECT 2'",
    )
    .await;
    assert_eq!(reason(&asks(&caller, "divides", "w", "").await), "none");
    let served = within_reason("who was parked is served", parked).await.expect("no panic");
    assert_eq!(reason(&served), "none", "{served}");
    assert_eq!((lines("a function of the policy fails").len(), lines("work again").len()), (1, 1));
}

#[tokio::test]
async fn ceilings_and_permissions_are_asked_too() {
    let db = Db::new().await;
    run(&db, FUNCTIONS).await;
    let holder = InProcess::start(db.url()).await;
    let caller = holder.caller();
    let functions = json!({
        "limit": 10, "group_limit_function": "public.ceiling", "can_grant_function": "public.may",
        "provisioning": "strict", "permits_per_lease": 2
    });
    holder.policy("*", policy(functions)).await;
    assert_eq!(reason(&asks(&caller, "k", "a", "one").await), "none");
    assert_eq!(reason(&asks(&caller, "k", "b", "one").await), "group_limit");
    assert_eq!(reason(&asks(&caller, "k", "b", "broken").await), "limit_resolution_error");
    assert_eq!(reason(&asks(&caller, "k", "denied", "free").await), "not_permitted");
    assert_eq!(reason(&asks(&caller, "k", "unsaid", "free").await), "not_permitted");
    let reply = asks(&caller, "k", "b", "free").await;
    assert_eq!(reply["leases"].as_array().map(Vec::len), Some(1), "{reply}");

    // Who is not permitted any more loses its lease in its next round.
    run(
        &db,
        "CREATE OR REPLACE FUNCTION public.may(key text, client_id text, grp text) RETURNS boolean
         LANGUAGE sql AS 'SELECT false'",
    )
    .await;
    let lease = json!([{"id": reply["leases"][0]["id"]}]);
    let (_, reply) =
        holder.request("k", message("b", json!({"seen": reply["round"], "leases": lease}))).await;
    assert_eq!(reply["leases"][0]["status"], "retired");
    let blocked: Vec<(String, String)> = sqlx::query_as(
        "SELECT client_id, reason FROM pgsemaphore.blocked WHERE reason = 'not_permitted' ORDER BY 1",
    )
    .fetch_all(db.pool())
    .await
    .expect("the view");
    assert_eq!(blocked.len(), 2, "{blocked:?}");
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn a_policy_names_functions_that_can_be_called() {
    let db = Db::new().await;
    run(&db, FUNCTIONS).await;
    run(
        &db,
        "CREATE ROLE pgsemaphore_test_nobody; REVOKE EXECUTE ON FUNCTION public.limit_of(text) FROM PUBLIC",
    )
    .await;
    let holder = InProcess::start(db.url()).await;
    let caller = holder.caller();
    let api = Api::new(holder.url());
    for (field, name) in [
        ("limit_function", "no_such_function"),
        ("limit_function", "public.ceiling"),
        ("limit_function", "public.bigint_of"),
        ("limit_function", "limit_of(text); DROP TABLE pgsemaphore_data.slots; --"),
        ("limit_function", "pg_catalog.count"),
        ("limit_function", "f("),
        ("limit_function", "\"limit_of"),
        ("limit_function", "public.\"limit_of"),
        ("limit_function", "'"),
        ("limit_function", ""),
        ("limit_function", "a.b.c.d"),
        ("limit_function", "no_such_schema.limit_of"),
        ("limit_function", "limit_of(text, nothing)"),
        ("group_limit_function", "limit_of"),
        ("can_grant_function", "public.ceiling"),
    ] {
        let limit = if field == "limit_function" { "" } else { r#""limit": 1, "# };
        let body = format!(r#"{{{limit}"{field}": {}}}"#, json!(name));
        let answer = api.put("/v1/policies/k", &body).await;
        assert_eq!(answer.field(), (400, format!("/{field}").as_str()), "{body}");
        assert!(
            answer.body["detail"].as_str().is_some_and(|detail| detail.contains("must be")),
            "{:?}",
            answer.body
        );
    }
    // Odd names are names.
    run(&db, r#"CREATE FUNCTION public."Odd ""name"""(key text) RETURNS integer LANGUAGE sql AS 'SELECT 3'"#)
        .await;
    holder.policy("odd", policy(json!({"limit_function": r#"public."Odd ""name""""#}))).await;
    assert_eq!(reason(&asks(&caller, "odd", "w", "").await), "none");
    run(&db, "DROP ROLE pgsemaphore_test_nobody").await;
}

#[tokio::test]
async fn pausing_admits_nobody_from_the_next_round_on() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let caller = holder.caller();
    holder.policy("*", policy(json!({"limit": 5}))).await;
    let mut worker = Worker::new("w");
    worker.hear(&caller.insist("k", &worker.wants(2)).await);
    worker.claim();
    worker.hear(&caller.insist_sync("k", &worker.reports()).await);

    run(&db, r#"SELECT pgsemaphore.configure('*', '{"paused": true}')"#).await;
    assert_eq!(reason(&asks(&caller, "k", "a", "").await), "paused");
    worker.release();
    worker.hear(&caller.insist_sync("k", &worker.reports()).await);
    assert_eq!(holder.usage("k").await["grants"], 0, "what runs ends as ever");

    let set = ["policy", "set", "*", "--paused", "false", "--paused-groups", "g", "--database-url", db.url()];
    let (code, _, stderr) = Process::run(set).await;
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(reason(&asks(&caller, "k", "a", "").await), "none");
    assert_eq!(reason(&asks(&caller, "k", "b", "g").await), "paused");
    holder.policy("*", policy(json!({"limit": 5}))).await;
    assert_eq!(reason(&asks(&caller, "k", "b", "g").await), "none");
    assert_eq!(verify(&db).await, []);
}
