//! Leases, end to end: what a client that speaks HTTP sees.

use pgsemaphore_tests::{Db, InProcess, message, until, verify};
use serde_json::{Value, json};

const KEY: &str = "account:42";

async fn holder(policy: Value) -> (Db, InProcess) {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let mut all = json!({"round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 60000});
    let fields = policy.as_object().expect("an object").clone();
    all.as_object_mut().expect("an object").extend(fields);
    holder.policy(KEY, all).await;
    (db, holder)
}

fn wants(count: u64) -> Value {
    json!({"demand": [{"group": "", "count": count}], "grants": [], "leases": []})
}

async fn request(holder: &InProcess, client: &str, fields: Value) -> Value {
    let (status, reply) = holder.request(KEY, message(client, fields)).await;
    assert_eq!(status, 200, "{reply}");
    reply
}

async fn sync(holder: &InProcess, client: &str, fields: Value) -> Value {
    let (status, reply) = holder.sync(KEY, message(client, fields)).await;
    assert_eq!(status, 200, "{reply}");
    reply
}

fn lease(reply: &Value) -> &Value {
    &reply["leases"][0]
}

fn report(reply: &Value, id: &Value, drawn: u64, released: u64, stopped: bool) -> Value {
    let report = json!({"id": id, "drawn": drawn, "released": released, "stopped": stopped});
    json!({"seen": reply["round"], "grants": [], "leases": [report]})
}

#[tokio::test]
async fn a_lease_is_what_grants_left_and_is_settled_when_everything_came_back() {
    let (db, holder) = holder(json!({"limit": 10, "provisioning": "strict"})).await;
    let reply = request(&holder, "a", wants(4)).await;
    assert_eq!(reply["grants"][0]["permits"], 4);
    assert_eq!(lease(&reply)["permits"], 6);
    assert_eq!(lease(&reply)["status"], "active");
    assert_eq!(holder.usage(KEY).await["leases"], 6);

    let id = lease(&reply)["id"].clone();
    let drawn = sync(&holder, "a", report(&reply, &id, 5, 2, false)).await;
    assert_eq!((&lease(&drawn)["drawn"], &lease(&drawn)["released"]), (&json!(5), &json!(2)));
    assert_eq!(holder.usage(KEY).await["leases"], 4);
    let stopped = sync(&holder, "a", report(&reply, &id, 5, 2, true)).await;
    assert_eq!((&lease(&stopped)["status"], &lease(&stopped)["ttl_ms"]), (&json!("retired"), &json!(0)));
    assert_eq!(holder.usage(KEY).await["leases"], 3);
    let settled = sync(&holder, "a", report(&reply, &id, 5, 5, true)).await;
    assert_eq!(lease(&settled)["status"], "settled");
    let gone = sync(&holder, "a", report(&reply, &id, 5, 5, true)).await;
    assert_eq!(gone["leases"], json!([{"id": id, "status": "settled"}]));
    assert_eq!(holder.usage(KEY).await["leases"], 0);
    assert_eq!(verify(&db).await, []);
}

/// Lowering the limit from 20 to 4 with 15 claimed and a lease of 5, of which 2 are drawn.
#[tokio::test]
async fn lowering_the_limit_retires_leases_and_leaves_running_work_alone() {
    let (db, holder) = holder(json!({"limit": 20, "provisioning": "strict"})).await;
    let reply = request(&holder, "a", wants(15)).await;
    let (grant, lease_id) = (reply["grants"][0]["id"].clone(), lease(&reply)["id"].clone());
    assert_eq!(lease(&reply)["permits"], 5);
    let mut running = report(&reply, &lease_id, 2, 0, false);
    running["grants"] = json!([{"id": grant, "claimed": 15}]);
    sync(&holder, "a", running.clone()).await;

    holder
        .policy(KEY, json!({"limit": 4, "provisioning": "strict", "round_wait_ms": 0, "round_period_ms": 0}))
        .await;
    let blocked = request(&holder, "b", wants(1)).await;
    assert_eq!(blocked["blocked"], json!([{"group": "", "count": 1, "reason": "limit"}]));
    let told = sync(&holder, "a", running.clone()).await;
    assert_eq!(lease(&told)["status"], "retired");
    assert_eq!(
        holder.usage(KEY).await["available"],
        4 - 20,
        "a retired lease counts whole until it is stopped"
    );

    running["leases"][0]["stopped"] = json!(true);
    sync(&holder, "a", running.clone()).await;
    assert_eq!(holder.usage(KEY).await["available"], 4 - 17, "the three undrawn permits are back");
    for released in 1..=15 {
        let reply = request(&holder, "b", wants(1)).await;
        let admitted = reply["grants"].as_array().is_some_and(|grants| !grants.is_empty());
        let usage = 17 - (released - 1);
        assert_eq!(admitted, usage < 4, "usage {usage}");
        if admitted {
            break;
        }
        running["grants"][0]["released"] = json!(released);
        sync(&holder, "a", running.clone()).await;
    }
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn a_parked_sync_hears_at_once_that_others_wait() {
    let (_db, holder) = holder(json!({"limit": 3, "provisioning": "strict"})).await;
    let holder = std::sync::Arc::new(holder);
    let reply = request(&holder, "idle", wants(1)).await;
    let grant = reply["grants"][0]["id"].clone();
    let mut all = report(&reply, &lease(&reply)["id"], 0, 0, false);
    all["grants"] = json!([{"id": grant, "claimed": 1, "released": 1}]);
    let known = sync(&holder, "idle", all.clone()).await;
    assert_eq!(known["contended"], false);

    all["grants"] = json!([]);
    all["wait_ms"] = json!(60_000);
    all["known_state"] = known["state"].clone();
    let (parking, told) = (holder.clone(), all.clone());
    let parked = tokio::spawn(async move { sync(&parking, "idle", told).await });
    // Whether the sync is parked already or only arrives now: it is answered when its state differs.
    let waiting = request(&holder, "busy", wants(3)).await;
    assert_eq!(waiting["blocked"][0]["reason"], "limit");
    let recalled = parked.await.expect("the parked call");
    assert_eq!(recalled["contended"], true);
    assert_ne!(recalled["state"], known["state"]);

    sync(&holder, "idle", report(&reply, &lease(&reply)["id"], 0, 0, true)).await;
    let served = request(&holder, "busy", wants(3)).await;
    let permits = served["grants"].as_array().expect("grants").iter().map(|grant| &grant["permits"]);
    assert_eq!(permits.filter_map(Value::as_u64).sum::<u64>(), 3);
}

#[tokio::test]
async fn a_newer_parked_sync_replaces_the_older_one_of_its_process() {
    let (_db, holder) = holder(json!({"limit": 3, "provisioning": "strict"})).await;
    let holder = std::sync::Arc::new(holder);
    let reply = request(&holder, "a", wants(1)).await;
    let park = json!({"seen": reply["round"], "wait_ms": 60_000, "known_state": reply["state"]});
    let spawn = || {
        let (holder, park) = (holder.clone(), park.clone());
        tokio::spawn(async move { sync(&holder, "a", park).await })
    };
    let (first, second) = (spawn(), spawn());
    let (answered, open) = match futures_util::future::select(first, second).await {
        futures_util::future::Either::Left((answered, open)) => (answered, open),
        futures_util::future::Either::Right((answered, open)) => (answered, open),
    };
    assert_eq!(answered.expect("one is answered")["state"], reply["state"]);
    assert!(!open.is_finished(), "the other one stays parked");
    open.abort();
}

#[tokio::test]
async fn a_lease_that_is_silent_for_its_ttl_is_retired_and_still_counts() {
    let policy = json!({"limit": 3, "provisioning": "strict", "lease_ttl_ms": 500});
    let (db, holder) = holder(policy).await;
    let reply = request(&holder, "silent", wants(1)).await;
    until("the lease is retired", async || {
        request(&holder, "other", wants(1)).await;
        let status: Option<String> = sqlx::query_scalar("SELECT status FROM pgsemaphore.leases")
            .fetch_optional(db.pool())
            .await
            .expect("the view of leases");
        status.as_deref() == Some("retired")
    })
    .await;
    assert_eq!(holder.usage(KEY).await["leases"], 2);
    let told = sync(&holder, "silent", report(&reply, &lease(&reply)["id"], 1, 0, false)).await;
    assert_eq!(lease(&told)["status"], "retired");
    assert_eq!(verify(&db).await, []);
}
