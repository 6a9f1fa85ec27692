//! A holder: who waits, and transactions between their first read and COMMIT.

use super::network::{CallName, Refusal};
use super::translate;
use crate::plant::Plant;
use crate::store::{Limits, MemoryStore, Rows, Transaction};
use pgsemaphore_allocation::{
    Act, Batch, Block, Call, ClientId, DbTime, Extra, Kind, Micros, Permits, Plan, Provisioning,
    SemaphoreKey, Status, Work, round, sync, timer,
};
use queue_client::Endpoint;
use queue_client::wire::{Message, Reply};
use std::collections::BTreeSet;
use std::rc::Rc;

/// A day of the clock, in rounds.
const DAY: u64 = 24 * 3600 * 1_000_000;
/// How often a holder notes whose calls are open: once a second.
const NOTE_EVERY: Micros = 1_000_000;

#[derive(Debug, Default)]
pub(crate) struct Holder {
    pub(crate) frozen: bool,
    requests: Vec<Waiting>,
    /// Something changed that may help requests that are parked.
    pub(crate) roused: bool,
    syncs: Vec<Waiting>,
    /// Syncs whose reports are committed, until there is something to say.
    parked: Vec<Waiting>,
    /// When it last noted whose calls are open, by the database's clock.
    heard_at: Option<DbTime>,
    /// At most one of each kind of work.
    pub(crate) jobs: Vec<Job>,
    /// Only with [`Plant::StaleLimit`].
    highest_limit: Option<Permits>,
}

/// A call whose answer is due.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    pub(crate) name: CallName,
    pub(crate) endpoint: Endpoint,
    pub(crate) message: Rc<Message>,
    pub(crate) arrived: Micros,
    /// Of a parked sync whose reports are committed: it is answered when the client's state is not this one.
    pub(crate) known: Option<String>,
    /// It is answered whatever there is to say.
    pub(crate) due: bool,
    /// Of a parked request: what its latest round said.
    pub(crate) said: Option<Rc<Reply>>,
    /// Its caller has gone away.
    pub(crate) hung_up: bool,
}

impl Waiting {
    pub(crate) fn new(name: CallName, endpoint: Endpoint, message: Rc<Message>, arrived: Micros) -> Self {
        Self { name, endpoint, message, arrived, known: None, due: false, said: None, hung_up: false }
    }

    fn is_of(&self, other: &Self) -> bool {
        let (own, other) = (&self.message, &other.message);
        own.client_id == other.client_id && own.process == other.process
    }

    /// Whether an earlier transaction applied its reports.
    pub(crate) fn is_applied(&self) -> bool {
        self.known.is_some() || self.said.is_some()
    }

    /// Whether it was kept open for as long as it may.
    pub(crate) fn is_over(&self, now: Micros) -> bool {
        now - self.arrived >= i64::try_from(self.message.wait_ms).unwrap_or(0).saturating_mul(1000)
    }
}

/// A transaction that has read and planned, and is not committed.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) work: Work,
    pub(crate) batch: Vec<Waiting>,
    pub(crate) calls: Vec<Call>,
    pub(crate) transaction: Transaction,
    pub(crate) plan: Plan,
    pub(crate) limits: Option<Limits>,
    pub(crate) began: Micros,
}

impl Holder {
    /// Takes a call in; says which calls are superseded by that.
    pub(crate) fn admit(&mut self, call: Waiting) -> Vec<CallName> {
        if call.endpoint == Endpoint::Sync {
            if call.message.wait_ms > 0 {
                self.wake(|parked| parked.is_of(&call));
            }
            self.syncs.push(call);
            return Vec::new();
        }
        self.admit_request(call)
    }

    /// Says which requests of the process are superseded: those that wait, or this one.
    fn admit_request(&mut self, call: Waiting) -> Vec<CallName> {
        let own = |other: &Waiting| other.is_of(&call) && other.message.generation <= call.message.generation;
        let newer = |other: &Waiting| {
            let numbers = call.message.call.zip(other.message.call);
            numbers.is_some_and(|(new, old)| new <= old)
        };
        if self.requests.iter().any(|other| own(other) && newer(other)) {
            return vec![call.name];
        }
        let older = self.requests.extract_if(.., |other| own(other)).map(|old| old.name).collect();
        self.requests.push(call);
        older
    }

    pub(crate) fn has_parked(&self, call: &Waiting) -> bool {
        self.requests.iter().any(|waiting| waiting.said.is_some() && waiting.is_of(call))
    }

    /// A request that a round brought nothing waits on; those that came meanwhile are newer.
    pub(crate) fn put_back(&mut self, call: Waiting) -> Vec<CallName> {
        let newer = std::mem::take(&mut self.requests);
        let all = newer.into_iter().partition::<Vec<_>, _>(|waiting| waiting.said.is_some());
        let all = all.0.into_iter().chain([call]).chain(all.1);
        all.flat_map(|call| self.admit_request(call)).collect()
    }

    /// Takes the parked requests out that were kept for as long as they may.
    pub(crate) fn conclude(&mut self, now: Micros) -> Vec<Waiting> {
        self.requests.extract_if(.., |waiting| waiting.said.is_some() && waiting.is_over(now)).collect()
    }

    /// A caller that has gone away leaves before the round.
    pub(crate) fn hang_up(&mut self, name: &CallName) {
        self.requests.retain(|waiting| waiting.name != *name);
        self.parked.retain(|waiting| waiting.name != *name);
        let under_way = self.jobs.iter_mut().flat_map(|job| &mut job.batch);
        under_way.filter(|waiting| waiting.name == *name).for_each(|waiting| waiting.hung_up = true);
    }

    /// These parked syncs are answered by the next transaction; says whether there are any.
    pub(crate) fn wake(&mut self, which: impl Fn(&Waiting) -> bool) -> bool {
        let (woken, parked): (Vec<_>, _) = std::mem::take(&mut self.parked).into_iter().partition(which);
        self.parked = parked;
        let any = !woken.is_empty();
        self.syncs.extend(woken.into_iter().map(|waiting| Waiting { due: true, ..waiting }));
        any
    }

    /// Parked syncs are looked at again; says whether there are any.
    pub(crate) fn look_again(&mut self) -> bool {
        let any = !self.parked.is_empty();
        self.syncs.append(&mut self.parked);
        any
    }

    /// Clients with a call that is open here, of a process that is not shut out.
    pub(crate) fn open_calls(&self, rows: Option<&Rows>) -> BTreeSet<ClientId> {
        let under_way = self.jobs.iter().flat_map(|job| &job.batch);
        let waiting = self.requests.iter().chain(&self.syncs).chain(&self.parked).chain(under_way);
        let open = waiting
            .filter(|waiting| !waiting.hung_up && rows.is_some_and(|rows| rows.admits(&waiting.message)));
        open.map(|waiting| ClientId::new(waiting.message.client_id.as_str())).collect()
    }

    /// Whether it is time to note whose calls are open. The clock may have been set back.
    pub(crate) fn notes_open_calls(&mut self, now: DbTime) -> bool {
        let due = self.heard_at.is_none_or(|at| now < at || now - at >= NOTE_EVERY);
        if due {
            self.heard_at = Some(now);
        }
        due
    }

    pub(crate) fn park(&mut self, call: Waiting) {
        self.parked.push(call);
    }

    /// The calls for a transaction of this kind that starts now, if one is due.
    /// Syncs may share a round.
    pub(crate) fn take(&mut self, work: Work, shared: bool, plant: Option<Plant>) -> Option<Vec<Waiting>> {
        if work == Work::Round {
            let mut calls = self.take_requests(plant)?;
            if shared {
                calls.splice(0..0, self.syncs.drain(..));
            }
            return Some(calls);
        }
        let waiting = match work {
            Work::Sync => &mut self.syncs,
            Work::Round | Work::Timer => &mut Vec::new(),
        };
        let busy = self.jobs.iter().any(|job| job.work == work);
        let wanted = !busy && (work == Work::Timer || !waiting.is_empty());
        wanted.then(|| std::mem::take(waiting))
    }

    /// Only a new request opens a round by itself.
    fn take_requests(&mut self, plant: Option<Plant>) -> Option<Vec<Waiting>> {
        let busy = self.jobs.iter().any(|job| job.work == Work::Round);
        let new = self.requests.iter().any(|waiting| waiting.said.is_none());
        if busy || self.requests.is_empty() || !(new || self.roused) {
            return None;
        }
        self.roused = false;
        let wakes = |waiting: &mut Waiting| plant != Some(Plant::NeverWakes) || waiting.said.is_none();
        let requests: Vec<_> = self.requests.extract_if(.., wakes).collect();
        (!requests.is_empty()).then_some(requests)
    }

    /// It starts anew and knows nothing; says whose connections broke.
    pub(crate) fn crash(&mut self) -> Vec<CallName> {
        let dead = std::mem::take(self);
        let jobs = dead.jobs.into_iter().flat_map(|job| job.batch);
        let waiting = dead.requests.into_iter().chain(dead.syncs).chain(dead.parked);
        waiting.chain(jobs).map(|waiting| waiting.name).collect()
    }

    /// Reads and plans.
    pub(crate) fn begin(
        &mut self,
        store: &mut MemoryStore,
        key: &SemaphoreKey,
        (work, batch): (Work, Vec<Waiting>),
        (began, now): (Micros, DbTime),
        plant: Option<Plant>,
    ) -> Job {
        let call = |waiting: &Waiting| {
            let call = translate::call(&waiting.message, waiting.endpoint, began - waiting.arrived);
            let again = plant == Some(Plant::ReappliesParked) && waiting.said.is_some();
            Call { applied: waiting.is_applied() && !again, ..call }
        };
        let mut calls: Vec<Call> = batch.iter().map(call).collect();
        let mut transaction = store.begin(key, work, &calls, now);
        let limits = store.limits(key).cloned();
        if plant != Some(Plant::ParkedUnheard) {
            transaction.state.open_calls = self.open_calls(store.rows(key));
        }
        if let Some(plant) = plant {
            self.tamper(plant, &mut transaction, &mut calls, limits.as_ref());
            if plant == Plant::ReclaimsClaimed && work != Work::Sync {
                due_although_claimed(&mut transaction, store.rows(key));
            }
        }
        let mut plan = match work {
            Work::Round => round(&transaction.state, &calls),
            Work::Sync => sync(&transaction.state, &calls),
            Work::Timer => timer(&transaction.state),
        };
        if plant == Some(Plant::ResumedStayLive) {
            leave_live(&transaction, &mut plan);
        }
        Job { work, batch, calls, transaction, plan, limits, began }
    }

    fn tamper(
        &mut self,
        plant: Plant,
        transaction: &mut Transaction,
        calls: &mut [Call],
        limits: Option<&Limits>,
    ) {
        let state = &mut transaction.state;
        match plant {
            Plant::StaleLimit => {
                let resolved = limits.and_then(|limits| limits.policy.limit);
                self.highest_limit = self.highest_limit.max(resolved);
                state.policy.iter_mut().for_each(|policy| policy.limit = self.highest_limit);
            }
            Plant::NoGroupCeilings => state.groups.values_mut().for_each(|usage| usage.limit = None),
            Plant::NeverReclaims => state.due.clear(),
            Plant::YoungestFirst => {
                let entries = calls.iter_mut().flat_map(|call| &mut call.demand);
                entries.for_each(|demand| demand.oldest_age = -demand.oldest_age);
            }
            Plant::AddsReleasesOfLeases => {
                for report in calls.iter_mut().flat_map(|call| &mut call.leases) {
                    let lease = state.blocks.values().find(|block| block.id.to_string() == report.id);
                    report.released += lease.map_or(0, |lease| lease.released);
                }
            }
            Plant::AddsReports | Plant::BelievesReleases => {
                for report in calls.iter_mut().flat_map(|call| &mut call.grants) {
                    let block = state.blocks.values().find(|block| block.id.to_string() == report.id);
                    let Some(block) = block else { continue };
                    if plant == Plant::AddsReports {
                        report.released += block.released;
                    } else {
                        report.claimed = report.claimed.min(block.permits);
                    }
                }
            }
            Plant::LeasesAboveBudget => {
                for policy in state.policy.iter_mut().filter(|p| p.provisioning != Provisioning::None) {
                    let limit = policy.limit.unwrap_or(0);
                    policy.provisioning = Provisioning::Over { extra: Extra::Permits(limit + 5) };
                }
            }
            Plant::FreesRetired | Plant::HeartbeatFrees => {
                for report in calls.iter_mut().flat_map(|call| &mut call.leases) {
                    let lease = state.blocks.values().find(|block| block.id.to_string() == report.id);
                    let Some(lease) = lease.filter(|lease| !lease.stopped) else { continue };
                    match (plant, lease.status) {
                        (Plant::FreesRetired, Status::Retired) => report.stopped = true,
                        (Plant::HeartbeatFrees, Status::Active) => {
                            report.released += lease.permits - report.drawn;
                            report.drawn = lease.permits;
                        }
                        _ => {}
                    }
                }
            }
            Plant::NoFencing => {
                for call in calls.iter() {
                    let Some(client) = state.clients.get_mut(&call.client) else { continue };
                    (client.incarnation, client.lowest_generation) = (None, 0);
                }
            }
            Plant::SameGeneration => {
                for call in calls.iter() {
                    let client = state.clients.get_mut(&call.client);
                    let own = client.and_then(|client| client.incarnation.as_mut());
                    own.into_iter()
                        .filter(|own| own.generation == call.from.generation)
                        .for_each(|own| own.process.clone_from(&call.from.process));
                }
            }
            Plant::TakeoverKeeps => calls.iter_mut().for_each(|call| call.from.resumes = true),
            Plant::AllSettlesUnseen => {
                let round = state.semaphore.round;
                calls.iter_mut().filter(|call| call.all).for_each(|call| call.seen = call.seen.max(round));
            }
            Plant::MovingBound => {
                let round = state.semaphore.round;
                let ahead = calls.iter().map(|call| call.seen).filter(|seen| *seen <= round + DAY).max();
                state.semaphore.round = ahead.map_or(round, |seen| seen.max(round));
            }
            Plant::SilentForEver | Plant::RetiresAll => {
                let leases = state.blocks.values_mut().filter(|block| block.kind == Kind::Lease);
                let ttl = if plant == Plant::RetiresAll { 0 } else { i64::MAX / 4 };
                leases.for_each(|lease| lease.ttl = ttl);
            }
            _ => {}
        }
    }
}

impl Job {
    /// What each caller is told.
    pub(crate) fn answers(&self, plant: Option<Plant>) -> Vec<(Waiting, Result<Reply, Refusal>)> {
        let outcomes = self.plan.answers.iter().cloned();
        let told = self.batch.iter().zip(outcomes).map(|(waiting, outcome)| {
            let held = self.began - waiting.arrived;
            let mut answer = translate::answer(outcome, self.plan.now, held);
            if let Ok(reply) = &mut answer {
                conceal(reply, waiting, plant);
            }
            (waiting.clone(), answer)
        });
        told.collect()
    }
}

/// [`Plant::ResumedStayLive`].
fn leave_live(transaction: &Transaction, plan: &mut Plan) {
    let resumed = Act::Takeover { resume: true };
    let clients = plan.audit.iter().filter(|entry| entry.act == resumed).map(|entry| &entry.client);
    let clients: BTreeSet<_> = clients.cloned().collect();
    let live = transaction.state.blocks.values().filter(|lease| lease.is_live_lease());
    for lease in live.filter(|lease| clients.contains(&lease.client)) {
        if let Some(Some(resumed)) = plan.blocks.get_mut(&lease.id.slot) {
            resumed.status = Status::Active;
        }
    }
}

/// [`Plant::ReclaimsClaimed`].
fn due_although_claimed(transaction: &mut Transaction, rows: Option<&Rows>) {
    let state = &mut transaction.state;
    let now = state.now;
    let blocks = rows.into_iter().flat_map(|rows| rows.blocks.values());
    let claimed =
        blocks.filter(|block| block.deadline <= now && block.batch.is_none() && block.released == 0);
    let claimed = claimed
        .filter(|block| state.groups.contains_key(&block.group) && state.clients.contains_key(&block.client));
    let due: Vec<Block> = claimed.map(|block| Block { used: 0, batch: Some(N), ..block.clone() }).collect();
    const N: i32 = 1_000;
    let open = i32::try_from(due.len()).unwrap_or(i32::MAX);
    if open > 0 {
        state.semaphore.batches.push(Batch { n: N, deadline: now, open });
        state.due.insert(N, due.iter().map(|block| block.id.slot).collect());
        state.blocks.extend(due.into_iter().map(|block| (block.id.slot, block)));
    }
}

fn conceal(reply: &mut Reply, waiting: &Waiting, plant: Option<Plant>) {
    let message = &waiting.message;
    match plant {
        Some(Plant::ConcealsContended) => (reply.contended, reply.contended_groups) = (false, Vec::new()),
        Some(Plant::StaleState) => reply.state = waiting.known.clone().unwrap_or(reply.state.clone()),
        Some(Plant::Unexplained) => reply.blocked.clear(),
        Some(Plant::NoRedelivery) => {
            let reported = |id: &str| message.grants.iter().flatten().any(|report| report.id == id);
            let newest = reply.round;
            reply.grants.retain(|verdict| verdict.round == Some(newest) || reported(&verdict.id));
        }
        Some(Plant::NoRedeliveryOfLeases) => {
            let reported = |id: &str| message.leases.iter().flatten().any(|report| report.id == id);
            let newest = reply.round;
            reply.leases.retain(|verdict| verdict.round == Some(newest) || reported(&verdict.id));
        }
        _ => {}
    }
}
