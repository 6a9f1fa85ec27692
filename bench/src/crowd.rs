//! Many clients on one key: the database does a round and a batch of syncs at a time, however many call.

use crate::cluster::{Cluster, connect};
use crate::report::{Report, short, table, title};
use futures_util::future::join_all;
use pgsemaphore_tests::{Caller, Proxy, Serve};
use queue_client::QueueClient;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: [usize; 3] = [5, 50, 500];
const LENGTH: Duration = Duration::from_secs(3);
const WARM_UP: Duration = Duration::from_secs(1);

struct Crowd {
    admissions: f64,
    calls: f64,
    transactions: f64,
}

pub async fn run(cluster: &Cluster, report: &mut Report) {
    title("Transactions of one key, by its clients");
    println!(
        "A limit of 100, items of about 1.4 ms, one worker a client, grants only; each second. A transaction is a"
    );
    println!("round or a batch of syncs, of which at most one each is under way.\n");
    let mut rows = Vec::new();
    let mut rates = Vec::new();
    for clients in CLIENTS {
        let Crowd { admissions, calls, transactions } = crowd(cluster, clients).await;
        rates.push(transactions);
        let per_call = short(transactions / calls);
        let [admissions, calls, transactions] =
            [admissions, calls, transactions].map(|number| format!("{number:.0}"));
        rows.push([clients.to_string(), admissions, calls, transactions, per_call]);
    }
    table(&["clients", "admissions", "calls", "transactions", "transactions per call"], rows);
    // A transaction is a round or a batch of syncs: calls must not make more of them.
    let (few, many) = (rates[CLIENTS.len() - 2], rates[CLIENTS.len() - 1]);
    let wanted = "bounded by rounds and batches of syncs: no more transactions than of 50 clients";
    report.target(
        "500 clients on one key",
        wanted,
        format!("{many:.0}/s, of 50 {few:.0}/s"),
        many <= few * 1.1,
    );
}

async fn crowd(cluster: &Cluster, clients: usize) -> Crowd {
    let database = cluster.migrated().await;
    let holder = Serve::start(&database).await;
    let policy = json!({"limit": 100, "round_wait_ms": 0, "round_period_ms": 0});
    Caller::of(holder.url()).policy("*", &policy).await;
    let proxy = Proxy::before(holder.url()).await;
    let url = proxy.through(holder.url());
    let (ended, admitted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let tasks = (0..clients).map(|_| {
        let client = QueueClient::builder().url(&url).build().expect("a client");
        tokio::spawn(work(client, ended.clone(), admitted.clone()))
    });
    let tasks: Vec<_> = tasks.collect();
    tokio::time::sleep(WARM_UP).await;
    let count = async || {
        let (version, at) = (version(&database).await, Instant::now());
        (at, [admitted.load(Ordering::Relaxed), proxy.calls(), version])
    };
    let (start, before) = count().await;
    tokio::time::sleep(LENGTH).await;
    let (end, after) = count().await;
    ended.store(true, Ordering::Relaxed);
    for task in join_all(tasks).await {
        task.expect("no panic");
    }
    let seconds = (end - start).as_secs_f64();
    let [admissions, calls, transactions] = [0, 1, 2].map(|n| (after[n] - before[n]) as f64 / seconds);
    Crowd { admissions, calls, transactions }
}

async fn work(client: QueueClient, ended: Arc<AtomicBool>, admitted: Arc<AtomicU64>) {
    let group = client.semaphore("k").group("");
    while !ended.load(Ordering::Relaxed) {
        let permit = group.acquire().await.expect("a permit");
        admitted.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(1)).await;
        drop(permit);
    }
    client.drain().await.expect("everything goes back");
}

/// Rises by one in each transaction of the key.
async fn version(database: &str) -> u64 {
    let mut connection = connect(database).await;
    let query = sqlx::query_scalar(
        "SELECT coalesce(max(version), 0) FROM pgsemaphore_data.semaphores WHERE key = 'k'",
    );
    let version: i64 = query.fetch_one(&mut connection).await.expect("the key's version");
    u64::try_from(version).expect("it rises from 0")
}
