//! A client's next process takes the place of the one before, which is refused from then on.

use pgsemaphore::access::Keys;
use pgsemaphore_allocation::{ClientId, SemaphoreKey};
use pgsemaphore_tests::{Api, Db, InProcess, Metrics, faults, message, until, verify};
use queue_wire::{TakenOver, Takeover};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

async fn holder(db: &Db) -> InProcess {
    let holder = InProcess::start(db.url()).await;
    let policy = json!({
        "limit": 5, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000, "provisioning": "strict"
    });
    holder.policy("*", policy).await;
    holder
}

fn process(generation: u64, fields: Value) -> Value {
    let mut message = message("worker", fields);
    (message["generation"], message["process"]) = (generation.into(), format!("p{generation}").into());
    message
}

/// Two items run, and the rest of the budget is a lease.
async fn holding(holder: &InProcess, key: &str) -> Value {
    let demand = json!([{"group": "", "count": 2}]);
    let (_, reply) = holder.request(key, process(1, json!({"demand": demand, "leases": []}))).await;
    let (grant, lease) = (&reply["grants"][0]["id"], &reply["leases"][0]["id"]);
    let claimed = json!({
        "seen": reply["round"], "grants": [{"id": grant, "claimed": 2}], "leases": [{"id": lease, "drawn": 1}]
    });
    let (status, reply) = holder.sync(key, process(1, claimed)).await;
    assert_eq!(status, 200, "{reply}");
    reply
}

async fn used(holder: &InProcess, key: &str) -> (u64, u64) {
    let usage = holder.usage(key).await;
    (usage["grants"].as_u64().expect("grants"), usage["leases"].as_u64().expect("leases"))
}

#[tokio::test]
async fn the_earlier_process_is_refused_and_what_it_held_is_free() {
    let db = Db::new().await;
    let holder = holder(&db).await;
    let before = holding(&holder, "k").await;
    let (status, reply) = holder.sync("k", process(2, json!({}))).await;
    assert_eq!((status, &reply["grants"], &reply["leases"]), (200, &json!([]), &json!([])));
    assert_eq!(used(&holder, "k").await, (0, 0));
    for fields in [json!({"grants": [{"id": before["grants"][0]["id"], "claimed": 2}]}), json!({})] {
        let (status, problem) = holder.sync("k", process(1, fields)).await;
        assert_eq!(
            (status, &problem["code"], &problem["generation"]),
            (409, &json!("client_fenced"), &json!(3))
        );
    }
    let mut other = process(2, json!({}));
    other["process"] = json!("another");
    assert_eq!(holder.request("k", other).await.0, 409, "of one generation only one process speaks");
    let seen: i64 = sqlx::query_scalar("SELECT generation FROM pgsemaphore.client_usage")
        .fetch_one(db.pool())
        .await
        .expect("the view");
    assert_eq!(seen, 2);
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn or_its_successor_goes_on_with_it() {
    let db = Db::new().await;
    let holder = holder(&db).await;
    let before = holding(&holder, "k").await;
    let (status, reply) = holder.sync("k", process(2, json!({"resume": true}))).await;
    assert_eq!(status, 200);
    let (grant, lease) = (&reply["grants"][0], &reply["leases"][0]);
    assert_eq!((&grant["id"], &grant["claimed"]), (&before["grants"][0]["id"], &json!(2)));
    assert_eq!(
        (&lease["status"], &lease["drawn"], &lease["ttl_ms"]),
        (&json!("retired"), &json!(1), &json!(0))
    );
    assert_eq!(used(&holder, "k").await, (2, 3));
    let done = json!({
        "seen": reply["round"],
        "grants": [{"id": grant["id"], "claimed": 2, "released": 2}],
        "leases": [{"id": lease["id"], "drawn": 2, "released": 1, "stopped": true}],
    });
    let (_, reply) = holder.sync("k", process(2, done)).await;
    assert_eq!(reply["grants"][0]["status"], "settled");
    assert_eq!(used(&holder, "k").await, (0, 1));
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn on_all_keys_at_once() {
    let db = Db::new().await;
    let holder = holder(&db).await;
    for key in ["a", "b", "c"] {
        let _ = holding(&holder, key).await;
    }
    let (status, _) = holder.sync("c", process(9, json!({"resume": true}))).await;
    assert_eq!(status, 200);
    let api = Api::new(holder.url());
    let body = json!({"v": 1, "generation": 5, "process": "p5", "resume": false}).to_string();
    let taken = api.post("/v1/clients/worker/takeover", &body).await;
    let expected = json!({
        "v": 1,
        "keys": [{"key": "a", "grants": 2, "leases": 3}, {"key": "b", "grants": 2, "leases": 3}],
        "fenced": [{"key": "c", "generation": 10}],
    });
    assert_eq!((taken.status, taken.body), (200, expected));
    assert_eq!(used(&holder, "a").await, (0, 0));
    assert_eq!(used(&holder, "c").await, (2, 3));
    let again = api.post("/v1/clients/worker/takeover", &body).await;
    assert_eq!((again.status, &again.body["keys"]), (200, &json!([])));
    let acts: Vec<(String, i64, i64)> = sqlx::query_as(
        "SELECT key, generation, grants + leases FROM pgsemaphore.audit WHERE action = 'takeover' ORDER BY key",
    )
    .fetch_all(db.pool())
    .await
    .expect("the view");
    assert_eq!(acts, [("a".into(), 5, 5), ("b".into(), 5, 5), ("c".into(), 9, 5)]);
    assert_eq!(verify(&db).await, []);
    for (body, field) in [
        (r#"{"v": 1, "process": "p"}"#, "/generation"),
        (r#"{"v": 1, "generation": 0, "process": "p"}"#, "/generation"),
        (r#"{"v": 1, "generation": 1}"#, "/process"),
        (r#"{"v": 1, "generation": 1, "process": ""}"#, "/process"),
    ] {
        assert_eq!(api.post("/v1/clients/worker/takeover", body).await.field(), (400, field), "{body}");
    }
    assert_eq!(api.post("/v1/clients//takeover", &body).await.field(), (400, "client_id"));
}

fn take_over(holder: &InProcess) -> JoinHandle<TakenOver> {
    let takeover = Takeover { v: 1, generation: 2, process: "p2".to_owned(), resume: false };
    let holder = holder.holder().clone();
    tokio::spawn(async move {
        let taken = holder.take_over(ClientId::new("worker"), takeover, &Keys::all()).await;
        taken.expect("taken over")
    })
}

/// O-17: a takeover goes on without its caller, and its repetition joins it.
#[tokio::test]
async fn a_takeover_goes_on_when_its_caller_hangs_up_and_a_repetition_joins_it() {
    const KEYS: [&str; 3] = ["a", "b", "c"];
    let db = Db::new().await;
    let holder = holder(&db).await;
    for key in KEYS {
        let _ = holding(&holder, key).await;
    }
    let mut locks = Vec::new();
    for key in KEYS {
        locks.push(faults::RowLock::hold(db.url(), key).await);
    }
    let gone = take_over(&holder);
    faults::until_locked_out(db.pool(), 1).await;
    gone.abort();
    assert!(gone.await.is_err(), "the caller hung up");
    let again = take_over(&holder);
    for lock in locks {
        lock.release().await;
    }
    let taken = again.await.expect("no panic");
    assert_eq!(taken.keys.len(), KEYS.len(), "the reply names what the first call took over, too: {taken:?}");
    for key in KEYS {
        assert_eq!(used(&holder, key).await, (0, 0), "{key}");
    }

    for key in KEYS {
        let _ = holder.sync(key, process(2, json!({}))).await;
    }
    assert_eq!(take_over(&holder).await.expect("no panic").fenced, []);
    assert_eq!(verify(&db).await, []);
}

/// O-17: a takeover whose caller hangs up takes over the keys that it has not reached yet.
#[tokio::test]
async fn a_takeover_without_a_caller_reaches_every_key() {
    let db = Db::new().await;
    let holder = holder(&db).await;
    for key in ["a", "b", "c"] {
        let _ = holding(&holder, key).await;
    }
    let lock = faults::RowLock::hold(db.url(), "a").await;
    let gone = take_over(&holder);
    faults::until_locked_out(db.pool(), 1).await;
    gone.abort();
    lock.release().await;
    for key in ["a", "b", "c"] {
        until("the key is taken over", async || used(&holder, key).await == (0, 0)).await;
    }
    assert_eq!(verify(&db).await, []);
}

/// O-17: a settle goes on without its caller, and the holder counts what came back.
#[tokio::test]
async fn a_settle_goes_on_when_its_caller_hangs_up() {
    let db = Db::new().await;
    let holder = holder(&db).await;
    let _ = holding(&holder, "k").await;
    let lock = faults::RowLock::hold(db.url(), "k").await;
    let settle = {
        let holder = holder.holder().clone();
        let (key, client) = (SemaphoreKey::new("k"), ClientId::new("worker"));
        tokio::spawn(async move { holder.settle(&key, &client, None, "test", true).await })
    };
    faults::until_locked_out(db.pool(), 1).await;
    settle.abort();
    assert!(settle.await.is_err(), "the caller hung up");
    lock.release().await;
    let reclaimed = async || Metrics::of(holder.url()).await.value("pgsemaphore_permits_reclaimed_total");
    until("what came back is counted", async || reclaimed().await > 0.0).await;
    assert_eq!((reclaimed().await, used(&holder, "k").await), (5.0, (0, 0)));
    assert_eq!(verify(&db).await, []);
}
