//! A message of which some reports are good.

use pgsemaphore_tests::{Caller, Db, InProcess, message, until, verify};
use serde_json::{Value, json};

const KEY: &str = "k";

/// Sets how long grants may be unclaimed, from the next round on.
async fn timeout(holder: &InProcess, millis: u64) {
    let policy = json!({
        "limit": 100, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": millis
    });
    holder.policy(KEY, policy).await;
}

/// The latest round: whoever has seen it is told of nothing but what it reports, and of what is new.
async fn round(caller: &Caller) -> Value {
    caller.insist_sync(KEY, &message("w", json!({}))).await["round"].take()
}

/// The id of a new grant of three permits.
async fn grant(caller: &Caller, group: &str) -> Value {
    let demand = json!({"seen": round(caller).await, "demand": [{"group": group, "count": 3}]});
    let reply = caller.insist(KEY, &message("w", demand)).await;
    let new = &reply["grants"][0];
    assert_eq!((&new["group"], &new["permits"]), (&json!(group), &json!(3)), "{reply}");
    new["id"].clone()
}

async fn says(caller: &Caller, grants: Value) -> Value {
    let reports = json!({"seen": round(caller).await, "grants": grants});
    caller.insist_sync(KEY, &message("w", reports)).await["grants"].take()
}

async fn status(db: &Db, id: &Value) -> Option<String> {
    let query = sqlx::query_scalar("SELECT status FROM pgsemaphore.grants WHERE id = $1");
    query.bind(id.as_str()).fetch_optional(db.pool()).await.expect("the view")
}

/// Case 36: one unknown block makes the whole call fail, and the good releases in it are lost; or a call succeeds that
/// released what has expired.
#[tokio::test]
async fn each_report_has_its_own_verdict_and_good_ones_count_once() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let caller = holder.caller();
    timeout(&holder, 3_600_000).await;
    let (good, settled) = (grant(&caller, "good").await, grant(&caller, "settled").await);
    let all_back = says(&caller, json!([{"id": settled, "claimed": 3, "released": 3}])).await;
    assert_eq!(all_back[0]["status"], "settled");
    timeout(&holder, 100).await;
    let reclaimed = grant(&caller, "reclaimed").await;
    until("it is reclaimed", async || status(&db, &reclaimed).await.is_none()).await;
    // Of this one two of three are claimed in time, if not at once then later.
    timeout(&holder, 1000).await;
    let mut expired = Value::Null;
    until("two are claimed in time", async || {
        expired = grant(&caller, "expired").await;
        says(&caller, json!([{"id": expired, "claimed": 2}])).await[0]["claimed"] == 2
    })
    .await;
    until("it expires", async || status(&db, &expired).await.as_deref() == Some("expired")).await;

    let reports = json!([
        {"id": good, "claimed": 3, "released": 1},
        {"id": reclaimed, "claimed": 3, "released": 1},
        {"id": expired, "claimed": 3, "released": 1},
        {"id": "17-0", "claimed": 3, "released": 3},
        {"id": settled, "claimed": 3, "released": 3}
    ]);
    for _ in 0..2 {
        let verdicts = says(&caller, reports.clone()).await;
        let of = |id: &Value| {
            let verdicts = verdicts.as_array().expect("verdicts");
            let verdict = verdicts.iter().find(|verdict| verdict["id"] == *id).expect("a verdict");
            ["status", "permits", "claimed", "released"].map(|field| verdict[field].clone())
        };
        assert_eq!(of(&good), [json!("active"), json!(3), json!(3), json!(1)]);
        let gone = [json!("not_found"), Value::Null, Value::Null, Value::Null];
        for id in [&reclaimed, &json!("17-0"), &settled] {
            assert_eq!(of(id), gone, "{id}");
        }
        // The one that came back is the one that was claimed too late.
        assert_eq!(of(&expired), [json!("expired"), json!(2), json!(2), json!(0)]);
        assert_eq!(caller.usage(KEY).await["grants"], 2 + 2);
        assert_eq!(verify(&db).await, []);
    }
}
