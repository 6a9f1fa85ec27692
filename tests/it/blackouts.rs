//! Every holder is killed, again and again, while many items wait and run: no application hears of it, nothing leaks,
//! nothing overlaps.

use std::time::Duration;

use pgsemaphore_tests::{Caller, Db, Proxy, Serve, Truth, until, used, verify, within_reason};
use queue_client::{Cause, QueueClient};
use serde_json::json;
use tokio::task::JoinSet;

const GRANTED: &str = "granted";
const LENT: &str = "lent";
const LIMIT: u64 = 4;
const HOLDERS: usize = 2;
const CLIENTS: u64 = 3;
const ITEMS_PER_CLIENT: u64 = 60;
const BLACKOUTS: u64 = 3;

struct World {
    db: Db,
    holders: Vec<(Serve, Proxy)>,
    clients: Vec<QueueClient>,
    truth: Truth,
}

impl World {
    async fn new() -> Self {
        let (db, truth) = (Db::new().await, Truth::default());
        let mut holders = Vec::new();
        for _ in 0..HOLDERS {
            let holder = Serve::start(db.url()).await;
            let proxy = Proxy::before(holder.url()).await;
            holders.push((holder, proxy));
        }
        let urls: Vec<String> = holders.iter().map(|(holder, proxy)| proxy.through(holder.url())).collect();
        let client = || urls.iter().fold(QueueClient::builder(), |builder, url| builder.url(url)).build();
        let clients = (0..CLIENTS).map(|_| client().expect("a client")).collect();
        let caller = Caller::of(holders[0].0.url());
        let plain = json!({"limit": LIMIT, "round_wait_ms": 10, "round_period_ms": 20});
        caller.policy(GRANTED, &plain).await;
        let lends =
            json!({"limit": LIMIT, "round_wait_ms": 10, "round_period_ms": 20, "provisioning": "strict"});
        caller.policy(LENT, &lends).await;
        for key in [GRANTED, LENT] {
            truth.limit(key, None, LIMIT);
        }
        Self { db, holders, clients, truth }
    }

    /// Everything that is to run, each item as soon as it may.
    fn load(&self) -> JoinSet<()> {
        let mut items = JoinSet::new();
        for client in &self.clients {
            for number in 0..ITEMS_PER_CLIENT {
                let semaphore = client.semaphore(if number % 2 == 0 { GRANTED } else { LENT });
                let truth = self.truth.clone();
                items.spawn(async move {
                    let permit = semaphore.acquire("").await.expect("no outage is an error");
                    let running = truth.start(semaphore.key(), "");
                    tokio::time::sleep(Duration::from_millis(number % 7)).await;
                    drop(running);
                    drop(permit);
                });
            }
        }
        items
    }

    async fn black_out(&mut self) {
        for (holder, _) in &mut self.holders {
            holder.kill();
        }
        for (holder, _) in &mut self.holders {
            holder.wait().await;
        }
        until("every client that waits knows that nobody answers", async || {
            let waiting = self.clients.iter().flat_map(|client| client.semaphore(GRANTED).blocked());
            waiting.into_iter().all(|blocked| blocked.cause == Cause::Unreachable)
        })
        .await;
        for (holder, proxy) in &mut self.holders {
            *holder = Serve::start(self.db.url()).await;
            proxy.retarget(holder.url());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_application_hears_of_blackouts_nothing_leaks_and_nothing_overlaps() {
    let mut world = World::new().await;
    let mut items = world.load();
    for blackout in 1..=BLACKOUTS {
        let started = blackout * CLIENTS * ITEMS_PER_CLIENT / (BLACKOUTS + 2);
        until("some more items have run", async || world.truth.started() >= started).await;
        world.black_out().await;
    }
    while let Some(item) = within_reason("every item runs", items.join_next()).await {
        item.expect("no panic");
    }
    for client in &world.clients {
        within_reason("a drain", client.drain()).await.expect("drained");
    }
    assert_eq!(world.truth.started(), CLIENTS * ITEMS_PER_CLIENT);
    assert_eq!(world.truth.violations(), [] as [String; 0]);
    assert_eq!((used(&world.db).await, verify(&world.db).await), (0, vec![]));
}
