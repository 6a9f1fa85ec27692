//! Callers whose machine, or the way to it, is gone without a word: what they asked for ends, and takes nothing.

use std::net::Ipv4Addr;

use pgsemaphore::embedded::Embedded;
use pgsemaphore_tests::{
    Authority, Caller, Heard, Neighbour, Network, Serve, Worker, encode, key_at, reachable_cluster, until,
    until_acquainted, within_reason,
};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::task::JoinHandle;

/// Of `inside`, and of `encrypted`.
const PORTS: [&str; 2] = ["7432", "7433"];

/// `inside` and `encrypted` are on a machine of their own that can be cut off; `outside` is not.
struct World {
    network: Network,
    _cluster: Embedded,
    admin: PgPool,
    authority: Authority,
    inside: Serve,
    _encrypted: Serve,
    outside: Serve,
    _folder: tempfile::TempDir,
}

#[derive(Debug, Clone, Copy)]
enum Http {
    One,
    Two,
}

/// A key, and who has its one permit.
struct Busy {
    key: String,
    worker: Worker,
}

impl World {
    async fn new(network: Network) -> Self {
        let cluster = reachable_cluster().await;
        let admin = PgPool::connect(&cluster.url()).await.expect("a session");
        let database = cluster.url().replace("127.0.0.1", &network.here(Neighbour::Database).to_string());
        let (folder, authority) = (tempfile::tempdir().expect("a folder"), Authority::new());
        let names = [Neighbour::Clients, Neighbour::Holders].map(|from| network.there(from).to_string());
        let (certificate, key) = authority.issue(&names.each_ref().map(String::as_str)).write(folder.path());
        let [certificate, key] = [&certificate, &key].map(|file| file.to_str().expect("UTF-8"));
        let [plain, tls] = ["http", "https"].map(|scheme| address(scheme, network.there(Neighbour::Holders)));
        let common = ["--insecure", "--database-url", &database, "--advertise-url"];
        let options = ["--listen", "0.0.0.0:7432"];
        let inside = Serve::start_inside(&network, &[&options[..], &common, &[&plain]].concat()).await;
        let options = ["--listen", "0.0.0.0:7433", "--tls-cert", certificate, "--tls-key", key];
        let encrypted = Serve::start_inside(&network, &[&options[..], &common, &[&tls]].concat()).await;
        let listen = format!("{}:0", network.here(Neighbour::Holders));
        let outside = Serve::start_with(&cluster.url(), &["--listen", &listen, "--insecure"]).await;
        until_acquainted(&admin, 3).await;
        let policy =
            json!({"limit": 1, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000});
        Caller::of(outside.url()).policy("*", &policy).await;
        let (_encrypted, _cluster, _folder) = (encrypted, cluster, folder);
        Self { network, _cluster, admin, authority, inside, _encrypted, outside, _folder }
    }

    fn outside(&self) -> Caller {
        Caller::of(self.outside.url())
    }

    /// Where that neighbour reaches the holder of that scheme.
    fn url(&self, scheme: &str, neighbour: Neighbour) -> String {
        address(scheme, self.network.there(neighbour))
    }

    fn http(&self, version: Http) -> reqwest::Client {
        let root = reqwest::Certificate::from_pem(self.authority.pem().as_bytes()).expect("a certificate");
        let http = reqwest::Client::builder().tls_certs_only([root]);
        let http = match version {
            Http::One => http.http1_only(),
            Http::Two => http.http2_prior_knowledge(),
        };
        http.build().expect("an HTTP client")
    }

    /// A key whose home advertises this URL, with its one permit in use.
    async fn busy(&self, home: &str) -> Busy {
        let (key, mut worker) = (key_at(&self.admin, home).await, Worker::new("busy"));
        worker.hear(&self.outside().insist(&key, &worker.wants(1)).await);
        worker.claim();
        worker.hear(&self.outside().insist_sync(&key, &worker.reports()).await);
        assert_eq!(worker.running(), 1);
        Busy { key, worker }
    }

    async fn give_back(&self, mut busy: Busy) {
        busy.worker.release();
        busy.worker.hear(&self.outside().insist_sync(&busy.key, &busy.worker.reports()).await);
    }

    /// A call that waits for the key's permit. It does not learn that its link is cut.
    async fn wait(&self, client: &str, busy: &Busy, scheme: &str, version: Http) -> JoinHandle<()> {
        let url = self.url(scheme, Neighbour::Clients);
        let call = self.http(version).post(format!("{url}/v1/semaphores/{}/request", encode(&busy.key)));
        let call = call.json(&waits(client)).send();
        let call = tokio::spawn(async move { drop(call.await) });
        self.until_it_waits(client).await;
        call
    }

    /// As [`World::wait`], at `outside` and by a link that stays.
    async fn wait_outside(&self, client: &str, busy: &Busy) -> JoinHandle<Option<Heard>> {
        let (caller, key, message) = (self.outside(), busy.key.clone(), waits(client));
        let call = tokio::spawn(async move { caller.request(&key, &message).await });
        self.until_it_waits(client).await;
        call
    }

    async fn until_it_waits(&self, client: &str) {
        until("its first round is over", async || {
            let query = "SELECT EXISTS (SELECT FROM pgsemaphore.blocked WHERE client_id = $1)";
            sqlx::query_scalar(query).bind(client).fetch_one(&self.admin).await.expect("the view")
        })
        .await;
    }

    async fn until_calls_wait(&self, url: &str, count: usize) {
        let (http, wanted) = (self.http(Http::One), format!("pgsemaphore_waiting_requests {count}"));
        until("the calls of those who are gone have ended", async || {
            let metrics = http.get(format!("{url}/metrics")).send().await.expect("an answer");
            metrics.text().await.expect("text").lines().any(|line| line == wanted)
        })
        .await;
    }
}

fn address(scheme: &str, host: Ipv4Addr) -> String {
    format!("{scheme}://{host}:{}", PORTS[usize::from(scheme == "https")])
}

fn waits(client: &str) -> Value {
    let mut message = Worker::new(client).wants(1);
    message["wait_ms"] = json!(60_000);
    message
}

async fn must_be_served(client: &str, call: JoinHandle<Option<Heard>>) -> Worker {
    let heard = within_reason("an answer", call).await.expect("no panic").expect("an answer");
    let mut worker = Worker::new(client);
    worker.hear(&heard.ok());
    assert_eq!(worker.permits(), 1, "who is gone takes nothing");
    worker
}

/// A call that waits at `outside` as long, and was made before them, proves that it was not the end of the wait that ended the
/// calls of those who are gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs `ip` and `nft`: `make check` installs them and runs this test"]
async fn the_calls_of_a_machine_that_is_gone_end_and_take_nothing() {
    let Some(network) = Network::new().await else { return };
    let world = World::new(network).await;
    let [plain, tls] = ["http", "https"].map(|scheme| world.url(scheme, Neighbour::Holders));
    let at_inside = world.busy(&plain).await;
    let at_encrypted = world.busy(&tls).await;
    let at_outside = world.busy(world.outside.url()).await;
    let stays = world.wait_outside("stays", &at_outside).await;
    let mut gone = Vec::new();
    for (busy, scheme, way) in
        [(&at_inside, "http", "inside"), (&at_encrypted, "https", "tls"), (&at_outside, "http", "hop")]
    {
        for version in [Http::One, Http::Two] {
            gone.push(world.wait(&format!("{way} {version:?}"), busy, scheme, version).await);
        }
    }
    world.until_calls_wait(&plain, 2).await;
    world.until_calls_wait(world.outside.url(), 3).await;

    world.network.cut(Neighbour::Clients);
    world.until_calls_wait(&plain, 0).await;
    world.until_calls_wait(&tls, 0).await;
    world.until_calls_wait(world.outside.url(), 1).await;
    assert!(!stays.is_finished(), "who is there waits on");
    assert!(gone.iter().all(|call| !call.is_finished()), "who is gone was told nothing");

    let keys = [at_inside.key.clone(), at_encrypted.key.clone()];
    for busy in [at_inside, at_encrypted, at_outside] {
        world.give_back(busy).await;
    }
    must_be_served("stays", stays).await;
    for key in keys {
        let mut next = Worker::new("next");
        next.hear(&world.outside().insist(&key, &next.wants(1)).await);
        assert_eq!(next.permits(), 1, "{key}: who is gone takes nothing");
    }
    gone.iter().for_each(JoinHandle::abort);
}

/// As a machine that loses its power, on which a holder passed the call of a client on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs `ip` and `nft`: `make check` installs them and runs this test"]
async fn the_calls_that_a_holder_passed_on_end_when_its_machine_is_gone() {
    let Some(network) = Network::new().await else { return };
    let world = World::new(network).await;
    let busy = world.busy(world.outside.url()).await;
    let stays = world.wait_outside("stays", &busy).await;
    let gone = world.wait("gone", &busy, "http", Http::One).await;
    world.until_calls_wait(world.outside.url(), 2).await;
    for neighbour in [Neighbour::Clients, Neighbour::Holders, Neighbour::Database] {
        world.network.cut(neighbour);
    }
    world.until_calls_wait(world.outside.url(), 1).await;
    assert!(!stays.is_finished(), "who is there waits on");
    world.give_back(busy).await;
    must_be_served("stays", stays).await;
    gone.abort();
    world.inside.kill();
}
