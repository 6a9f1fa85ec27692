//! A client's next process takes the place of the one before, which is refused from then on.

use pgsemaphore_tests::{Api, Db, InProcess, message, verify};
use serde_json::{Value, json};

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
