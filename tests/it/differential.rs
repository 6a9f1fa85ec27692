//! PostgreSQL and the store in memory give the same answers in the same random worlds: what the simulation shows of the
//! one holds for the other.

use pgsemaphore::{Heard, Pace, Store, TurnResult, transact};
use pgsemaphore_allocation::{
    BlockId, ClientId, Demand, Extra, GrantReport, Group, Incarnation, LeaseReport, Outcome, Policy,
    Provisioning, SemaphoreKey, Verdict, Work, round, sync, timer,
};
use pgsemaphore_sim::{Limits, MemoryStore};
use pgsemaphore_tests::Db;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const CLIENTS: [&str; 3] = ["a", "b", "c"];
const GROUPS: [&str; 2] = ["", "g"];
const STEPS: usize = 25;

/// How many worlds: `WORLDS` says, for a long run.
fn worlds() -> u64 {
    std::env::var("WORLDS").ok().and_then(|worlds| worlds.parse().ok()).unwrap_or(40)
}

#[tokio::test]
async fn postgresql_and_the_store_in_memory_answer_alike() {
    let db = Db::new().await;
    answers_are_alike(&db, worlds()).await;
}

/// In so many worlds over this database.
pub(crate) async fn answers_are_alike(db: &Db, worlds: u64) {
    let store = Store::connect(db.url(), 2).await.expect("the test database");
    for seed in 0..worlds {
        World::new(seed, &store).run().await;
    }
    assert_eq!(pgsemaphore_tests::verify(db).await, []);
}

struct World<'a> {
    seed: u64,
    random: StdRng,
    store: &'a Store,
    memory: MemoryStore,
    key: SemaphoreKey,
    /// Blocks that clients were told of, and the highest round each of them heard.
    told: Vec<(ClientId, String)>,
    seen: BTreeMap<ClientId, u64>,
    /// Versions of the policy so far, and the highest generation of any client.
    versions: i64,
    generation: u64,
}

impl<'a> World<'a> {
    fn new(seed: u64, store: &'a Store) -> Self {
        let random = StdRng::seed_from_u64(seed);
        let key = SemaphoreKey::new(format!("world:{seed}"));
        let (told, seen) = (Vec::new(), BTreeMap::new());
        Self { seed, random, store, memory: MemoryStore::new(), key, told, seen, versions: 0, generation: 0 }
    }

    async fn run(mut self) {
        self.set_policy().await;
        for step in 0..STEPS {
            if self.random.random_ratio(1, 6) {
                self.set_policy().await;
            }
            self.transact(step).await;
        }
    }

    async fn set_policy(&mut self) {
        let limit = self.random.random_range(0..6_i64);
        let ceiling = self.random.random_bool(0.5).then(|| self.random.random_range(0..4_i64));
        // Short enough that some grants are due while the world runs, and some are not.
        let grant_timeout_ms = self.random.random_range(100..400_i64);
        let groups = ceiling.map_or("{}".to_owned(), |ceiling| format!(r#"{{"g":{ceiling}}}"#));
        let (provisioning, mode) = match self.random.random_range(0..5) {
            0 => (Provisioning::None, r#""none""#),
            1 => (Provisioning::Under { reserve: 2 }, r#""under","lease_reserve":2"#),
            2 => (Provisioning::Over { extra: Extra::Permits(2) }, r#""over","lease_extra":2"#),
            3 => (
                Provisioning::Over { extra: Extra::Millionths(333_333) },
                r#""over","lease_extra_ratio":0.333333"#,
            ),
            _ => (Provisioning::Strict, r#""strict""#),
        };
        let within = self.random.random_bool(0.5);
        let limited = if within { "within_group_limit" } else { "excluded" };
        let paused = self.random.random_ratio(1, 8);
        let pauses_group = self.random.random_ratio(1, 8);
        let paused_groups = if pauses_group { r#"["g"]"# } else { "[]" };
        let settle_after_ms = self.random.random_bool(0.3).then(|| self.random.random_range(5000..9000_i64));
        let settle_after = settle_after_ms.map_or("null".to_owned(), |after| after.to_string());
        let policy = format!(
            r#"{{"limit":{limit},"group_limits":{groups},"grant_timeout_ms":{grant_timeout_ms},"round_period_ms":0,
                "provisioning":{mode},"permits_per_lease":3,"lease_ttl_ms":500,"limited_groups":"{limited}",
                "settle_lost_clients_after_ms":{settle_after},"paused":{paused},"paused_groups":{paused_groups}}}"#
        );
        self.store.put_policy(self.key.as_str(), &policy, "test").await.expect("a policy");
        self.versions += 1;
        let policy = Policy {
            limit: Some(limit),
            paused,
            paused_groups: pauses_group.then(|| Group::new("g")).into_iter().collect(),
            grant_timeout: grant_timeout_ms * 1000,
            round_period: 0,
            provisioning,
            permits_per_lease: 3,
            lease_ttl: 500_000,
            leases_within_group_limit: within,
            settle_after: settle_after_ms.map(|ms| ms * 1000),
            stamp: self.versions,
        };
        let groups = ceiling.map(|ceiling| (Group::new("g"), ceiling)).into_iter().collect();
        let (unresolved, not_permitted) = Default::default();
        self.memory.set_limits(&self.key, Some(Limits { policy, groups, unresolved, not_permitted }));
    }

    async fn transact(&mut self, step: usize) {
        let work = [Work::Round, Work::Round, Work::Sync, Work::Timer][self.random.random_range(0..4)];
        let calls = if work == Work::Timer { 0 } else { self.random.random_range(1..4) };
        let heard: Vec<Heard> = (0..calls).map(|_| self.call(work)).collect();
        let turn = transact(self.store, &self.key, work, Pace::Period(Duration::ZERO), &heard, &|_| true)
            .await
            .expect("a transaction");
        let TurnResult::Outcomes(real) = turn.result else { panic!("a period of 0 is never too early") };
        let real: Vec<_> = real.into_iter().flatten().collect();

        let calls: Vec<_> = heard.iter().map(|heard| heard.call(turn.anchor)).collect();
        let transaction = self.memory.begin(&self.key, work, &calls, turn.now);
        let plan = match work {
            Work::Round => round(&transaction.state, &calls),
            Work::Sync => sync(&transaction.state, &calls),
            Work::Timer => timer(&transaction.state),
        };
        // Nothing is read or written of a key without a row, unless a client wants something or has seen rounds.
        let asked = work == Work::Round || calls.iter().any(|call| call.seen > 0);
        if self.memory.rows(&self.key).is_none() && !asked {
            return;
        }
        self.memory.commit(&transaction, &plan).expect("nobody else writes");
        let (seed, expected) = (self.seed, sorted(plan.answers));
        assert_eq!(turn.audit, plan.audit, "seed {seed}, step {step}, {work:?} of {calls:?}");
        assert_eq!(sorted(real.clone()), expected, "seed {seed}, step {step}, {work:?} of {calls:?}");
        self.hear(&heard, &real);
    }

    fn call(&mut self, work: Work) -> Heard {
        let client = ClientId::new(CLIENTS[self.random.random_range(0..CLIENTS.len())]);
        let mut demand = Vec::new();
        let asks = work == Work::Round && self.random.random_bool(0.8);
        if asks {
            for group in GROUPS.into_iter().filter(|_| self.random.random_bool(0.6)).collect::<Vec<_>>() {
                let count = self.random.random_range(0..4);
                let oldest_age = self.random.random_range(0..5) * 1_000_000;
                demand.push(Demand { group: Group::new(group), count, oldest_age });
            }
        }
        let (mut grants, mut leases) = (Vec::new(), Vec::new());
        for (owner, id) in self.told.clone() {
            // Sometimes somebody else's, and sometimes as what it is not.
            if (owner != client && self.random.random_bool(0.9)) || self.random.random_bool(0.5) {
                continue;
            }
            let (used, released) = (self.random.random_range(0..5), self.random.random_range(0..5));
            if self.random.random_bool(0.5) {
                grants.push(GrantReport { id, claimed: used, released });
            } else {
                leases.push(LeaseReport {
                    id,
                    drawn: used,
                    released,
                    stopped: self.random.random_ratio(1, 4),
                });
            }
        }
        let latest = self.seen.get(&client).copied().unwrap_or(0);
        let seen = if self.random.random_bool(0.7) { latest } else { 0 };
        let takes_leases = self.random.random_bool(0.8);
        // As of a parked request, which takes part again.
        let applied = work == Work::Round && self.random.random_ratio(1, 5);
        Heard {
            client,
            from: self.process(),
            seen,
            all: self.random.random_ratio(1, 6),
            arrival: Instant::now(),
            asks,
            demand,
            grants,
            leases,
            takes_leases,
            applied,
        }
    }

    /// Mostly the only process of its client, sometimes a later one, or one of the same generation.
    fn process(&mut self) -> Incarnation {
        self.generation += u64::from(self.random.random_ratio(1, 20));
        let generation = if self.random.random_bool(0.9) { self.generation } else { self.generation / 2 };
        let name = if self.random.random_bool(0.95) { generation } else { 99 };
        Incarnation { generation, process: Some(name.to_string()), resumes: self.random.random_bool(0.5) }
    }

    fn hear(&mut self, heard: &[Heard], outcomes: &[Outcome]) {
        for (heard, outcome) in heard.iter().zip(outcomes) {
            let Outcome::Answered(answer) = outcome else { continue };
            let seen = self.seen.entry(heard.client.clone()).or_default();
            *seen = answer.round.max(*seen);
            for Verdict { id, .. } in &answer.verdicts {
                let told = (heard.client.clone(), id.clone());
                if BlockId::parse(id).is_some() && !self.told.contains(&told) {
                    self.told.push(told);
                }
            }
        }
    }
}

/// The order of verdicts is free.
fn sorted(mut outcomes: Vec<Outcome>) -> Vec<Outcome> {
    for outcome in &mut outcomes {
        if let Outcome::Answered(answer) = outcome {
            answer.verdicts.sort_by(|one, other| one.id.cmp(&other.id));
        }
    }
    outcomes
}
