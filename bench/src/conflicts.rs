//! False conflicts: 1000 keys on small tables, whose transactions must not abort each other.

use crate::cluster::Cluster;
use crate::report::{Report, title};
use futures_util::future::join_all;
use pgsemaphore_tests::{InProcess, Worker};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const KEYS: u64 = 1000;
/// As many as the holder has connections.
const CALLERS: usize = 16;
const ITEMS_PER_KEY: u64 = 3;

pub async fn run(cluster: &Cluster, report: &mut Report) {
    let holder = Arc::new(InProcess::start(&cluster.migrated().await).await);
    holder.policy("*", json!({"limit": 3, "round_wait_ms": 0, "round_period_ms": 0})).await;
    // New keys insert rows; what counts is how it goes on.
    items(&holder, 1).await;
    let before = holder.holder().store().attempts();
    items(&holder, ITEMS_PER_KEY).await;
    let after = holder.holder().store().attempts();
    let (begun, repeated) = (after.begun - before.begun, after.repeated - before.repeated);
    holder.holder().stop().await;
    let percent = 100.0 * repeated as f64 / begun as f64;
    title("False conflicts");
    println!(
        "{KEYS} keys, {CALLERS} callers and connections, small tables: {repeated} of {begun} transactions were"
    );
    println!("repeated, {percent:.2} %.");
    let wanted = "under 0.5 % of transactions repeated";
    report.target("1000 keys on small tables", wanted, format!("{percent:.2} %"), percent < 0.5);
}

/// One item after the other, `times` of each key.
async fn items(holder: &Arc<InProcess>, times: u64) {
    let next = Arc::new(AtomicU64::new(0));
    let callers = (0..CALLERS).map(|_| {
        let (holder, next) = (holder.clone(), next.clone());
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= times * KEYS {
                    return;
                }
                item(&holder, &format!("k{}", number % KEYS)).await;
            }
        })
    });
    for caller in join_all(callers).await {
        caller.expect("no panic");
    }
}

async fn item(holder: &InProcess, key: &str) {
    let mut worker = Worker::new("c");
    worker.hear(&insist(holder, key, "request", worker.wants(1)).await);
    worker.release();
    worker.hear(&insist(holder, key, "sync", worker.reports()).await);
}

/// Asks until there is an answer: on a machine that is too busy, connections time out.
async fn insist(holder: &InProcess, key: &str, endpoint: &str, message: Value) -> Value {
    let path = format!("/v1/semaphores/{key}/{endpoint}");
    loop {
        match holder.send(reqwest::Method::POST, &path, &message).await {
            (200, reply) => return reply,
            (503, _) => tokio::time::sleep(Duration::from_millis(10)).await,
            refused => panic!("{refused:?}"),
        }
    }
}
