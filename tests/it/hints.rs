//! Hints, which anybody may send: they cost a look at most, whatever they say and however many there are.

use std::time::{Duration, Instant};

use crate::calls;
use pgsemaphore_tests::{Caller, Db, InProcess, Metrics, Worker, message, until, verify, within_reason};
use serde_json::json;
use tokio::task::JoinHandle;

/// Idle keys, each with a parked sync.
const KEYS: u32 = 100;
/// Hints that are sent, one each 10 ms.
const HINTS: u32 = 300;
/// A holder looks at parked calls this often without a hint.
const LOOK_EVERY: Duration = Duration::from_secs(5);

async fn notify(db: &Db, payload: &str) {
    let query = sqlx::query("SELECT pg_notify('pgsemaphore', $1)").bind(payload);
    query.execute(db.pool()).await.expect("a hint");
}

/// Does something `HINTS` times.
async fn often(mut act: impl AsyncFnMut(u32)) {
    for time in 0..HINTS {
        act(time).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn park_sync(caller: &Caller, key: &str) -> JoinHandle<Option<pgsemaphore_tests::Heard>> {
    let (caller, key) = (caller.clone(), key.to_owned());
    tokio::spawn(async move { caller.sync(&key, &message("c", json!({"wait_ms": 60_000}))).await })
}

/// Many keys that nobody uses but for a sync that is parked, and one of its own policy, with its parked sync.
async fn idle_keys(db: &Db, holder: &InProcess) -> JoinHandle<Option<pgsemaphore_tests::Heard>> {
    holder.policy("idle-*", json!({"limit": 1, "round_wait_ms": 0, "round_period_ms": 0})).await;
    holder.policy("watched", json!({"limit": 1, "round_wait_ms": 0, "round_period_ms": 0})).await;
    let caller = holder.caller();
    let mut watched = None;
    for key in (0..KEYS).map(|n| format!("idle-{n}")).chain(["watched".to_owned()]) {
        let _ = caller.insist(&key, &message("c", json!({}))).await;
        watched = Some(park_sync(&caller, &key));
    }
    let parked = "pgsemaphore_parked_calls";
    until("all are parked", async || Metrics::of(holder.url()).await.value(parked) > f64::from(KEYS)).await;
    let _ = db;
    watched.expect("a call")
}

/// Transactions of this database, and looks of this holder at parked syncs, so far.
async fn transactions(db: &Db, holder: &InProcess) -> (f64, f64) {
    let query = "SELECT (xact_commit + xact_rollback)::float8 FROM pg_stat_database WHERE datname = current_database()";
    let all = sqlx::query_scalar(query).fetch_one(db.pool()).await.expect("statistics");
    let metrics = Metrics::of(holder.url()).await;
    let looks = ["looked_at", "committed", "failed"].map(|outcome| {
        metrics.value(&format!("pgsemaphore_rounds_total{{kind=\"sync\",outcome=\"{outcome}\"}}"))
    });
    (all, looks.iter().sum())
}

/// What `act` causes at idle keys, until a change of a policy that does matter has been heard of.
async fn costs_idle_keys_nothing(db: &Db, holder: &InProcess, act: impl AsyncFnMut(u32)) {
    let watched = idle_keys(db, holder).await;
    let (began, before) = (Instant::now(), transactions(db, holder).await);
    often(act).await;
    holder.policy("watched", json!({"limit": 1, "settle_lost_clients_after_ms": 600_000})).await;
    let heard = within_reason("a change that matters", watched).await.expect("no panic").expect("an answer");
    assert_eq!(heard.ok()["report_within_ms"], 200_000);
    let after = transactions(db, holder).await;
    let seconds = began.elapsed().as_secs_f64();
    let unasked = f64::from(KEYS) * (seconds / LOOK_EVERY.as_secs_f64()).ceil();
    let looks = after.1 - before.1;
    assert!(looks <= unasked + 10.0, "{looks} looks in {seconds} s");
    // Each act is up to 2 transactions, the holder's duties a few a second.
    let all = after.0 - before.0;
    assert!(
        all <= unasked + f64::from(HINTS) * 2.0 + 30.0 * seconds + 100.0,
        "{all} transactions in {seconds} s"
    );
}

/// O-04: somebody says again and again that policies changed.
#[tokio::test]
async fn forged_hints_of_policies_cost_idle_keys_nothing() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    costs_idle_keys_nothing(&db, &holder, async |_| notify(&db, "policies").await).await;
}

/// O-04: policies change again and again, but none that wins for the keys.
#[tokio::test]
async fn a_policy_that_does_not_win_costs_idle_keys_nothing() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let set = async |time: u32| {
        let query = sqlx::query("SELECT pgsemaphore.set_limit($1, $2)").bind("*").bind(i64::from(time));
        query.execute(db.pool()).await.expect("a limit");
    };
    costs_idle_keys_nothing(&db, &holder, set).await;
}

/// O-04: somebody says again and again that something of the keys changed.
#[tokio::test]
async fn forged_hints_of_keys_cost_idle_keys_nothing() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let forge = async |time: u32| {
        let word = ["changed", "freed"][time as usize % 2];
        let query = "SELECT pg_notify('pgsemaphore', $1 || ' - idle-' || n) FROM generate_series(0, $2) AS n";
        let query = sqlx::query(query).bind(word).bind(i32::try_from(KEYS).expect("few keys"));
        query.execute(db.pool()).await.expect("hints");
    };
    costs_idle_keys_nothing(&db, &holder, forge).await;
}

/// O-04: hints that permits came back start no round; one that is true does.
#[tokio::test]
async fn forged_hints_start_no_round_for_who_is_parked() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let caller = holder.caller();
    holder.policy("*", json!({"limit": 1, "round_wait_ms": 0, "round_period_ms": 0})).await;
    let mut busy = Worker::new("busy");
    busy.hear(&caller.insist("k", &busy.wants(1)).await);
    busy.claim();
    busy.hear(&caller.insist_sync("k", &busy.reports()).await);
    let mut wants = Worker::new("waiter").wants(1);
    wants["wait_ms"] = json!(60_000);
    let parked = calls::park(&db, &caller, "k", wants).await;
    let version = async || {
        let query = "SELECT version FROM pgsemaphore_data.semaphores WHERE key = 'k'";
        sqlx::query_scalar::<_, i64>(query).fetch_one(db.pool()).await.expect("the key's row")
    };
    let (began, before) = (Instant::now(), version().await);
    often(async |time| notify(&db, ["changed - k", "freed - k"][time as usize % 2]).await).await;
    let rounds = version().await - before;
    let unasked = began.elapsed().as_secs_f64() / LOOK_EVERY.as_secs_f64();
    assert!(rounds as f64 <= unasked + 2.0, "{rounds} transactions");
    sqlx::query("SELECT pgsemaphore.settle_client('k', 'busy', force => true)")
        .execute(db.pool())
        .await
        .expect("settled");
    let reply = calls::heard(parked).await.ok();
    assert_eq!(reply["grants"][0]["permits"], 1, "{reply}");
    assert_eq!(verify(&db).await, []);
}

/// O-04: a look at a parked sync only reads: it takes no lock and leaves no trace in the key's row.
#[tokio::test]
async fn looks_at_a_parked_sync_write_nothing() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("*", json!({"limit": 1, "round_wait_ms": 0, "round_period_ms": 0})).await;
    let caller = holder.caller();
    let _ = caller.insist("k", &message("c", json!({}))).await;
    let parked = park_sync(&caller, "k");
    let looks = async || {
        let metrics = Metrics::of(holder.url()).await;
        metrics.value("pgsemaphore_rounds_total{kind=\"sync\",outcome=\"looked_at\"}")
    };
    let row = async || {
        let query =
            "SELECT ctid::text || xmin || ' ' || xmax FROM pgsemaphore_data.semaphores WHERE key = 'k'";
        sqlx::query_scalar::<_, String>(query).fetch_one(db.pool()).await.expect("the key's row")
    };
    until("it is parked", async || Metrics::of(holder.url()).await.value("pgsemaphore_parked_calls") == 1.0)
        .await;
    let (row_before, looks_before) = (row().await, looks().await);
    until("it is looked at twice", async || looks().await >= looks_before + 2.0).await;
    assert_eq!(row().await, row_before);
    parked.abort();
}
