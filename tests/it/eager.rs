//! An eager policy serves demand that fits at once, and nobody else's place in the queue is taken.

use pgsemaphore_tests::{Db, InProcess, message, until};
use serde_json::{Value, json};

/// Waits and periods that no test outlives.
fn policy() -> Value {
    json!({
        "limit": 5, "round_wait_ms": 60_000, "round_period_ms": 3_600_000, "grant_timeout_ms": 3_600_000, "eager": true
    })
}

fn wants(client: &str, count: u64) -> Value {
    message(client, json!({"demand": [{"group": "", "count": count}]}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demand_that_fits_is_served_at_once_and_other_demand_waits() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("*", policy()).await;
    let caller = holder.caller();
    // However close rounds are.
    for client in ["a", "b"] {
        let reply = caller.insist("k", &wants(client, 2)).await;
        assert_eq!(reply["grants"][0]["permits"], 2, "{reply}");
    }
    // What does not fit whole waits for its round, and is given nothing of what is left.
    let waits = {
        let caller = caller.clone();
        tokio::spawn(async move { caller.request("k", &wants("c", 2)).await })
    };
    until("it was tried", async || holder.holder().store().attempts().begun > 5).await;
    let _ = caller.insist_sync("k", &message("a", json!({}))).await;
    assert_eq!(holder.usage("k").await["grants"], 4);

    // While somebody waits, nobody is served before it.
    let other = {
        let caller = caller.clone();
        tokio::spawn(async move { caller.request("k", &wants("d", 1)).await })
    };
    until("both wait", async || caller.insist_sync("k", &message("a", json!({}))).await["round"] != 0).await;
    assert_eq!(holder.usage("k").await["grants"], 4);
    assert!(!waits.is_finished() && !other.is_finished());
    waits.abort();
    other.abort();
}
