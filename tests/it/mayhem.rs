//! `kill -9` of holder, clients and PostgreSQL, at random moments of one traffic. `WORLD_SECONDS` makes it last longer.
//!
//! The witness is this test: a job runs from when its process says that it started, until it is told to end or killed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use pgsemaphore::embedded::{Embedded, StopMode};
use pgsemaphore_tests::{Caller, Process, Proxy, Serve, private_cluster, until, within_reason};
use rand::Rng as _;
use serde_json::{Value, json};

const LIMIT: usize = 6;
const KEY: &str = "account:42";
const CLIENTS: usize = 4;

/// A job queue in a process of its own, and what it runs.
struct Queue {
    process: Process,
    client_id: String,
    /// Lines of its output that were read.
    read: usize,
    asked: usize,
    running: BTreeSet<String>,
}

impl Queue {
    fn start(url: &str, client_id: String) -> Self {
        let process = Process::start_binary("queue", [url, &client_id, KEY, "fresh"]);
        Self { process, client_id, read: 0, asked: 0, running: BTreeSet::new() }
    }

    /// Notes which jobs have started.
    fn look(&mut self) {
        let stdout = self.process.stdout();
        for line in stdout.lines().skip(self.read) {
            assert!(!line.starts_with("failed"), "{}: {line}", self.client_id);
            self.running.extend(line.strip_prefix("started ").map(str::to_owned));
        }
        self.read = stdout.lines().count();
    }

    async fn ask(&mut self) {
        self.asked += 1;
        self.process.say(&format!("start job-{}", self.asked)).await;
    }

    async fn end_one(&mut self) {
        if let Some(job) = self.running.pop_first() {
            self.process.say(&format!("end {job}")).await;
        }
    }

    fn waits(&self) -> bool {
        self.process.stdout().lines().filter(|line| line.starts_with("started ")).count() < self.asked
    }
}

struct World {
    cluster: Option<Embedded>,
    holder: Serve,
    proxy: Proxy,
    queues: Vec<Queue>,
    started: usize,
}

impl World {
    async fn new(policy: &Value) -> Self {
        let cluster = private_cluster().await;
        let holder = Serve::start(&cluster.url()).await;
        Caller::of(holder.url()).policy("*", policy).await;
        let proxy = Proxy::before(holder.url()).await;
        let url = proxy.through(holder.url());
        let queues = (0..CLIENTS).map(|n| Queue::start(&url, format!("worker-{n}"))).collect();
        Self { cluster: Some(cluster), holder, proxy, queues, started: 0 }
    }

    fn look(&mut self) {
        self.queues.iter_mut().for_each(Queue::look);
        let running: usize = self.queues.iter().map(|queue| queue.running.len()).sum();
        assert!(running <= LIMIT, "{running} jobs run");
    }

    async fn act(&mut self) {
        let at = rand::random_range(0..CLIENTS);
        let queue = &mut self.queues[at];
        match rand::rng().random_range(0..100) {
            0..45 if !queue.waits() => queue.ask().await,
            0..90 => queue.end_one().await,
            90..94 => self.kill_client(at).await,
            94..98 => self.kill_holder().await,
            _ => self.kill_postgresql().await,
        }
    }

    /// Its jobs end with it; the next process of the same name takes over.
    async fn kill_client(&mut self, at: usize) {
        let queue = &mut self.queues[at];
        queue.process.kill();
        queue.process.wait().await;
        queue.look();
        self.started += queue.asked;
        *queue = Queue::start(&self.proxy.through(self.holder.url()), queue.client_id.clone());
    }

    async fn kill_holder(&mut self) {
        self.holder.kill();
        self.holder.wait().await;
        let url = self.cluster.as_ref().expect("PostgreSQL runs").url();
        self.holder = Serve::start(&url).await;
        self.proxy.retarget(self.holder.url());
    }

    async fn kill_postgresql(&mut self) {
        let mut cluster = self.cluster.take().expect("PostgreSQL runs");
        let restart = move || {
            cluster.stop(StopMode::Kill).expect("PostgreSQL can be killed");
            cluster.restart().expect("PostgreSQL starts again");
            cluster
        };
        self.cluster = Some(tokio::task::spawn_blocking(restart).await.expect("no panic"));
    }

    /// Everybody is served once more, ends its jobs, and gives everything back.
    async fn end(mut self) {
        for at in 0..CLIENTS {
            self.queues[at].ask().await;
        }
        within_reason("everybody is served", async {
            while self.queues.iter().any(Queue::waits) {
                self.look();
                for queue in &mut self.queues {
                    queue.end_one().await;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        for queue in &mut self.queues {
            queue.look();
            while !queue.running.is_empty() {
                queue.end_one().await;
            }
            queue.process.say("drain").await;
        }
        until("everybody is drained", async || {
            self.queues.iter().all(|queue| queue.process.stdout().contains("drained"))
        })
        .await;
        let usage = Caller::of(self.holder.url()).usage(KEY).await;
        assert_eq!((&usage["grants"], &usage["leases"]), (&json!(0), &json!(0)), "{usage}");
        let url = self.cluster.as_ref().expect("PostgreSQL runs").url();
        let pool = sqlx::PgPool::connect(&url).await.expect("PostgreSQL runs");
        let query = sqlx::query_scalar("SELECT count(*) FROM pgsemaphore.verify(NULL)");
        let differences: i64 = query.fetch_one(&pool).await.expect("verify");
        assert_eq!(differences, 0);
        let asked: usize = self.started + self.queues.iter().map(|queue| queue.asked).sum::<usize>();
        assert!(asked > CLIENTS * 2, "{asked} jobs were asked for");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_killed_the_limit_holds_and_all_comes_back() {
    let seconds = std::env::var("WORLD_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let length = Duration::from_secs(seconds.unwrap_or(10) / 2);
    let grants = json!({"limit": LIMIT, "round_wait_ms": 5, "round_period_ms": 10, "grant_timeout_ms": 2000});
    let mut leases = grants.clone();
    (leases["provisioning"], leases["permits_per_lease"]) = (json!("strict"), json!(2));
    for policy in [grants, leases] {
        let mut world = World::new(&policy).await;
        let start = Instant::now();
        while start.elapsed() < length {
            world.act().await;
            world.look();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        world.end().await;
    }
}
