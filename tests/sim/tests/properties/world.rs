//! A world of one key, and what can happen in it.

use crate::invariants::Ghost;
use pgsemaphore_allocation::{
    BlockId, Call, ClientId, DbTime, Demand, GrantReport, Group, Micros, Permits, Plan, Policy, SemaphoreKey,
    State, Work, check, round, sync, timer,
};
use pgsemaphore_sim::{Limits, MemoryStore};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Something that happens.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Time(Micros),
    Limit(Option<Permits>),
    GroupLimit(u8, Option<Permits>),
    GrantTimeout(Micros),
    Policy(bool),
    Transact(Work, Vec<Say>),
}

/// What a client says, before it is known what exists.
#[derive(Debug, Clone)]
pub(crate) struct Say {
    client: u8,
    seen: Seen,
    waited: Micros,
    demand: BTreeMap<u8, (Permits, Micros)>,
    reports: Vec<(prop::sample::Index, Permits, Permits)>,
}

#[derive(Debug, Clone)]
enum Seen {
    Latest,
    Nothing,
    Of(prop::sample::Index),
    Ahead(Micros),
}

pub(crate) fn any_step() -> impl Strategy<Value = Step> {
    let say = any_say();
    prop_oneof![
        3 => (-3_000..12_000_i64).prop_map(|ms| Step::Time(ms * 1000)),
        2 => prop::option::weighted(0.9, 0..6_i64).prop_map(Step::Limit),
        1 => (0..3_u8, prop::option::of(0..4_i64)).prop_map(|(group, limit)| Step::GroupLimit(group, limit)),
        1 => (1..20_000_i64).prop_map(|ms| Step::GrantTimeout(ms * 1000)),
        1 => prop::bool::weighted(0.8).prop_map(Step::Policy),
        8 => prop::collection::vec(say.clone(), 0..5).prop_map(|calls| Step::Transact(Work::Round, calls)),
        4 => prop::collection::vec(say, 0..3).prop_map(|calls| Step::Transact(Work::Sync, calls)),
        1 => Just(Step::Transact(Work::Timer, Vec::new())),
    ]
}

fn any_say() -> impl Strategy<Value = Say> + Clone {
    let seen = prop_oneof![
        6 => Just(Seen::Latest),
        1 => Just(Seen::Nothing),
        2 => any::<prop::sample::Index>().prop_map(Seen::Of),
        1 => (0..100_000_000_000_i64).prop_map(Seen::Ahead),
    ];
    let demand = prop::collection::btree_map(0..3_u8, (0..5_i64, 0..4_i64), 0..3);
    let reports = prop::collection::vec((any::<prop::sample::Index>(), 0..7_i64, 0..7_i64), 0..5);
    (0..3_u8, seen, 0..3_i64, demand, reports).prop_map(|(client, seen, waited, demand, reports)| Say {
        client,
        seen,
        waited,
        demand,
        reports,
    })
}

/// What a transaction was asked to do.
pub(crate) struct Case {
    pub(crate) work: Work,
    pub(crate) state: State,
    pub(crate) calls: Vec<Call>,
}

impl Case {
    pub(crate) fn plan(&self) -> Plan {
        match self.work {
            Work::Round => round(&self.state, &self.calls),
            Work::Sync => sync(&self.state, &self.calls),
            Work::Timer => timer(&self.state),
        }
    }

    pub(crate) fn check(&self, plan: &Plan) -> Result<(), pgsemaphore_allocation::Violation> {
        check(self.work, &self.state, &self.calls, plan)
    }
}

pub(crate) struct World {
    key: SemaphoreKey,
    pub(crate) store: MemoryStore,
    limits: Limits,
    has_policy: bool,
    now: DbTime,
    ids: Vec<BlockId>,
    ghost: Ghost,
}

impl World {
    pub(crate) fn new() -> Self {
        let policy = Policy { limit: Some(3), grant_timeout: 10_000_000, round_period: 0 };
        let limits = Limits { policy, groups: BTreeMap::new() };
        let key = SemaphoreKey::new("key");
        let mut store = MemoryStore::new();
        store.set_limits(&key, Some(limits.clone()));
        let now = DbTime(1_764_428_000_000_000);
        Self { key, store, limits, has_policy: true, now, ids: Vec::new(), ghost: Ghost::default() }
    }

    /// Takes one step; `look` sees each transaction before it is committed.
    pub(crate) fn take(
        &mut self,
        step: &Step,
        look: impl FnOnce(&Case, &Plan) -> Result<(), String>,
    ) -> Result<(), String> {
        match step {
            Step::Time(by) => self.now = self.now + *by,
            Step::Limit(limit) => self.limits.policy.limit = *limit,
            Step::GrantTimeout(timeout) => self.limits.policy.grant_timeout = *timeout,
            Step::Policy(exists) => self.has_policy = *exists,
            Step::GroupLimit(group, None) => {
                self.limits.groups.remove(&group_of(*group));
            }
            Step::GroupLimit(group, Some(limit)) => {
                self.limits.groups.insert(group_of(*group), *limit);
            }
            Step::Transact(work, says) => {
                let calls = says.iter().map(|say| self.call(say)).collect();
                return self.transact(*work, calls, look);
            }
        }
        self.store.set_limits(&self.key, self.has_policy.then(|| self.limits.clone()));
        Ok(())
    }

    fn call(&self, say: &Say) -> Call {
        let latest = self.store.rows(&self.key).map_or(0, |rows| rows.semaphore.round);
        let clock = u64::try_from(self.now.0).unwrap_or(0);
        let seen = match &say.seen {
            Seen::Latest => latest,
            Seen::Nothing => 0,
            Seen::Of(at) if self.ids.is_empty() => at.index(3) as u64,
            Seen::Of(at) => at.get(&self.ids).round,
            Seen::Ahead(by) => clock.saturating_add_signed(*by),
        };
        let demand = say.demand.iter().map(|(group, (count, age))| Demand {
            group: group_of(*group),
            count: *count,
            oldest_age: age * 1_000_000,
        });
        let named = |at: &prop::sample::Index| match at.index(self.ids.len() + 1) {
            0 => "17-0".to_owned(),
            at => self.ids[at - 1].to_string(),
        };
        let reports = say.reports.iter().map(|(at, claimed, released)| GrantReport {
            id: named(at),
            claimed: *claimed,
            released: *released,
        });
        Call {
            client: ClientId::new(format!("client-{}", say.client)),
            seen,
            waited: say.waited * 500_000,
            demand: demand.collect(),
            grants: reports.collect(),
        }
    }

    fn transact(
        &mut self,
        work: Work,
        calls: Vec<Call>,
        look: impl FnOnce(&Case, &Plan) -> Result<(), String>,
    ) -> Result<(), String> {
        let transaction = self.store.begin(&self.key, work, &calls, self.now);
        let case = Case { work, state: transaction.state.clone(), calls };
        let plan = case.plan();
        case.check(&plan).map_err(|violation| violation.to_string())?;
        look(&case, &plan)?;
        let before = self.store.rows(&self.key).cloned().unwrap_or_default();
        self.store.commit(&transaction, &plan).map_err(|_| "a conflict")?;
        let after = self.store.rows(&self.key).cloned().unwrap_or_default();
        if let Some(difference) = self.store.verify(&self.key).first() {
            return Err(format!("{difference}"));
        }
        let new = after.blocks.values().map(|block| block.id).filter(|id| !self.ids.contains(id));
        self.ids.extend(new.collect::<Vec<_>>());
        self.ghost.look(work, &case.state, &before, &after)
    }

    /// Promise P4, by draining: deadlines pass, everybody releases what it claimed, and nothing is counted any more.
    pub(crate) fn everything_comes_back(&mut self) -> Result<(), String> {
        self.now = self.now + 86_400_000_000;
        self.transact(Work::Timer, Vec::new(), |_, _| Ok(()))?;
        let rows = self.store.rows(&self.key).cloned().unwrap_or_default();
        if let Some(block) = rows.blocks.values().find(|block| block.unclaimed() > 0) {
            return Err(format!("{block:?} has unclaimed permits a day after its deadline"));
        }
        for block in rows.blocks.values() {
            let report = GrantReport { id: block.id.to_string(), claimed: block.used, released: block.used };
            let call = Call {
                client: block.client.clone(),
                seen: block.id.round,
                waited: 0,
                demand: Vec::new(),
                grants: vec![report],
            };
            self.transact(Work::Sync, vec![call], |_, _| Ok(()))?;
        }
        let rows = self.store.rows(&self.key).cloned().unwrap_or_default();
        let left = (rows.semaphore.grants, rows.blocks.len(), rows.semaphore.batches.len());
        if left == (0, 0, 0) { Ok(()) } else { Err(format!("left after all came back: {left:?}")) }
    }
}

fn group_of(n: u8) -> Group {
    Group::new(["", "a", "b"][usize::from(n)])
}

/// One grant of nine, reported like this: the counts at the end.
pub(crate) fn report_all(marks: &[(Permits, Permits)]) -> Option<(Permits, Permits)> {
    let mut world = World::new();
    let ok = |_: &Case, _: &Plan| Ok(());
    world.take(&Step::Limit(Some(9)), ok).expect("a limit");
    let demand = vec![Demand { group: Group::new(""), count: 9, oldest_age: 0 }];
    let call = |demand, grants| Call { client: ClientId::new("c"), seen: 0, waited: 0, demand, grants };
    world.transact(Work::Round, vec![call(demand, Vec::new())], ok).expect("a round");
    let id = world.ids[0].to_string();
    for (claimed, released) in marks {
        let report = GrantReport { id: id.clone(), claimed: *claimed, released: *released };
        world.transact(Work::Sync, vec![call(Vec::new(), vec![report])], ok).expect("a sync");
    }
    let rows = world.store.rows(&world.key)?;
    rows.blocks.values().next().map(|block| (block.used, block.released))
}
