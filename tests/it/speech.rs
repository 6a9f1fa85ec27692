//! How a process with many keys speaks to a holder.

use pgsemaphore_tests::{Db, InProcess, Process, Serve, until, verify, within_reason};
use queue_client::QueueClient;
use serde_json::json;
use tokio::task::JoinSet;

/// Far more than the connections that a client may open, and few enough for a database beside other tests.
const KEYS: i64 = 400;

/// Connections of this machine to a port of the holder, from the other side too.
fn connections_to(url: &str) -> usize {
    let port: u16 = url.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port");
    let remote = format!(":{port:04X} 01 ");
    let table = std::fs::read_to_string("/proc/self/net/tcp").expect("the kernel's table");
    table.lines().filter(|line| line.contains(&remote)).count()
}

/// O-29: the number of connections does not grow with the number of keys, and no call waits behind those that wait.
#[tokio::test]
async fn hundreds_of_keys_share_a_few_connections() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("full:*", json!({"limit": 0, "round_period_ms": 0})).await;
    holder.policy("free", json!({"limit": 1})).await;
    let client = QueueClient::builder().client_id("w").url(holder.url()).build().expect("a client");
    let mut waiting = JoinSet::new();
    for number in 0..KEYS {
        let semaphore = client.semaphore(format!("full:{number}"));
        waiting.spawn(async move { semaphore.acquire("").await });
    }
    until("all of them were heard", async || {
        let heard: i64 =
            sqlx::query_scalar("SELECT count(*) FROM pgsemaphore_data.semaphores WHERE key LIKE 'full:%'")
                .fetch_one(db.pool())
                .await
                .expect("the view");
        heard == KEYS
    })
    .await;
    assert!(connections_to(holder.url()) <= 20, "{} connections", connections_to(holder.url()));
    let semaphore = client.semaphore("free");
    let permit = within_reason("a permit of another key", semaphore.acquire("")).await.expect("a permit");
    drop(permit);
    assert!(connections_to(holder.url()) <= 20, "{} connections", connections_to(holder.url()));
}

/// O-18: proxies of the environment are for other things.
#[tokio::test]
async fn a_client_passes_proxies_of_the_environment_by() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("k", json!({"limit": 1})).await;
    let nobody = "http://127.0.0.1:1";
    let proxies = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"].map(|name| (name, nobody));
    let mut queue = Process::start_binary_in("queue", [holder.url(), "w", "k", "fresh"], &proxies);
    queue.say("start 1").await;
    until("the job has a permit", async || queue.stdout().contains("started 1")).await;
    queue.say("end 1").await;
    queue.say("drain").await;
    until("it is drained", async || queue.stdout().contains("drained")).await;
}

/// O-10, O-12: with one frozen holder of two a client is heard in time, and what waited there waits elsewhere.
#[tokio::test]
async fn one_frozen_holder_of_two_neither_settles_nor_starves_a_client() {
    let db = Db::new().await;
    let frozen = Serve::start(db.url()).await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("k", json!({"limit": 2, "settle_lost_clients_after_ms": 5_000})).await;
    let urls = [frozen.url(), holder.url()];
    let client = urls.into_iter().fold(QueueClient::builder().client_id("w"), queue_client::Builder::url);
    let client = client.build().expect("a client");
    let semaphore = client.semaphore("k");
    let first = within_reason("a permit", semaphore.acquire("")).await.expect("a permit");

    frozen.freeze();
    sqlx::raw_sql("CREATE TABLE frozen AS SELECT clock_timestamp() AS at")
        .execute(db.pool())
        .await
        .expect("a table");
    let second = within_reason("another permit", semaphore.acquire("")).await.expect("a permit");
    until("the client is heard long after a silent one is settled", async || {
        let query = "SELECT last_seen > at + interval '12 s' FROM pgsemaphore.client_usage, frozen";
        sqlx::query_scalar(query).fetch_one(db.pool()).await.expect("the view")
    })
    .await;
    assert!(first.is_counted() && second.is_counted());
    let settled: i64 =
        sqlx::query_scalar("SELECT count(*) FROM pgsemaphore.audit WHERE action = 'settle_silent'")
            .fetch_one(db.pool())
            .await
            .expect("the view");
    assert_eq!(settled, 0);

    drop((first, second));
    within_reason("a drain", client.drain()).await.expect("drained");
    frozen.thaw();
    assert_eq!(verify(&db).await, []);
}
