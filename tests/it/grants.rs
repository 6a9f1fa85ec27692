//! Grants, end to end: what a client that speaks HTTP sees.

use pgsemaphore_tests::{Db, InProcess, message, until, verify};
use serde_json::{Value, json};

const FAST: &str = r#"{"limit":5,"round_wait_ms":0,"round_period_ms":0,"grant_timeout_ms":60000}"#;

fn fast() -> Value {
    serde_json::from_str(FAST).expect("JSON")
}

fn wants(count: u64) -> Value {
    json!({"demand": [{"group": "", "count": count}]})
}

#[tokio::test]
async fn a_grant_is_claimed_released_and_settled() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("account:*", fast()).await;

    let (status, reply) = holder.request("account:42", message("a", wants(8))).await;
    assert_eq!(status, 200, "{reply}");
    let grant = &reply["grants"][0];
    assert_eq!(grant["permits"], 5);
    assert_eq!(grant["status"], "active");
    assert_eq!(reply["blocked"], json!([{"group": "", "count": 3, "reason": "limit"}]));
    assert_eq!(reply["contended"], true);

    let report = |claimed: u64, released: u64| json!({"seen": reply["round"], "grants": [{"id": grant["id"], "claimed": claimed, "released": released}]});
    let (_, claimed) = holder.sync("account:42", message("a", report(5, 2))).await;
    assert_eq!(claimed["grants"][0]["claimed"], 5);
    assert_eq!(claimed["grants"][0]["released"], 2);
    assert_eq!(holder.usage("account:42").await["grants"], 3);

    let (_, settled) = holder.sync("account:42", message("a", report(5, 5))).await;
    assert_eq!(settled["grants"][0]["status"], "settled");
    let (_, gone) = holder.sync("account:42", message("a", report(5, 5))).await;
    assert_eq!(gone["grants"], json!([{"id": grant["id"], "status": "not_found"}]));
    assert_eq!(holder.usage("account:42").await["available"], 5);
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn unclaimed_permits_come_back_without_a_request() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let mut policy = fast();
    policy["grant_timeout_ms"] = json!(100);
    holder.policy("k", policy).await;
    let (_, reply) = holder.request("k", message("a", wants(2))).await;
    assert_eq!(reply["grants"][0]["permits"], 2);
    until("the permits are back", async || holder.usage("k").await["grants"] == 0).await;
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn a_lost_reply_is_delivered_again_and_reserves_nothing_twice() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("k", fast()).await;
    let (_, lost) = holder.request("k", message("a", wants(2))).await;
    let (_, again) = holder.request("k", message("a", wants(2))).await;
    assert_eq!(again["grants"].as_array().expect("grants").len(), 1);
    assert_eq!(again["grants"][0]["id"], lost["grants"][0]["id"]);
    assert_eq!(again["blocked"], json!([]));
    assert_eq!(holder.usage("k").await["grants"], 2);
}

#[tokio::test]
async fn without_a_policy_nothing_is_written() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let (status, problem) = holder.request("nobody", message("a", wants(1))).await;
    assert_eq!((status, &problem["code"]), (404, &json!("semaphore_not_found")));
    let (status, _) = holder.sync("nobody", message("a", json!({}))).await;
    assert_eq!(status, 404);
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM pgsemaphore_data.semaphores")
        .fetch_one(db.pool())
        .await
        .expect("a count");
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn a_clock_that_was_set_back_holds_up_no_round() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let mut policy = fast();
    policy["round_period_ms"] = json!(3_600_000);
    holder.policy("k", policy).await;
    holder.request("k", message("a", wants(1))).await;
    sqlx::raw_sql("UPDATE pgsemaphore_data.semaphores SET last_round_at = now() + interval '1 hour'")
        .execute(db.pool())
        .await
        .expect("the last round is in the future");
    // One that knows of the last round by its row alone, and passes nothing on to the one that was there.
    let other = InProcess::start_apart(db.url()).await;
    let (status, reply) = other.request("k", message("b", wants(1))).await;
    assert_eq!((status, &reply["grants"][0]["permits"]), (200, &json!(1)));
}

#[tokio::test]
async fn what_is_blocked_is_explained_over_http_and_in_sql() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("k", fast()).await;
    holder.request("k", message("a", wants(8))).await;
    let usage = holder.usage("k").await;
    let blocked = &usage["blocked"][0];
    assert_eq!(
        (&blocked["client_id"], &blocked["count"], &blocked["reason"]),
        (&json!("a"), &json!(3), &json!("limit"))
    );
    let query =
        "SELECT count, now() - since BETWEEN '0' AND '1 hour' FROM pgsemaphore.blocked WHERE key = 'k'";
    let row: (i64, bool) = sqlx::query_as(query).fetch_one(db.pool()).await.expect("the view");
    assert_eq!(row, (3, true));
}
