//! Leases, end to end, with the client crate: what applications get of them, and what a bad network does to them.
//!
//! The witness is [`Truth`], the test's own record of what ran when.

use std::time::Duration;

use pgsemaphore_tests::{
    Act, Db, InProcess, Mode, Proxy, Running, Truth, message, until, verify, within_reason,
};
use queue_client::{Permit, QueueClient, Semaphore};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const KEY: &str = "account:42";
const GROUP: &str = "g";

/// An item that runs until this is dropped: first the item ends, then its permit is released.
type Item = (Running, Permit);

struct World {
    db: Db,
    holder: InProcess,
    truth: Truth,
}

impl World {
    async fn with(limit: u64, lease_ttl: Duration) -> Self {
        let db = Db::new().await;
        let holder = InProcess::start(db.url()).await;
        let policy = json!({
            "limit": limit,
            "provisioning": "strict",
            "lease_ttl_ms": u64::try_from(lease_ttl.as_millis()).expect("milliseconds"),
            "round_wait_ms": 20,
            "round_period_ms": 50,
        });
        holder.policy(KEY, policy).await;
        let truth = Truth::default();
        truth.limit(KEY, None, limit);
        Self { db, holder, truth }
    }

    fn client(&self, id: &str) -> QueueClient {
        QueueClient::builder().client_id(id).url(self.holder.url()).build().expect("a client")
    }

    async fn start(&self, semaphore: &Semaphore) -> Item {
        let permit = within_reason("a permit", semaphore.acquire(GROUP)).await.expect("a permit");
        (self.truth.start(KEY, GROUP), permit)
    }

    /// An item that starts as soon as it may.
    fn start_later(&self, client: &QueueClient) -> JoinHandle<Item> {
        let (semaphore, truth) = (client.semaphore(KEY), self.truth.clone());
        tokio::spawn(async move {
            let permit = semaphore.acquire(GROUP).await.expect("a permit");
            (truth.start(KEY, GROUP), permit)
        })
    }

    /// A round in which nobody new wants anything: it looks at the ttl of leases.
    async fn round(&self) {
        let nothing = message("observer", json!({"demand": [], "grants": [], "leases": []}));
        let (status, reply) = self.holder.request(KEY, nothing).await;
        assert_eq!(status, 200, "{reply}");
    }

    /// The one lease of this client.
    async fn lease_of(&self, client: &str) -> Lease {
        let query = "SELECT status, footprint::bigint, extract(epoch FROM last_report)::float8
                     FROM pgsemaphore.leases WHERE client_id = $1";
        let query = sqlx::query_as(query).bind(client).fetch_one(self.db.pool());
        let (status, footprint, last_report) = query.await.expect("one lease");
        Lease { status, footprint, last_report }
    }

    async fn usage(&self) -> (Value, Value) {
        let usage = self.holder.usage(KEY).await;
        (usage["grants"].clone(), usage["leases"].clone())
    }

    /// Nothing ran that must not, and nothing counts any more.
    async fn must_be_at_rest(&self, clients: &[QueueClient]) {
        for client in clients {
            within_reason("a drain", client.drain()).await.expect("drained");
        }
        assert_eq!(self.truth.violations(), [] as [String; 0]);
        assert_eq!(self.usage().await, (json!(0), json!(0)));
        assert_eq!(verify(&self.db).await, []);
    }
}

/// As the holder has it.
struct Lease {
    status: String,
    footprint: i64,
    /// When it was last reported, in seconds.
    last_report: f64,
}

/// What a lease doesn't need comes to those who wait, long before its ttl of half an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_lease_of_everything_is_recalled_for_those_who_wait() {
    let world = World::with(6, Duration::from_secs(1800)).await;
    let idle = world.client("idle");
    let running = world.start(&idle.semaphore(KEY)).await;
    assert_eq!(world.lease_of("idle").await.footprint, 5, "all that its one item left");

    // One item each, which go on until all five run: nothing of the lease may stay behind.
    let mut clients: Vec<_> = (0..5).map(|n| world.client(&format!("busy-{n}"))).collect();
    let waiting: Vec<_> = clients.iter().map(|client| world.start_later(client)).collect();
    let mut items = Vec::new();
    for item in waiting {
        items.push(within_reason("all five are served", item).await.expect("no panic"));
    }
    assert_eq!(world.truth.running(KEY, None).len(), 6);
    drop((items, running));
    clients.push(idle);
    world.must_be_at_rest(&clients).await;
}

/// Long enough that a quarter of it, which is what one lost report leaves, outlasts a hiccup of the machine.
const TTL: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_report_retires_no_lease_and_silence_does() {
    let world = World::with(5, TTL).await;
    let proxy = Proxy::of_http1(world.holder.url()).await;
    let url = proxy.through(world.holder.url());
    let cut_off = QueueClient::builder().client_id("cut-off").url(url).build().expect("a client");
    let semaphore = cut_off.semaphore(KEY);
    let items = [world.start(&semaphore).await, world.start(&semaphore).await];
    until("a request, a claim and a parked sync are made", async || proxy.calls() >= 3).await;

    // One of two is lost: it vanishes, and nobody is told.
    for _ in 0..3 {
        let lost_before = proxy.sprung();
        proxy.trap(b"/sync HTTP", Act::Hold, 1);
        until("a report is lost", async || {
            world.round().await;
            assert_eq!(world.lease_of("cut-off").await.status, "active");
            proxy.sprung() > lost_before
        })
        .await;
        let last_heard = world.lease_of("cut-off").await.last_report;
        until("the next one is heard", async || {
            world.round().await;
            let lease = world.lease_of("cut-off").await;
            assert_eq!(lease.status, "active");
            lease.last_report > last_heard
        })
        .await;
    }

    // Now all are, and all answers too.
    let lost_before = proxy.sprung();
    proxy.set(Mode::Drop);
    proxy.trap(b"/sync HTTP", Act::Hold, u64::MAX);
    let near = world.client("near");
    let waiting: Vec<_> = (0..3).map(|_| world.start_later(&near)).collect();
    until("the lease is retired", async || world.lease_of("cut-off").await.status == "retired").await;
    until("three reports are lost in a row", async || proxy.sprung() >= lost_before + 3).await;
    assert_eq!(world.lease_of("cut-off").await.footprint, 4, "what may be drawn counts");
    assert!(world.truth.running(KEY, None).len() <= 3, "the others run at most what is no part of the lease");
    // Whatever it still gives is one of the items that may run.
    let late = semaphore.try_acquire(GROUP).map(|permit| (world.truth.start(KEY, GROUP), permit));

    proxy.trap(b"/sync HTTP", Act::Hold, 0);
    proxy.set(Mode::Pass);
    proxy.cut_open_connections();
    drop(late);
    let mut served = Vec::new();
    for item in waiting {
        served.push(within_reason("what was not drawn is given to others", item).await.expect("no panic"));
    }
    assert_eq!(world.truth.running(KEY, None).len(), 5, "those of the retired lease go on");
    drop((items, served));
    world.must_be_at_rest(&[cut_off, near]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_leases_most_items_cost_no_call() {
    const WORKERS: u64 = 8;
    const ITEMS: u64 = 25;
    let world = World::with(100, Duration::from_secs(1800)).await;
    let proxy = Proxy::of_http1(world.holder.url()).await;
    let url = proxy.through(world.holder.url());
    let client = QueueClient::builder().client_id("burst").url(url).build().expect("a client");
    let workers = (0..WORKERS).map(|_| {
        let (group, truth) = (client.semaphore(KEY).group(GROUP), world.truth.clone());
        tokio::spawn(async move {
            for _ in 0..ITEMS {
                let permit = group.acquire().await.expect("a permit");
                let running = truth.start(group.key(), group.name());
                tokio::time::sleep(Duration::from_millis(1)).await;
                drop(running);
                drop(permit);
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        within_reason("all items have run", worker).await.expect("no panic");
    }
    world.must_be_at_rest(&[client]).await;
    let (items, calls) = (WORKERS * ITEMS, proxy.calls());
    assert_eq!(world.truth.started(), items);
    assert!(calls < items / 2, "{calls} calls for {items} items");
}
