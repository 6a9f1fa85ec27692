//! Holders that are killed, or stopped in order, and started again under clients that wait, run and have calls parked:
//! no application hears of it.

use std::collections::VecDeque;

use futures_util::future::select_all;
use pgsemaphore_tests::{Caller, Db, Proxy, Running, Serve, Truth, until, used, verify, within_reason};
use queue_client::{Permit, QueueClient};
use serde_json::json;
use tokio::task::JoinHandle;

const GRANTED: &str = "granted";
const LENT: &str = "lent";

type Item = (Running, Permit);

struct World {
    db: Db,
    holder: Serve,
    proxy: Proxy,
    client: QueueClient,
    truth: Truth,
}

impl World {
    async fn new() -> Self {
        let db = Db::new().await;
        let holder = Serve::start(db.url()).await;
        let proxy = Proxy::of_http1(holder.url()).await;
        let url = proxy.through(holder.url());
        let client = QueueClient::builder().url(url).build().expect("a client");
        let (caller, truth) = (Caller::of(holder.url()), Truth::default());
        let plain = json!({"limit": 2, "round_wait_ms": 10, "round_period_ms": 20});
        caller.policy(GRANTED, &plain).await;
        let lends = json!({"limit": 4, "round_wait_ms": 10, "round_period_ms": 20, "provisioning": "strict"});
        caller.policy(LENT, &lends).await;
        truth.limit(GRANTED, None, 2);
        truth.limit(LENT, None, 4);
        Self { db, holder, proxy, client, truth }
    }

    /// An item that starts as soon as it may.
    fn start_later(&self, key: &str) -> JoinHandle<Item> {
        let (semaphore, truth) = (self.client.semaphore(key), self.truth.clone());
        tokio::spawn(async move {
            let permit = semaphore.acquire("").await.expect("no outage is an error");
            (truth.start(semaphore.key(), ""), permit)
        })
    }

    async fn start(&self, key: &str) -> Item {
        within_reason("a permit", self.start_later(key)).await.expect("no panic")
    }

    /// The next holder listens elsewhere, as one behind a balancer does.
    async fn restart(&mut self, kill: bool) {
        if kill {
            self.holder.kill();
        } else {
            self.holder.terminate();
        }
        self.holder.wait().await;
        self.holder = Serve::start(self.db.url()).await;
        self.proxy.retarget(self.holder.url());
    }
}

/// Whoever is served next: tasks begin to wait in any order.
async fn any_of(waiting: &mut Vec<JoinHandle<Item>>) -> Item {
    let next = select_all(std::mem::take(waiting));
    let (item, _, rest) = within_reason("another one is served", next).await;
    *waiting = rest;
    item.expect("no panic")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_application_hears_of_a_holder_that_restarts() {
    let mut world = World::new().await;
    let mut running: VecDeque<Item> = [world.start(GRANTED).await, world.start(GRANTED).await].into();
    let mut waiting: Vec<JoinHandle<Item>> = (0..8).map(|_| world.start_later(GRANTED)).collect();
    let _borrowed = world.start(LENT).await;
    for kill in [true, false, true, false] {
        let calls = world.proxy.calls();
        until("calls wait at the holder", async || world.proxy.open() >= 2 && calls > 0).await;
        // What ends meanwhile is said when there is a holder again.
        let ended = running.pop_front();
        if kill {
            drop(ended);
            world.restart(true).await;
        } else {
            world.restart(false).await;
            drop(ended);
        }
        running.push_back(any_of(&mut waiting).await);
        assert_eq!(world.truth.violations(), [] as [String; 0]);
    }
    drop((running, _borrowed));
    while !waiting.is_empty() {
        drop(any_of(&mut waiting).await);
    }
    within_reason("a drain", world.client.drain()).await.expect("drained");
    assert_eq!(world.truth.violations(), [] as [String; 0]);
    assert_eq!((used(&world.db).await, verify(&world.db).await), (0, vec![]));
}
