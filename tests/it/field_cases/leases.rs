//! Leases where permits are few.

use std::time::Duration;

use pgsemaphore_tests::{Db, InProcess, Truth, verify, within_reason};
use queue_client::{QueueClient, Semaphore};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Few permits, and who may have how many of them at once.
fn policies() -> [(u64, Value); 5] {
    [
        (1, json!({"provisioning": "strict", "permits_per_lease": 1})),
        (2, json!({"provisioning": "strict", "permits_per_lease": 64})),
        (3, json!({"provisioning": "strict", "permits_per_lease": 64})),
        (2, json!({"provisioning": "under", "lease_reserve": 1, "permits_per_lease": 64})),
        (3, json!({"provisioning": "under", "lease_reserve": 3, "permits_per_lease": 1})),
    ]
}

async fn work(semaphore: Semaphore, truth: Truth) {
    for _ in 0..3 {
        let permit = semaphore.acquire("").await.expect("a permit");
        let running = truth.start(semaphore.key(), "");
        tokio::time::sleep(Duration::from_millis(2)).await;
        drop(running);
        drop(permit);
    }
}

/// Case 32: a few permits are shared out so that everybody gets none, or who has nothing to do sits on them until the
/// lease ends, in half an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_candidates_of_one_to_three_permits_are_all_served() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let truth = Truth::default();
    let clients: Vec<QueueClient> = (0..20)
        .map(|n| QueueClient::builder().client_id(format!("c{n}")).url(holder.url()).build())
        .collect::<Result<_, _>>()
        .expect("clients");
    let mut items = JoinSet::new();
    for (n, (limit, mut policy)) in policies().into_iter().enumerate() {
        let key = format!("k{n}");
        (policy["limit"], policy["round_wait_ms"], policy["round_period_ms"]) =
            (json!(limit), json!(5), json!(10));
        holder.policy(&key, policy).await;
        truth.limit(&key, None, limit);
        for client in &clients {
            items.spawn(work(client.semaphore(&key), truth.clone()));
        }
    }
    within_reason("all are served", items.join_all()).await;
    for client in &clients {
        within_reason("a drain", client.drain()).await.expect("drained");
    }
    assert_eq!(truth.violations(), [] as [String; 0]);
    for n in 0..policies().len() {
        let usage = holder.usage(&format!("k{n}")).await;
        assert_eq!((&usage["grants"], &usage["leases"]), (&json!(0), &json!(0)), "{usage}");
    }
    assert_eq!(verify(&db).await, []);
}
