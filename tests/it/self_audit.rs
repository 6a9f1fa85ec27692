//! Counters that are counted again: by a holder, which tells, and by people, who repair.

use pgsemaphore::Settings;
use pgsemaphore_tests::{
    Api, Db, InProcess, Metrics, Process, Worker, message, until, verify, within_reason,
};
use serde_json::{Value, json};
use std::time::Duration;

fn policy(limit: u64) -> Value {
    json!({"limit": limit, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000})
}

async fn execute(db: &Db, statement: &'static str) {
    sqlx::raw_sql(statement).execute(db.pool()).await.expect("a statement");
}

async fn audit(db: &Db, arguments: &[&str]) -> (i32, String, String) {
    Process::run([&["audit", "--database-url", db.url()], arguments].concat()).await
}

#[tokio::test]
async fn a_holder_tells_of_counters_that_differ_and_repairs_nothing() {
    let db = Db::new().await;
    let often = Settings { self_check_every: Duration::from_millis(200), ..Settings::default() };
    let holder = InProcess::start_checking(db.url(), often).await;
    holder.policy("*", policy(5)).await;
    for key in ["a", "b", "sound"] {
        holder.caller().insist(key, &Worker::new("w").wants(2)).await;
    }
    let seen = async || {
        let ready = Api::new(holder.url()).get("/readyz").await;
        assert_eq!((ready.status, &ready.body["status"]), (200, &json!("ok")), "it works all the same");
        let drift = Metrics::of(holder.url()).await.value("pgsemaphore_drift_counters");
        (ready.body["drift"].as_f64(), drift)
    };
    assert_eq!(seen().await, (Some(0.0), 0.0));

    execute(&db, "UPDATE pgsemaphore_data.semaphores SET grants = grants + 1 WHERE key IN ('a', 'b')").await;
    execute(&db, "UPDATE pgsemaphore_data.group_usage SET leases = 7 WHERE key = 'a'").await;
    until("all of it is found", async || seen().await == (Some(3.0), 3.0)).await;
    let audited = Metrics::of(holder.url()).await.value("pgsemaphore_audited_keys_total");
    until("it has looked on", async || {
        Metrics::of(holder.url()).await.value("pgsemaphore_audited_keys_total") > audited + 6.0
    })
    .await;
    assert_eq!(verify(&db).await.len(), 3, "nothing was repaired");

    let (code, stdout, stderr) = audit(&db, &["--repair"]).await;
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("3 counters were put right"), "{stdout}");
    until("it is right again", async || seen().await == (Some(0.0), 0.0)).await;
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn audit_shows_what_differs_and_repairs_it_when_it_is_asked_to() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let caller = holder.caller();
    holder.policy("*", policy(5)).await;
    let mut worker = Worker::new("w");
    worker.hear(&caller.insist("k", &worker.wants(2)).await);
    caller.insist("other", &Worker::new("w").wants(1)).await;
    let (code, stdout, _) = audit(&db, &[]).await;
    assert_eq!(
        (code, stdout.as_str()),
        (0, "2 semaphores: no counter differs from the blocks that it counts\n")
    );

    // What a fault would do: capacity is lost, and a group's row is gone.
    execute(&db, "UPDATE pgsemaphore_data.semaphores SET grants = 5 WHERE key = 'k'").await;
    execute(&db, "DELETE FROM pgsemaphore_data.group_usage WHERE key = 'k'").await;
    for arguments in [&[][..], &["k"]] {
        let (code, stdout, stderr) = audit(&db, arguments).await;
        assert_eq!(code, 1, "{stdout}");
        assert!(stderr.contains("2 counters differ"), "{stderr}");
        let row = |line: &&str| line.split_whitespace().collect::<Vec<_>>() == ["k", "-", "grants", "5", "2"];
        assert!(stdout.lines().any(|line| row(&line)), "{stdout}");
    }
    assert_eq!(audit(&db, &["other"]).await.0, 0);
    let parked = tokio::spawn({
        let caller = caller.clone();
        async move {
            let wants = message("next", json!({"demand": [{"group": "", "count": 3}], "wait_ms": 60_000}));
            caller.insist("k", &wants).await
        }
    });
    until("it waits", async || caller.usage("k").await["blocked"] != json!([])).await;

    let (code, stdout, stderr) = audit(&db, &["--repair"]).await;
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("2 counters were put right"), "{stdout}");
    assert_eq!(verify(&db).await, []);
    let reply = within_reason("what was lost is granted", parked).await.expect("no panic");
    assert_eq!(reply["grants"][0]["permits"], 3, "{reply}");
    let (actor, grants, detail): (String, i64, Value) = sqlx::query_as(
        "SELECT actor, grants, detail::jsonb FROM pgsemaphore.audit WHERE key = 'k' AND action = 'repair'",
    )
    .fetch_one(db.pool())
    .await
    .expect("one entry of the audit");
    assert!(actor.starts_with("cli:"), "{actor}");
    assert_eq!((grants, detail.as_array().map(Vec::len)), (3, Some(2)), "{detail}");
    assert_eq!(audit(&db, &["--repair"]).await.0, 0, "there is nothing left to do");
}

/// The round has read the counters; they are repaired before it writes.
#[tokio::test]
async fn a_round_does_not_write_over_a_repair() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let caller = holder.caller();
    holder.policy("*", policy(100)).await;
    let mut worker = Worker::new("w");
    worker.hear(&caller.insist("k", &worker.wants(1)).await);
    let rounds = async {
        for _ in 0..30 {
            worker.hear(&caller.insist("k", &worker.wants(1)).await);
        }
    };
    let repairs = async {
        for _ in 0..30 {
            execute(&db, "UPDATE pgsemaphore_data.semaphores SET grants = grants + 1 WHERE key = 'k'").await;
            let repair = sqlx::query("SELECT count(*) FROM pgsemaphore.repair('k')");
            repair.execute(db.pool()).await.expect("a repair");
        }
    };
    tokio::join!(rounds, repairs);
    assert_eq!(verify(&db).await, []);
    assert_eq!(caller.usage("k").await["grants"], 31);
}
