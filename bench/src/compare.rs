//! The same load on what a user would pick, and on ours: in turns, so that what disturbs one disturbs all.

use crate::cluster::Cluster;
use crate::load::{Load, Slice, holds, ratio, slice, summary};
use crate::report::{Report, short, table, title};
use crate::rivals::{Advisory, Budget, CLIENTS, Counter, Ours, Redis, Semaphores, Sets, Slots, WORKERS};
use serde_json::{Value, json};

const SLOTS: &str = "slot rows, SKIP LOCKED";
const TOKIO: &str = "tokio's semaphore, in process: the cap";
const GRANTS: &str = "**ours, grants only**";
const LEASES: &str = "**ours, with leases**";
/// PostgreSQL rivals, all of which poll.
const POLLS: [&str; 3] = ["counter row", SLOTS, "session advisory locks"];
/// Of what should be equal, what turns differ in anyway.
const NOISE: f64 = 0.95;

/// Loads, and in how many turns each is measured.
const LOADS: [(Load, usize); 4] = [
    (Load { keys: 1, limit: 16 }, 5),
    (Load { keys: 1, limit: 1000 }, 5),
    (Load { keys: 1000, limit: 16 }, 3),
    (Load { keys: 1000, limit: 1000 }, 3),
];

/// A policy for rounds that wait for nothing; `leases` of a quarter of the limit, one for each client.
pub fn policy(limit: i32, leases: bool) -> Value {
    let mut policy = json!({"limit": limit, "round_wait_ms": 0, "round_period_ms": 0});
    if leases {
        policy["provisioning"] = json!("strict");
        policy["permits_per_lease"] = json!((limit / i32::try_from(CLIENTS).expect("few")).max(1));
    }
    policy
}

struct Competitor {
    name: &'static str,
    budget: Box<dyn Budget>,
    slices: Vec<Slice>,
}

struct Field(Vec<Competitor>);

impl Field {
    async fn start(cluster: &Cluster, load: &Load) -> Self {
        let [forgetful, durable] = [Redis::start(false).await, Redis::start(true).await];
        let mut field = Self(Vec::new());
        field.enter(POLLS[0], Counter::new(cluster, load).await);
        field.enter(SLOTS, Slots::new(cluster, load).await);
        field.enter(POLLS[2], Advisory::new(cluster, load).await);
        field.enter("Redis, Lua and ZSET, nothing kept", Sets::new(forgetful, load));
        field.enter("Redis, Lua and ZSET, fsync always", Sets::new(durable, load));
        field.enter(TOKIO, Semaphores::new(load));
        field.enter(GRANTS, Ours::start(cluster, &policy(load.limit, false)).await);
        field.enter(LEASES, Ours::start(cluster, &policy(load.limit, true)).await);
        field
    }

    fn enter(&mut self, name: &'static str, budget: impl Budget + 'static) {
        self.0.push(Competitor { name, budget: Box::new(budget), slices: Vec::new() });
    }

    async fn turn(&mut self, load: Load) {
        for competitor in &mut self.0 {
            competitor.slices.push(slice(&*competitor.budget, load, holds()).await);
        }
    }

    fn slices(&self, name: &str) -> &[Slice] {
        let competitor = self.0.iter().find(|competitor| competitor.name == name);
        &competitor.expect("it takes part").slices
    }
}

pub async fn run(cluster: &Cluster, report: &mut Report) {
    let mut violations = 0;
    for (load, turns) in LOADS {
        let mut field = Field::start(cluster, &load).await;
        for _ in 0..turns {
            field.turn(load).await;
        }
        let trips = [counted_trips(cluster, load, false).await, counted_trips(cluster, load, true).await];
        print(&field, load, turns, trips);
        violations += field.0.iter().map(|competitor| summary(&competitor.slices).violations).sum::<u64>();
        if load.keys == 1 {
            judge(report, &field, load, trips);
        }
    }
    let none = "by a count beside them, no item started beyond a limit";
    report.target("all that are compared", none, format!("{violations} did"), violations == 0);
}

/// Ours, in a slice of its own: the proxy that counts round trips slows it down.
async fn counted_trips(cluster: &Cluster, load: Load, leases: bool) -> f64 {
    let counted = Ours::start_counted(cluster, &policy(load.limit, leases)).await;
    slice(&counted, load, holds()).await.trips
}

fn print(field: &Field, load: Load, turns: usize, [of_grants, of_leases]: [f64; 2]) {
    let Load { keys, limit } = load;
    let keys =
        if keys == 1 { "one key".to_owned() } else { format!("{keys} keys, each item of a random one") };
    title(&format!("{WORKERS} workers, {keys}, limit {limit}"));
    println!(
        "Medians of {turns} slices of 1 s, in turns. Policy of ours, with leases: `{}`,",
        policy(limit, true)
    );
    println!("without: no provisioning. {CLIENTS} clients with {} workers each.\n", WORKERS / CLIENTS);
    let cap = field.slices(TOKIO);
    let rows = field.0.iter().map(|competitor| {
        let of = summary(&competitor.slices);
        let trips = match competitor.name {
            GRANTS => of_grants,
            LEASES => of_leases,
            _ => of.trips,
        };
        [
            competitor.name.to_owned(),
            format!("{:.0}", of.rate),
            short(ratio(&competitor.slices, cap)),
            format!("{} / {}", short(of.p50), short(of.p99)),
            short(trips),
        ]
    });
    let head = ["", "admissions/s", "of tokio's", "p50 / p99 of acquire, ms", "round trips per admission"];
    table(&head, rows);
}

fn judge(report: &mut Report, field: &Field, load: Load, [_, trips]: [f64; 2]) {
    let of_cap = |name| ratio(field.slices(name), field.slices(TOKIO));
    if load.limit == 1000 {
        let (leases, grants) = (of_cap(LEASES), of_cap(GRANTS));
        let wanted = "at least 0.8 of tokio's rate";
        report.target("limit 1000, with leases", wanted, short(leases), leases >= 0.8);
        let wanted = "at most 0.05 round trips per admission";
        report.target("limit 1000, with leases", wanted, short(trips), trips <= 0.05);
        let wanted = "at least 0.35 of tokio's rate";
        return report.target("limit 1000, grants only", wanted, short(grants), grants >= 0.35);
    }
    let (leases, slots) = (field.slices(LEASES), field.slices(SLOTS));
    let (to_grants, to_slots) = (ratio(leases, field.slices(GRANTS)), ratio(leases, slots));
    let wanted = "not slower than grants only, but for noise of 5 %";
    report.target("limit 16, with leases", wanted, format!("{} of it", short(to_grants)), to_grants >= NOISE);
    let wanted = "not below slot rows with SKIP LOCKED";
    report.target("limit 16, with leases", wanted, format!("{} of it", short(to_slots)), to_slots >= 1.0);
    let ours = summary(leases).p99;
    let best = POLLS.map(|name| summary(field.slices(name)).p99).into_iter().fold(f64::INFINITY, f64::min);
    let wanted = "p99 under every PostgreSQL rival that polls";
    let measured = format!("{} ms, the best of them {} ms", short(ours), short(best));
    report.target("limit 16, with leases", wanted, measured, ours < best);
}
