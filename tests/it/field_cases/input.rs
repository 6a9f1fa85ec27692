//! Texts that cannot be stored, and sums at the edges.

use pgsemaphore_tests::{Api, Db, InProcess, Worker, message, verify};
use serde_json::{Value, json};

/// As much as a limit can be: 2^31 - 1.
const MOST: u64 = 2_147_483_647;

async fn claimed(db: &Db) -> i64 {
    let query = sqlx::query_scalar("SELECT coalesce(sum(claimed), 0)::bigint FROM pgsemaphore.grants");
    query.fetch_one(db.pool()).await.expect("the view")
}

/// Case 01: JSON can say what PostgreSQL's text can't hold. The whole message dies with a 500, and is sent for ever.
#[tokio::test]
async fn a_report_that_cannot_be_stored_is_refused_by_name_and_with_all_that_came_along() {
    const GROUPS: usize = 10;
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let (caller, api) = (holder.caller(), Api::new(holder.url()));
    holder.policy("*", json!({"limit": 100, "round_wait_ms": 0, "grant_timeout_ms": 3_600_000})).await;
    let demand: Vec<Value> = (0..GROUPS).map(|n| json!({"group": format!("g{n}"), "count": 1})).collect();
    let mut worker = Worker::new("w");
    worker.hear(&caller.insist("k", &message("w", json!({"demand": demand}))).await);
    worker.claim();
    let good = worker.reports().to_string();
    for (bad, target) in [(r"a\u0000b", "sync"), (r"\ud83d", "sync"), (r"a\u0000b", "request")] {
        let one_more = format!(r#"}},{{"id":"{bad}","claimed":1}}]"#);
        let body = good.replacen("}]", &one_more, 1);
        let answer = api.post(&format!("/v1/semaphores/k/{target}"), &body).await;
        assert_eq!(answer.code(), (400, "invalid_request"), "{body}");
        assert_eq!(answer.field().1, format!("/grants/{GROUPS}/id"));
        assert_eq!(claimed(&db).await, 0, "nothing of a message that is refused is applied");
    }
    worker.hear(&caller.insist_sync("k", &worker.reports()).await);
    assert_eq!((worker.running(), claimed(&db).await), (10, 10));
}

/// Case 03: a sum passes 2^31, or 2^32, and wraps, in SQL or in an addition.
#[tokio::test]
async fn sums_beyond_two_to_the_thirty_first_are_exact() {
    const GROUPS: u64 = 1000;
    const EACH: u64 = 1_000_000;
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let (caller, api) = (holder.caller(), Api::new(holder.url()));
    let policy = json!({
        "limit": MOST, "provisioning": "over", "lease_extra_ratio": 1, "permits_per_lease": EACH,
        "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000
    });
    holder.policy("k", policy).await;
    let ten_years_ms = 10 * 365 * 86_400_000_u64;
    for client in ["a", "b", "c"] {
        let entry =
            |n| json!({"group": format!("{client}{n}"), "count": EACH, "oldest_age_ms": ten_years_ms});
        let demand: Vec<Value> = (0..GROUPS).map(entry).collect();
        let _ = caller.insist("k", &message(client, json!({"demand": demand, "leases": []}))).await;
    }
    let usage = caller.usage("k").await;
    for (field, amount) in [("limit", MOST), ("extra", MOST), ("grants", MOST), ("leases", MOST)] {
        assert_eq!(usage[field], amount, "{field}");
    }
    assert_eq!(usage["available"], 0);
    let sum = |list: &str, field: &str| -> u64 {
        usage[list].as_array().expect("a list").iter().filter_map(|entry| entry[field].as_u64()).sum()
    };
    assert_eq!((sum("clients", "grants"), sum("clients", "leases")), (MOST, MOST));
    assert!(sum("blocked", "count") > 0);
    let lowered = sqlx::query("SELECT pgsemaphore.set_limit('k', 10)").execute(db.pool()).await;
    lowered.expect("it is set");
    assert_eq!(caller.usage("k").await["available"], 10 - i64::try_from(MOST).expect("31 bits"));
    assert_eq!(verify(&db).await, []);

    let mut back = 0;
    for client in ["a", "b", "c"] {
        let settled =
            api.post(&format!("/v1/semaphores/k/clients/{client}/settle"), r#"{"force": true}"#).await.body;
        back += settled["grants"].as_u64().expect("grants") + settled["leases"].as_u64().expect("leases");
    }
    assert_eq!(back, 2 * MOST);
    let reply = caller.insist("k", &message("d", json!({"demand": [{"count": EACH}]}))).await;
    assert_eq!(reply["grants"][0]["permits"], 10);
    assert_eq!(verify(&db).await, []);
}
