//! All holders die at once.

use std::time::Duration;

use futures_util::future::join_all;
use pgsemaphore_tests::{Caller, Db, Serve, message, until, verify, within_reason};
use serde_json::{Value, json};

const KEYS: usize = 12;

/// All that the views say of permits.
async fn stored(db: &Db) -> Vec<String> {
    let query = "SELECT g::text FROM pgsemaphore.grants AS g
        UNION ALL SELECT l::text FROM pgsemaphore.leases AS l
        UNION ALL SELECT (key, permit_limit, grants, leases, available)::text FROM pgsemaphore.usage
        UNION ALL SELECT (key, grp, grants, leases)::text FROM pgsemaphore.group_usage
        UNION ALL SELECT (key, client_id, generation, grants, leases)::text FROM pgsemaphore.client_usage
        ORDER BY 1";
    sqlx::query_scalar(query).fetch_all(db.pool()).await.expect("the views")
}

/// A client with one grant and one lease of two permits each, and what it says of them, which differs from key to key.
async fn holds(caller: &Caller, key: usize) -> Value {
    let name = format!("k{key}");
    let wants = json!({"demand": [{"group": "", "count": 2}], "leases": []});
    let reply = caller.insist(&name, &message("a", wants)).await;
    let (grant, lease) = (&reply["grants"][0], &reply["leases"][0]);
    assert_eq!((&grant["permits"], &lease["permits"]), (&json!(2), &json!(2)), "{reply}");
    let (claimed, released) = [(0, 0), (2, 0), (2, 1)][key % 3];
    let (drawn, stopped) = [(0, false), (1, false), (1, true), (2, true)][key % 4];
    let reports = json!({
        "seen": reply["round"],
        "grants": [{"id": grant["id"], "claimed": claimed, "released": released}],
        "leases": [{"id": lease["id"], "drawn": drawn, "released": 0, "stopped": stopped}]
    });
    let _ = caller.insist_sync(&name, &message("a", reports.clone())).await;
    reports
}

/// The holders that serve next.
async fn start(db: &Db, number: usize) -> (Vec<Serve>, Vec<Caller>) {
    let holders = join_all((0..number).map(|_| Serve::start(db.url()))).await;
    let callers = holders.iter().map(|holder| Caller::of(holder.url())).collect();
    (holders, callers)
}

/// Case 43: what a holder builds up at its start lacks the first block of each key, or has again what ended long ago.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_all_holders_in_their_rounds_changes_nothing_that_counts() {
    let db = Db::new().await;
    let (mut holders, mut callers) = start(&db, 1).await;
    let policy = json!({
        "limit": 5, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000,
        "provisioning": "strict", "permits_per_lease": 2
    });
    callers[0].policy("*", &policy).await;
    let held = join_all((0..KEYS).map(|key| holds(&callers[0], key))).await;
    // Another client has all the rest, and wants more.
    let wants = |seen: &Value| message("b", json!({"seen": seen, "demand": [{"group": "", "count": 9}]}));
    let mut filled = Vec::new();
    for key in 0..KEYS {
        filled.push(callers[0].insist(&format!("k{key}"), &wants(&json!(0))).await);
    }
    let full = "SELECT bool_and(available = 0) FROM pgsemaphore.usage";
    assert!(sqlx::query_scalar::<_, bool>(full).fetch_one(db.pool()).await.expect("the view"));
    let before = stored(&db).await;

    for (attempt, next) in [1, 3, 1, 3, 2].into_iter().enumerate() {
        let calls: Vec<_> = (0..3 * KEYS)
            .map(|n| {
                let (caller, message) =
                    (callers[n % callers.len()].clone(), wants(&filled[n % KEYS]["round"]));
                tokio::spawn(async move { caller.request(&format!("k{}", n % KEYS), &message).await })
            })
            .collect();
        // Any moment is as good as any other.
        tokio::time::sleep(Duration::from_millis(7 * attempt as u64)).await;
        holders.iter().for_each(|holder| holder.kill());
        for call in calls {
            let _unanswered = within_reason("its connection ends", call).await.expect("no panic");
        }
        until("their sessions have ended", async || {
            let query = sqlx::query_scalar(
                "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND application_name = 'pgsemaphore'",
            );
            let sessions: i64 = query.fetch_one(db.pool()).await.expect("pg_stat_activity");
            sessions == 0
        })
        .await;
        assert_eq!(stored(&db).await, before);
        (holders, callers) = start(&db, next).await;
    }
    assert_eq!(verify(&db).await, []);

    for (key, reports) in held.into_iter().enumerate() {
        release(&callers[0], &format!("k{key}"), reports, &filled[key]).await;
    }
    assert_eq!(verify(&db).await, []);
}

/// Everything of both clients ends, and is accepted.
async fn release(caller: &Caller, key: &str, mut reports: Value, filled: &Value) {
    let grant = &mut reports["grants"][0];
    (grant["claimed"], grant["released"]) = (json!(2), json!(2));
    let lease = &mut reports["leases"][0];
    (lease["released"], lease["stopped"]) = (lease["drawn"].clone(), json!(true));
    let reply = caller.insist_sync(key, &message("a", reports)).await;
    for block in [&reply["grants"][0], &reply["leases"][0]] {
        assert_eq!(block["status"], "settled", "{reply}");
    }
    let rest = filled["grants"].as_array().expect("grants").iter();
    let rest: Vec<_> = rest
        .map(|grant| json!({"id": grant["id"], "claimed": grant["permits"], "released": grant["permits"]}))
        .collect();
    let reply =
        caller.insist_sync(key, &message("b", json!({"seen": filled["round"], "grants": rest}))).await;
    assert_eq!(reply["grants"][0]["status"], "settled", "{reply}");
    let usage = caller.usage(key).await;
    assert_eq!((&usage["grants"], &usage["leases"]), (&json!(0), &json!(0)), "{usage}");
}
