//! One holder of two in a network of its own, which is cut from each of its neighbours in turn: packets vanish, and nobody
//! is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pgsemaphore::embedded::Embedded;
use pgsemaphore_tests::{
    Api, Caller, Neighbour, Network, Serve, Truth, Worker, reachable_cluster, until, within_reason,
};
use queue_client::QueueClient;
use serde_json::json;
use sqlx::PgPool;
use std::time::Duration;
use tokio::task::JoinSet;

const KEYS: [&str; 2] = ["granted", "lent"];
const LIMIT: u64 = 3;

/// `inside` can be cut off, `outside` can't.
struct World {
    network: Network,
    _cluster: Embedded,
    admin: PgPool,
    inside: Serve,
    /// Where clients reach `inside`.
    inside_url: String,
    outside: Serve,
    truth: Truth,
}

impl World {
    async fn new(network: Network) -> Self {
        let cluster = reachable_cluster().await;
        let admin = PgPool::connect(&cluster.url()).await.expect("a session");
        let database = cluster.url().replace("127.0.0.1", &network.here(Neighbour::Database).to_string());
        let url = format!("http://{}:7432", network.there(Neighbour::Holders));
        let listen = ["--listen", "0.0.0.0:7432", "--advertise-url", &url, "--insecure"];
        let options = [&listen[..], &["--database-url", &database]].concat();
        let inside = Serve::start_inside(&network, &options).await;
        let listen = format!("{}:0", network.here(Neighbour::Holders));
        let outside = Serve::start_with(&cluster.url(), &["--listen", &listen, "--insecure"]).await;
        let truth = Truth::default();
        let caller = Caller::of(outside.url());
        let mut policy = json!({"limit": LIMIT, "round_wait_ms": 10, "round_period_ms": 20});
        for (key, provisioning) in KEYS.into_iter().zip(["none", "strict"]) {
            policy["provisioning"] = json!(provisioning);
            caller.policy(key, &policy).await;
            truth.limit(key, None, LIMIT);
        }
        let inside_url = format!("http://{}:7432", network.there(Neighbour::Clients));
        Self { network, _cluster: cluster, admin, inside, inside_url, outside, truth }
    }

    /// Clients of which one half asks this holder first, and the other half the other one.
    fn clients(&self) -> Vec<QueueClient> {
        let urls = [self.inside_url.as_str(), self.outside.url()];
        let client = |n: usize| QueueClient::builder().url(urls[n % 2]).url(urls[(n + 1) % 2]).build();
        (0..4).map(client).collect::<Result<_, _>>().expect("clients")
    }

    /// Sessions of `inside`, as PostgreSQL sees them.
    async fn sessions(&self) -> i64 {
        let query = "SELECT count(*) FROM pg_stat_activity WHERE client_addr = $1::inet";
        let address = self.network.there(Neighbour::Database).to_string();
        sqlx::query_scalar(query).bind(address).fetch_one(&self.admin).await.expect("sessions")
    }

    async fn until_ready(&self, status: u16) {
        let api = Api::new(&self.inside_url);
        until("readiness turns", async || api.get("/readyz").await.status == status).await;
    }

    /// Others go on.
    async fn until_items_run(&self) {
        let before = self.truth.started();
        until("items run", async || self.truth.started() > before + 20).await;
        assert_eq!(self.truth.violations(), [] as [String; 0]);
    }
}

/// Items of every client on every key, until `stop`.
fn work(clients: &[QueueClient], truth: &Truth, stop: &Arc<AtomicBool>) -> JoinSet<()> {
    let mut items = JoinSet::new();
    for (client, key) in clients.iter().flat_map(|client| KEYS.map(|key| (client, key))) {
        let (semaphore, truth, stop) = (client.semaphore(key), truth.clone(), stop.clone());
        items.spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let permit = semaphore.acquire("").await.expect("no cut is an error");
                let running = truth.start(key, "");
                tokio::time::sleep(Duration::from_millis(5)).await;
                drop(running);
                drop(permit);
            }
        });
    }
    items
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs `ip` and `nft`: `make check` installs them and runs this test"]
async fn a_holder_cut_off_holds_nobody_up_and_comes_back() {
    let Some(network) = Network::new().await else { return };
    let world = World::new(network).await;
    let clients = world.clients();
    let stop = Arc::new(AtomicBool::new(false));
    let mut items = work(&clients, &world.truth, &stop);
    world.until_ready(200).await;
    world.until_items_run().await;

    world.network.cut(Neighbour::Holders);
    world.until_items_run().await;
    world.network.mend(Neighbour::Holders);

    world.network.cut(Neighbour::Clients);
    world.until_items_run().await;
    world.network.mend(Neighbour::Clients);
    world.until_ready(200).await;

    world.network.cut(Neighbour::Database);
    world.until_ready(503).await;
    let caller = Caller::of(&world.inside_url);
    // A request may be passed on to the other holder, and is then answered; a sync is not.
    caller.sync("granted", &Worker::new("w").reports()).await.expect("an answer").must_be_unavailable();
    until("PostgreSQL notices, and ends its sessions", async || world.sessions().await == 0).await;
    world.until_items_run().await;
    world.network.mend(Neighbour::Database);
    world.until_ready(200).await;
    let _ = caller.insist("granted", &Worker::new("w").wants(0)).await;
    world.until_items_run().await;

    stop.store(true, Ordering::SeqCst);
    within_reason("items end", async {
        while let Some(item) = items.join_next().await {
            item.expect("no panic");
        }
    })
    .await;
    for client in &clients {
        within_reason("a drain", client.drain()).await.expect("drained");
    }
    assert_eq!(world.truth.violations(), [] as [String; 0]);
    let query = "SELECT sum(grants + leases)::bigint, (SELECT count(*) FROM pgsemaphore.verify(NULL))
                 FROM pgsemaphore.usage";
    let found: (i64, i64) = sqlx::query_as(query).fetch_one(&world.admin).await.expect("usage");
    assert_eq!(found, (0, 0));
    let World { inside, outside, .. } = world;
    for mut holder in [inside, outside] {
        holder.terminate();
        assert_eq!(holder.code().await, 0);
    }
}
