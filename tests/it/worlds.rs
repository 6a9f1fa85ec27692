//! Random worlds, end to end: real clients, real holders, a real PostgreSQL, and everything that can go wrong meanwhile.
//!
//! The witness is [`Truth`], the test's own record of what ran when. `WORLD_SECONDS` makes it last longer;
//! `WORLD_SEED` starts with the world that a failure printed (the same plan; timing is the machine's).

use std::time::{Duration, Instant};

use pgsemaphore_tests::{Db, Mode, Proxy, Serve, Truth, faults, verify, within_reason};
use queue_client::QueueClient;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

/// One world takes a few seconds; it hangs if it takes this long.
const WORLD_HANG: Duration = Duration::from_secs(240);
const DEFAULT_SECONDS: u64 = 8;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_worlds_keep_the_promises() {
    let length = Duration::from_secs(number("WORLD_SECONDS").unwrap_or(DEFAULT_SECONDS));
    let mut seed = number("WORLD_SEED").unwrap_or_else(|| rand::random_range(0..1_000_000_000));
    let started = Instant::now();
    loop {
        eprintln!("WORLD_SEED={seed}");
        let ended = tokio::time::timeout(WORLD_HANG, world(seed, Db::new().await)).await;
        assert!(ended.is_ok(), "the world of WORLD_SEED={seed} hangs");
        seed += 1;
        if started.elapsed() > length {
            return;
        }
    }
}

/// A key, its groups, and those of them that have a ceiling.
struct Key {
    name: String,
    groups: Vec<String>,
    ceilings: Vec<String>,
    /// Whether there are leases, and how they are provided.
    leases: Map<String, Value>,
}

impl Key {
    fn random(rng: &mut StdRng, number: usize) -> Self {
        let groups: Vec<String> = (0..rng.random_range(1..4)).map(|n| format!("g{n}")).collect();
        let ceilings = groups.iter().filter(|_| rng.random_bool(0.4)).cloned().collect();
        let mut leases = match rng.random_range(0..5) {
            0 => json!({"provisioning": "none"}),
            1 => json!({"provisioning": "strict"}),
            2 => json!({"provisioning": "under", "lease_reserve": rng.random_range(0..6)}),
            3 => json!({"provisioning": "over", "lease_extra": rng.random_range(0..6)}),
            _ => json!({"provisioning": "over", "lease_extra_ratio": 0.5}),
        };
        leases["permits_per_lease"] = json!(rng.random_range(1..6));
        leases["lease_ttl_ms"] = json!(rng.random_range(500..3000));
        let limited = if rng.random_bool(0.5) { "excluded" } else { "within_group_limit" };
        leases["limited_groups"] = json!(limited);
        let leases = leases.as_object().expect("an object").clone();
        Self { name: format!("key:{number}"), groups, ceilings, leases }
    }

    /// What grants and leases may use together under this limit.
    fn ceiling(&self, limit: u64) -> u64 {
        let ratio = self.leases.get("lease_extra_ratio").map(|_| limit / 2);
        let extra = self.leases.get("lease_extra").and_then(Value::as_u64);
        limit + ratio.or(extra).unwrap_or(0)
    }
}

struct World {
    rng: StdRng,
    db: Db,
    truth: Truth,
    keys: Vec<Key>,
    /// Each behind a proxy that gives it an address which outlives it.
    holders: Vec<(Serve, Proxy)>,
}

/// One world over this database.
pub(crate) async fn world(seed: u64, db: Db) {
    let mut world = World::build(StdRng::seed_from_u64(seed), db).await;
    let clients = world.clients();
    let (mut items, expected) = world.items(&clients);

    let trouble = Duration::from_millis(world.rng.random_range(500..3000));
    let started = Instant::now();
    while started.elapsed() < trouble {
        world.something_happens().await;
        world.look().await;
        tokio::time::sleep(Duration::from_millis(world.rng.random_range(0..60))).await;
    }
    world.heal().await;

    let mut served = 0;
    while !items.is_empty() {
        tokio::select! {
            Some(item) = items.join_next() => served += u64::from(item.expect("no panic")),
            () = tokio::time::sleep(Duration::from_millis(50)) => world.look().await,
        }
    }
    assert_eq!(served, expected, "every item whose caller was patient has run");
    for client in &clients {
        client.drain().await.expect("drained");
    }
    world.look().await;
    world.must_be_at_rest().await;
}

impl World {
    async fn build(mut rng: StdRng, db: Db) -> Self {
        let keys: Vec<Key> = (0..rng.random_range(1..4)).map(|n| Key::random(&mut rng, n)).collect();
        let mut holders = Vec::new();
        for _ in 0..rng.random_range(1..4) {
            let serve = Serve::start(db.url()).await;
            let proxy = Proxy::of_http1(serve.url()).await;
            holders.push((serve, proxy));
        }
        let mut world = Self { rng, db, truth: Truth::default(), keys, holders };
        for at in 0..world.keys.len() {
            let mut policy = json!({
                "limit": 1,
                "round_wait_ms": world.rng.random_range(0..50),
                "round_period_ms": world.rng.random_range(0..100),
                "grant_timeout_ms": world.rng.random_range(200..3000),
            });
            policy.as_object_mut().expect("an object").extend(world.keys[at].leases.clone());
            let name = world.keys[at].name.clone();
            let query = sqlx::query("SELECT pgsemaphore.configure($1, $2)").bind(&name).bind(policy);
            query.execute(world.db.pool()).await.expect("configure");
            world.set_limit(at, false).await;
            for ceiling in 0..world.keys[at].ceilings.len() {
                world.set_ceiling(at, ceiling, false).await;
            }
        }
        world
    }

    fn clients(&mut self) -> Vec<QueueClient> {
        (0..self.rng.random_range(2..5))
            .map(|n| {
                let mut builder = QueueClient::builder().client_id(format!("client-{n}"));
                let first = self.rng.random_range(0..self.holders.len());
                for at in 0..self.holders.len() {
                    let (serve, proxy) = &self.holders[(first + at) % self.holders.len()];
                    builder = builder.url(proxy.through(serve.url()));
                }
                builder.build().expect("a client")
            })
            .collect()
    }

    /// Starts all items, and says how many of them wait for as long as it takes.
    fn items(&mut self, clients: &[QueueClient]) -> (JoinSet<bool>, u64) {
        let (mut items, mut patient) = (JoinSet::new(), 0);
        for client in clients {
            for key in &self.keys {
                for _ in 0..self.rng.random_range(5..25) {
                    let group = key.groups[self.rng.random_range(0..key.groups.len())].clone();
                    let (semaphore, truth) = (client.semaphore(&key.name), self.truth.clone());
                    let starts_in = Duration::from_millis(self.rng.random_range(0..1500));
                    let takes = Duration::from_millis(self.rng.random_range(0..40));
                    let patience = self.rng.random_bool(0.15).then(|| self.rng.random_range(0..500));
                    patient += u64::from(patience.is_none());
                    items.spawn(async move {
                        tokio::time::sleep(starts_in).await;
                        let acquire = semaphore.acquire(&group);
                        let permit = match patience.map(Duration::from_millis) {
                            None => acquire.await.expect("a permit"),
                            Some(patience) => match tokio::time::timeout(patience, acquire).await {
                                Ok(permit) => permit.expect("a permit"),
                                Err(_) => return false,
                            },
                        };
                        let running = truth.start(semaphore.key(), &group);
                        tokio::time::sleep(takes).await;
                        drop(running);
                        drop(permit);
                        patience.is_none()
                    });
                }
            }
        }
        (items, patient)
    }

    async fn something_happens(&mut self) {
        let (key, holder) =
            (self.rng.random_range(0..self.keys.len()), self.rng.random_range(0..self.holders.len()));
        match self.rng.random_range(0..14) {
            0..=3 => self.set_limit(key, true).await,
            4 | 5 => {
                let ceilings = self.keys[key].ceilings.len();
                if ceilings > 0 {
                    let ceiling = self.rng.random_range(0..ceilings);
                    self.set_ceiling(key, ceiling, true).await;
                }
            }
            6 => self.restart(holder, true).await,
            7 => self.restart(holder, false).await,
            8 => self.holders[holder].1.cut_open_connections(),
            9 => self.holders[holder].1.lose_answers(self.rng.random_range(0..60)),
            10 => self.holders[holder].1.set(Mode::Delay(Duration::from_millis(20))),
            11 => self.holders[holder].1.set(Mode::Pass),
            12 => {
                faults::terminate_sessions(self.db.pool()).await;
            }
            _ => {
                let (serve, _) = &self.holders[holder];
                serve.freeze();
                tokio::time::sleep(Duration::from_millis(100)).await;
                serve.thaw();
            }
        }
    }

    async fn restart(&mut self, holder: usize, kill: bool) {
        let (serve, proxy) = &mut self.holders[holder];
        if kill {
            serve.kill();
        } else {
            serve.terminate();
        }
        serve.wait().await;
        *serve = Serve::start(self.db.url()).await;
        proxy.retarget(serve.url());
    }

    /// Before a limit is in force it is in the records, so that nothing can use it earlier.
    async fn set_limit(&mut self, key: usize, may_be_zero: bool) {
        let limit = self.rng.random_range(i32::from(!may_be_zero)..7);
        let key = &self.keys[key];
        let name = &key.name;
        self.truth.limit(name, None, key.ceiling(u64::from(limit.unsigned_abs())));
        let query = sqlx::query("SELECT pgsemaphore.set_limit($1, $2)").bind(name).bind(limit);
        query.execute(self.db.pool()).await.expect("set_limit");
    }

    async fn set_ceiling(&mut self, key: usize, ceiling: usize, may_be_zero: bool) {
        let limit = self.rng.random_range(i32::from(!may_be_zero)..3);
        let Key { name, ceilings, .. } = &self.keys[key];
        self.truth.limit(name, Some(&ceilings[ceiling]), u64::from(limit.unsigned_abs()));
        let query = sqlx::query("SELECT pgsemaphore.set_group_limit($1, $2, $3)").bind(name);
        query.bind(&ceilings[ceiling]).bind(limit).execute(self.db.pool()).await.expect("set_group_limit");
    }

    /// No more trouble, and every key admits something.
    async fn heal(&mut self) {
        for (_, proxy) in &self.holders {
            proxy.lose_answers(0);
            proxy.set(Mode::Pass);
        }
        for key in 0..self.keys.len() {
            self.set_limit(key, false).await;
            for ceiling in 0..self.keys[key].ceilings.len() {
                self.set_ceiling(key, ceiling, false).await;
            }
        }
    }

    /// What must hold at any moment.
    async fn look(&self) {
        assert_eq!(verify(&self.db).await, []);
        assert_eq!(self.truth.violations(), [] as [String; 0]);
        for key in &self.keys {
            self.look_at(&key.name, None).await;
            for group in &key.groups {
                self.look_at(&key.name, Some(group)).await;
            }
        }
    }

    /// All that ran the whole time while it was counted is counted (P2), and no more than was ever allowed (P1).
    async fn look_at(&self, key: &str, group: Option<&str>) {
        let before = self.truth.running(key, group);
        let query = "SELECT coalesce(sum(grants + leases), 0)::bigint FROM pgsemaphore.group_usage
                     WHERE key = $1 AND ($2::text IS NULL OR grp = $2)";
        let query = sqlx::query_scalar(query).bind(key).bind(group);
        let counted: i64 = query.fetch_one(self.db.pool()).await.expect("group_usage");
        let counted = u64::try_from(counted).expect("usage is never negative");
        let running = self.truth.running(key, group).intersection(&before).count();
        assert!(running as u64 <= counted, "{key} {group:?}: {running} run, {counted} are counted");
        if let Some(highest) = self.truth.highest(key, group) {
            assert!(counted <= highest, "{key} {group:?}: {counted} of {highest} are counted");
        }
    }

    async fn must_be_at_rest(&self) {
        let query =
            "SELECT key, (grants + leases)::bigint FROM pgsemaphore.usage WHERE grants <> 0 OR leases <> 0";
        within_reason("grants that nobody claimed come back", async {
            loop {
                let used: Vec<(String, i64)> =
                    sqlx::query_as(query).fetch_all(self.db.pool()).await.expect("usage");
                if used.is_empty() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        assert_eq!(verify(&self.db).await, []);
    }
}
