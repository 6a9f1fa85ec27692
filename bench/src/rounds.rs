//! What one round costs, in one transaction without HTTP and without waiting: by how many requests it serves, by how many
//! permits the key has held, and by how many clients are blocked.

use crate::cluster::Cluster;
use crate::report::{Report, median_ms, ms, short, table, title};
use pgsemaphore::{Heard, Pace, Store, TurnResult, transact};
use pgsemaphore_allocation::{
    ClientId, Demand, GrantReport, Group, Incarnation, Outcome, SemaphoreKey, Work,
};
use std::time::{Duration, Instant};

const REQUESTS: [usize; 4] = [1, 10, 100, 1000];
const HELD: [usize; 4] = [0, 1_000, 10_000, 100_000];
const BLOCKED: [usize; 5] = [0, 10, 100, 1_000, 10_000];
const TURNS: usize = 60;
/// Requests of a round where something else is varied.
const SOME: usize = 10;
/// Permits that are there from the start are made by rounds of so many requests.
const MANY: usize = 1000;
const RATIO_MAX: f64 = 1.3;

/// A key and the clients that ask for its permits, one each.
struct Key<'a> {
    store: &'a Store,
    key: SemaphoreKey,
    round: u64,
}

/// How long a round and the batch of syncs took that gave everything back.
#[derive(Default)]
struct Times {
    rounds: Vec<Duration>,
    syncs: Vec<Duration>,
}

pub async fn run(cluster: &Cluster, report: &mut Report) {
    let store = Store::connect(&cluster.migrated().await, 2).await.expect("the database");
    let policy =
        |limit: u64| format!(r#"{{"limit": {limit}, "round_period_ms": 0, "grant_timeout_ms": 86400000}}"#);
    store.put_policy("*", &policy(10_000_000), "bench").await.expect("a policy");
    store.put_policy("blocked:*", &policy(0), "bench").await.expect("a policy");
    by_requests(&store).await;
    by_held(&store, report).await;
    by_blocked(&store).await;
    store.close().await;
}

async fn by_requests(store: &Store) {
    title("A round, by the requests in it");
    println!(
        "p50 of {TURNS}, in turns: BEGIN to COMMIT. Each request is of another client and gets a permit; a batch of"
    );
    println!("as many syncs claims and releases it.\n");
    let mut keys =
        REQUESTS.map(|requests| (requests, Key::new(store, "requests", requests), Times::default()));
    for _ in 0..TURNS {
        for (requests, key, times) in &mut keys {
            key.turn(*requests, times).await;
        }
    }
    let row = |(requests, _, times): (usize, Key<'_>, Times)| {
        let round = median_ms(&times.rounds);
        let permits = requests as f64 / round * 1000.0;
        [requests.to_string(), short(round), short(median_ms(&times.syncs)), format!("{permits:.0}")]
    };
    table(&["requests", "round, ms", "batch of syncs, ms", "permits/s by rounds alone"], keys.map(row));
}

async fn by_held(store: &Store, report: &mut Report) {
    title("A round, by the permits that its key has held");
    println!(
        "p50 of {TURNS} rounds of {SOME} requests, in turns. Those held are grants of one permit, whose items run.\n"
    );
    let mut keys = HELD.map(|held| (held, Key::new(store, "held", held), Times::default()));
    for (held, key, _) in &mut keys {
        for _ in 0..*held / MANY {
            key.hold(MANY).await;
        }
    }
    for _ in 0..TURNS {
        for (_, key, times) in &mut keys {
            key.turn(SOME, times).await;
        }
    }
    let medians = keys.map(|(held, _, times)| (held, median_ms(&times.rounds), median_ms(&times.syncs)));
    let none = medians[0].1;
    let row = |(held, round, sync): (usize, f64, f64)| {
        [held.to_string(), short(round), short(round / none), short(sync)]
    };
    table(&["held", "round, ms", "to none", "batch of syncs, ms"], medians.map(row));
    let most = medians[HELD.len() - 1].1 / none;
    let wanted = "p50 at most 1.3 times that with none held";
    report.target("a round with 100,000 permits held", wanted, short(most), most <= RATIO_MAX);
}

async fn by_blocked(store: &Store) {
    title("A round, by the clients whose demand is blocked");
    println!(
        "A limit of 0. A round with the requests of all of them, as a holder does for those that are parked; then"
    );
    println!(
        "p50 of {TURNS} rounds with the request of one more, while the others' demand counts as blocked.\n"
    );
    let mut rows = Vec::new();
    for blocked in BLOCKED {
        let mut key = Key::new(store, "blocked", blocked);
        let mut of_all = "-".to_owned();
        if blocked > 0 {
            let all = clients("waits", blocked);
            // The first one writes that they are blocked.
            key.round(&all, 1).await;
            of_all = short(ms(key.round(&all, 1).await.1));
        }
        let mut times = Vec::new();
        for _ in 0..TURNS {
            times.push(key.round(&clients("one", 1), 1).await.1);
        }
        rows.push([blocked.to_string(), of_all, short(median_ms(&times))]);
    }
    table(&["blocked clients", "a round with all of them, ms", "a round with another one, ms"], rows);
}

fn clients(name: &str, number: usize) -> Vec<ClientId> {
    (0..number).map(|n| ClientId::new(format!("{name}-{n}"))).collect()
}

impl<'a> Key<'a> {
    fn new(store: &'a Store, kind: &str, number: usize) -> Self {
        Self { store, key: SemaphoreKey::new(format!("{kind}:{number}")), round: 0 }
    }

    /// A round of `requests`, and the batch of syncs after it.
    async fn turn(&mut self, requests: usize, times: &mut Times) {
        let clients = clients("asks", requests);
        let (granted, took) = self.round(&clients, 1).await;
        assert_eq!(granted.len(), requests);
        times.rounds.push(took);
        times.syncs.push(self.report(&clients, granted, 1).await);
    }

    /// Grants of so many clients whose items run on.
    async fn hold(&mut self, number: usize) {
        let clients = clients("holds", number);
        let granted = self.round(&clients, 1).await.0;
        self.report(&clients, granted, 0).await;
    }

    /// How long the batch of syncs takes in which each client claims its grant.
    async fn report(&mut self, clients: &[ClientId], granted: Vec<String>, released: i64) -> Duration {
        let grants = granted.into_iter().map(|id| vec![GrantReport { id, claimed: 1, released }]);
        let calls = clients.iter().zip(grants).map(|(client, grants)| self.call(client, 0, grants));
        let calls: Vec<Heard> = calls.collect();
        self.transact(Work::Sync, &calls).await.1
    }

    /// A round in which each client wants `count`: what was granted, and how long it took.
    async fn round(&mut self, clients: &[ClientId], count: i64) -> (Vec<String>, Duration) {
        let calls: Vec<Heard> = clients.iter().map(|client| self.call(client, count, Vec::new())).collect();
        let (outcomes, took) = self.transact(Work::Round, &calls).await;
        let mut granted = Vec::new();
        for outcome in outcomes {
            let Outcome::Answered(answer) = outcome else { panic!("refused: {outcome:?}") };
            self.round = self.round.max(answer.round);
            granted.extend(answer.verdicts.into_iter().map(|verdict| verdict.id));
        }
        (granted, took)
    }

    async fn transact(&self, work: Work, calls: &[Heard]) -> (Vec<Outcome>, Duration) {
        let start = Instant::now();
        let turn =
            transact(self.store, &self.key, work, Pace::Period(Duration::ZERO), calls, &|_| true).await;
        let took = start.elapsed();
        let TurnResult::Outcomes(outcomes) = turn.expect("a transaction").result else {
            panic!("a period of 0 is never too early")
        };
        (outcomes.into_iter().flatten().collect(), took)
    }

    fn call(&self, client: &ClientId, count: i64, grants: Vec<GrantReport>) -> Heard {
        let demand = Demand { group: Group::new(""), count, oldest_age: 0 };
        Heard {
            client: client.clone(),
            from: Incarnation { generation: 0, process: None, resumes: false },
            seen: self.round,
            all: false,
            arrival: Instant::now(),
            asks: true,
            demand: if count > 0 { vec![demand] } else { Vec::new() },
            grants,
            leases: Vec::new(),
            takes_leases: false,
            applied: false,
        }
    }
}
