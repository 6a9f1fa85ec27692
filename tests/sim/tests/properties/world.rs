//! A world of one key, and what can happen in it.

use crate::invariants::Ghost;
use pgsemaphore_allocation::{
    BlockId, Call, ClientId, DbTime, Demand, Extra, GrantReport, Group, Incarnation, Kind, LeaseReport,
    Micros, Permits, Plan, Provisioning, SemaphoreKey, State, Work, check, round, sync, timer,
};
use pgsemaphore_sim::{Limits, MemoryStore};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Something that happens.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Time(Micros),
    Limit(Option<Permits>),
    GroupLimit(u8, Option<Permits>),
    GrantTimeout(Micros),
    Leases(Provisioning),
    PermitsPerLease(Permits),
    LeaseTtl(Micros),
    LimitedGroups(bool),
    SettleAfter(Option<Micros>),
    Serving(bool),
    Pause(Option<u8>, bool),
    Unresolved(u8, bool),
    Forbid(u8, u8, bool),
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
    leases: Vec<(prop::sample::Index, Permits, Permits, bool)>,
    asks: bool,
    takes_leases: bool,
    applied: bool,
    from: Incarnation,
    all: bool,
}

#[derive(Debug, Clone)]
enum Seen {
    Latest,
    Nothing,
    Of(prop::sample::Index),
    Ahead(Micros),
}

/// Steps of a world that begins with any mode of leases, which groups with a ceiling may hold or not.
pub(crate) fn any_world() -> impl Strategy<Value = Vec<Step>> {
    let steps = prop::collection::vec(any_step(), 1..40);
    (any_provisioning(), any::<bool>(), steps).prop_map(|(mode, within, mut steps)| {
        steps.splice(0..0, [Step::Leases(mode), Step::LimitedGroups(within)]);
        steps
    })
}

fn any_provisioning() -> impl Strategy<Value = Provisioning> {
    let extra =
        prop_oneof![(0..6_i64).prop_map(Extra::Permits), (0..2_500_000_i64).prop_map(Extra::Millionths),];
    prop_oneof![
        2 => Just(Provisioning::None),
        2 => Just(Provisioning::Strict),
        2 => (0..6_i64).prop_map(|reserve| Provisioning::Under { reserve }),
        2 => extra.prop_map(|extra| Provisioning::Over { extra }),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let say = any_say();
    prop_oneof![
        3 => (-3_000..12_000_i64).prop_map(|ms| Step::Time(ms * 1000)),
        2 => prop::option::weighted(0.9, 0..8_i64).prop_map(Step::Limit),
        1 => (0..3_u8, prop::option::of(0..4_i64)).prop_map(|(group, limit)| Step::GroupLimit(group, limit)),
        1 => (1..20_000_i64).prop_map(|ms| Step::GrantTimeout(ms * 1000)),
        1 => prop::bool::weighted(0.8).prop_map(Step::Policy),
        1 => any_provisioning().prop_map(Step::Leases),
        1 => prop_oneof![
            (1..5_i64).prop_map(Step::PermitsPerLease),
            (1..30_000_i64).prop_map(|ms| Step::LeaseTtl(ms * 1000)),
            any::<bool>().prop_map(Step::LimitedGroups),
        ],
        1 => prop_oneof![
            2 => prop::option::of(5_000..9_000_i64)
                .prop_map(|ms| Step::SettleAfter(ms.map(|ms| ms * 1000))),
            1 => prop::bool::weighted(0.8).prop_map(Step::Serving),
        ],
        1 => prop_oneof![
            (prop::option::of(0..3_u8), prop::bool::weighted(0.3)).prop_map(|(group, on)| Step::Pause(group, on)),
            (0..3_u8, prop::bool::weighted(0.4)).prop_map(|(group, on)| Step::Unresolved(group, on)),
            (0..3_u8, 0..3_u8, prop::bool::weighted(0.4)).prop_map(|(who, group, on)| Step::Forbid(who, group, on)),
        ],
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
    let leases =
        prop::collection::vec((any::<prop::sample::Index>(), 0..7_i64, 0..7_i64, any::<bool>()), 0..4);
    let kind = (
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.7),
        prop::bool::weighted(0.1),
        any_process(),
        prop::bool::weighted(0.1),
    );
    (0..3_u8, seen, 0..3_i64, demand, reports, leases, kind).prop_map(
        |(client, seen, waited, demand, reports, leases, (asks, takes_leases, applied, from, all))| Say {
            client,
            seen,
            waited,
            demand,
            reports,
            leases,
            asks,
            takes_leases,
            applied,
            from,
            all,
        },
    )
}

/// Mostly the same process of each client, now and then a later one, or another one of the same generation.
fn any_process() -> impl Strategy<Value = Incarnation> + Clone {
    let generation = prop_oneof![40 => Just(1_u64), 2 => 0..5_u64];
    let process = prop_oneof![60 => Just(Some("p".to_owned())), 1 => Just(None)];
    (generation, process, any::<bool>()).prop_map(|(generation, process, resumes)| Incarnation {
        generation,
        process,
        resumes,
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
        let mut limits = Limits::of_grants(3, 10_000_000);
        limits.policy.lease_ttl = 20_000_000;
        let key = SemaphoreKey::new("key");
        let mut store = MemoryStore::new();
        store.set_serving_since(Some(DbTime(0)));
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
            Step::Leases(provisioning) => self.limits.policy.provisioning = *provisioning,
            Step::PermitsPerLease(permits) => self.limits.policy.permits_per_lease = *permits,
            Step::LeaseTtl(ttl) => self.limits.policy.lease_ttl = *ttl,
            Step::LimitedGroups(within) => self.limits.policy.leases_within_group_limit = *within,
            Step::SettleAfter(after) => self.limits.policy.settle_after = *after,
            Step::Serving(serves) => self.store.set_serving_since(serves.then_some(self.now)),
            Step::Pause(None, on) => self.limits.policy.paused = *on,
            Step::Pause(Some(group), on) => put(&mut self.limits.policy.paused_groups, group_of(*group), *on),
            Step::Unresolved(group, on) => put(&mut self.limits.unresolved, group_of(*group), *on),
            Step::Forbid(client, group, on) => {
                put(&mut self.limits.not_permitted, (client_of(*client), group_of(*group)), *on);
            }
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
        let leases = say.leases.iter().map(|(at, drawn, released, stopped)| LeaseReport {
            id: named(at),
            drawn: *drawn,
            released: *released,
            stopped: *stopped,
        });
        Call {
            client: client_of(say.client),
            seen,
            waited: say.waited * 500_000,
            asks: say.asks,
            demand: demand.filter(|_| say.asks).collect(),
            grants: reports.collect(),
            leases: leases.collect(),
            takes_leases: say.takes_leases,
            applied: say.applied,
            from: say.from.clone(),
            all: say.all,
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
        self.ghost.look(&case, &before, &after)
    }

    /// Promise P4, by draining: deadlines and ttls pass, everybody releases what it used and stops its leases, and
    /// nothing is counted any more.
    pub(crate) fn everything_comes_back(&mut self) -> Result<(), String> {
        self.now = self.now + 86_400_000_000;
        self.limits.policy.paused = false;
        self.limits.policy.paused_groups.clear();
        self.store.set_limits(&self.key, self.has_policy.then(|| self.limits.clone()));
        self.transact(Work::Timer, Vec::new(), |_, _| Ok(()))?;
        self.transact(Work::Round, Vec::new(), |_, _| Ok(()))?;
        let rows = self.store.rows(&self.key).cloned().unwrap_or_default();
        if let Some(block) = rows.blocks.values().find(|block| block.unclaimed() > 0) {
            return Err(format!("{block:?} has unclaimed permits a day after its deadline"));
        }
        if let Some(lease) = rows.blocks.values().find(|block| self.has_policy && block.is_live_lease()) {
            return Err(format!("{lease:?} is live a day after its last report"));
        }
        for block in rows.blocks.values() {
            let (id, used, released) = (block.id.to_string(), block.used, block.used);
            let mut call = silent(block.client.clone());
            call.from = rows.clients[&block.client].incarnation.clone().unwrap_or_default();
            call.seen = block.id.round;
            match block.kind {
                Kind::Grant => call.grants.push(GrantReport { id, claimed: used, released }),
                Kind::Lease => call.leases.push(LeaseReport { id, drawn: used, released, stopped: true }),
            }
            self.transact(Work::Sync, vec![call], |_, _| Ok(()))?;
        }
        let rows = self.store.rows(&self.key).cloned().unwrap_or_default();
        let counted = (rows.semaphore.grants, rows.semaphore.leases, rows.semaphore.live_leases);
        let left = (counted, rows.blocks.len(), rows.semaphore.batches.len());
        if left == ((0, 0, 0), 0, 0) { Ok(()) } else { Err(format!("left after all came back: {left:?}")) }
    }
}

/// A call that says nothing.
fn silent(client: ClientId) -> Call {
    let (from, demand, grants, leases) = Default::default();
    Call {
        client,
        from,
        seen: 0,
        all: false,
        waited: 0,
        asks: true,
        demand,
        grants,
        leases,
        takes_leases: false,
        applied: false,
    }
}

fn put<T: Ord>(set: &mut BTreeSet<T>, what: T, is_in: bool) {
    if is_in {
        set.insert(what);
    } else {
        set.remove(&what);
    }
}

fn client_of(n: u8) -> ClientId {
    ClientId::new(format!("client-{n}"))
}

fn group_of(n: u8) -> Group {
    Group::new(["", "a", "b"][usize::from(n)])
}

/// One block of nine, reported like this: used and released at the end. A lease is stopped with the highest mark.
pub(crate) fn report_all(kind: Kind, marks: &[(Permits, Permits)]) -> Option<(Permits, Permits)> {
    let mut world = World::new();
    let ok = |_: &Case, _: &Plan| Ok(());
    world.take(&Step::Limit(Some(if kind == Kind::Grant { 9 } else { 1 })), ok).expect("a limit");
    world.take(&Step::Leases(Provisioning::Over { extra: Extra::Permits(9) }), ok).expect("a mode");
    let mut call = silent(ClientId::new("c"));
    call.takes_leases = kind == Kind::Lease;
    call.demand.push(Demand { group: Group::new(""), count: 9, oldest_age: 0 });
    world.transact(Work::Round, vec![call], ok).expect("a round");
    let block = |world: &World| {
        let rows = world.store.rows(&world.key)?;
        rows.blocks.values().find(|block| block.kind == kind).cloned()
    };
    let id = block(&world).expect("a block").id.to_string();
    let last = marks.iter().max().copied();
    for (used, released) in marks {
        let (mut call, id) = (silent(ClientId::new("c")), id.clone());
        let (used, released) = (*used, *released);
        match kind {
            Kind::Grant => call.grants.push(GrantReport { id, claimed: used, released }),
            Kind::Lease => call.leases.push(LeaseReport {
                id,
                drawn: used,
                released,
                stopped: Some((used, released)) == last,
            }),
        }
        world.transact(Work::Sync, vec![call], ok).expect("a sync");
    }
    block(&world).map(|block| (block.used, block.released))
}
