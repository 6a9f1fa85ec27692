//! Many keys are busy at once under the default wait and period: rounds get slower and larger, and nobody is refused.

use pgsemaphore_tests::{Db, InProcess, Metrics, within_reason};
use queue_client::QueueClient;
use serde_json::json;
use tokio::task::JoinSet;

/// Keys that are busy; `make soak` says more.
fn keys() -> usize {
    std::env::var("BUSY_KEYS").ok().and_then(|keys| keys.parse().ok()).unwrap_or(100)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_keys_make_callers_wait_and_refuse_none() {
    const PROCESSES: usize = 2;
    const ITEMS: usize = 2;
    let keys = keys();
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("*", json!({"limit": 1})).await;
    let clients: Vec<QueueClient> = (0..PROCESSES)
        .map(|n| QueueClient::builder().url(holder.url()).client_id(format!("process-{n}")).build())
        .collect::<Result<_, _>>()
        .expect("clients");
    let mut items = JoinSet::new();
    for item in 0..keys * PROCESSES * ITEMS {
        let semaphore = clients[item % PROCESSES].semaphore(format!("key-{}", item / PROCESSES % keys));
        items.spawn(async move { drop(semaphore.acquire("").await.expect("a permit")) });
    }
    within_reason("every item gets its permit", items.join_all()).await;
    for client in &clients {
        within_reason("everything is given back", client.drain()).await.expect("drained");
    }
    let metrics = Metrics::of(holder.url()).await;
    let refused: Vec<_> = metrics
        .series()
        .filter(|series| {
            series.starts_with("pgsemaphore_requests_total") && series.contains("status=\"503\"")
        })
        .filter(|series| metrics.value(series) > 0.0)
        .collect();
    assert_eq!(refused, [] as [&str; 0]);
}
