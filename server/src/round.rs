//! The shell of a round: one SERIALIZABLE transaction around the pure allocation, repeated whole on conflicts.
//!
//! `take -> load -> plan -> check -> apply -> COMMIT`, for rounds, batches of syncs and timers alike. Parked syncs that are
//! looked at again change nothing: such a look reads one snapshot, takes no lock and writes nothing. Authoritative for the
//! order of these steps. On a failure nothing is known to have been done and the callers are told so, never a guess.

use crate::metrics;
use crate::stirred::Stirred;
use crate::store::{
    self, Attempt, Body, FunctionCall, Loaded, Missing, Phase, Prepared, Ran, Step, Store, StoreError, Taken,
    Timing,
};
use pgsemaphore_allocation::{
    Audit, Call, Client, ClientId, DbTime, Demand, GrantReport, Incarnation, LeaseReport, Outcome, Plan,
    Refused, Semaphore, SemaphoreKey, State, Tally, Work, check, round, sync, timer,
};
use std::time::{Duration, Instant};

/// Rows may be missing this often in a row: for a key that is new, and again for one that was forgotten meanwhile.
const PREPARE_MAX: usize = 5;

/// A call as it was heard, before the transaction that answers it.
#[derive(Debug, Clone)]
pub struct Heard {
    /// Who speaks.
    pub client: ClientId,
    /// Which of its processes.
    pub from: Incarnation,
    /// The highest round it has heard of.
    pub seen: u64,
    /// Whether the reports name every block of rounds up to `seen` that the process holds.
    pub all: bool,
    /// When it arrived, by this process's clock.
    pub arrival: Instant,
    /// Whether it is a request.
    pub asks: bool,
    /// What is queued, each group once; nothing in a sync.
    pub demand: Vec<Demand>,
    /// Reports of grants, as they came.
    pub grants: Vec<GrantReport>,
    /// Reports of leases, as they came.
    pub leases: Vec<LeaseReport>,
    /// Whether the client can hold leases.
    pub takes_leases: bool,
    /// Whether its reports were committed already: a parked call is looked at again.
    pub applied: bool,
}

impl Heard {
    /// Whether permits may come back by its reports.
    pub(crate) fn gives_back(&self) -> bool {
        let grants = self.grants.iter().any(|grant| grant.released > 0);
        let leases = self.leases.iter().any(|lease| lease.released > 0 || lease.stopped);
        !self.applied && (grants || leases)
    }

    /// The call as the round sees it that held the key's row at `anchor`.
    pub fn call(&self, anchor: Instant) -> Call {
        let waited = anchor.saturating_duration_since(self.arrival).as_micros();
        Call {
            client: self.client.clone(),
            from: self.from.clone(),
            seen: self.seen,
            all: self.all,
            waited: i64::try_from(waited).unwrap_or(i64::MAX),
            asks: self.asks,
            demand: self.demand.clone(),
            grants: self.grants.clone(),
            leases: self.leases.clone(),
            takes_leases: self.takes_leases,
            applied: self.applied,
        }
    }
}

/// What a transaction did.
#[derive(Debug)]
pub struct Turn {
    /// One for each call, or nothing where a round was too early.
    pub result: TurnResult,
    /// The database's clock when the key's row was held.
    pub now: DbTime,
    /// A moment of this process's clock that is not before `now`.
    pub anchor: Instant,
    /// When rounds may start, by the policy as it was then.
    pub(crate) timing: Option<Timing>,
    /// When the key is next due without a message.
    pub(crate) next_deadline: Option<Instant>,
    /// What was declared in it.
    pub audit: Vec<Audit>,
    /// Functions of users that were asked.
    pub(crate) asked: Vec<FunctionCall>,
    /// What others may be waiting for.
    pub(crate) stirred: Stirred,
    /// The key's latest round.
    pub(crate) round: u64,
    /// The version of the key's row before and after; none where it has no row.
    pub(crate) versions: Option<(i64, i64)>,
    /// What was committed, in numbers; none if it was rolled back.
    pub(crate) tally: Option<Tally>,
}

/// When a round may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Not closer than this to the last one.
    Period(Duration),
    /// At once, whenever the last one was, if it leaves nobody's demand waiting.
    Eager,
}

/// Whether a transaction answered its calls.
#[derive(Debug)]
pub enum TurnResult {
    /// One outcome for each call, in their order; none for a request whose caller hung up before the row was held.
    Outcomes(Vec<Option<Outcome>>),
    /// Every caller hung up before the row was held; nothing was done.
    Abandoned,
    /// An eager round would have left somebody waiting; nothing was done.
    NotEager,
    /// Another round was less than a period ago; nothing was done. Ask again after this.
    TooEarly(Duration),
}

/// How an attempt comes out.
enum Attempted {
    Done(Box<Turn>),
    Missing(Missing),
    /// It was to be a look, and there is something to write.
    MustWrite,
}

/// Tells by a call's index whether its caller still waits for the answer.
pub type StillWaits<'a> = &'a (dyn Fn(usize) -> bool + Sync);

/// Runs one transaction for `calls`. `pace`: when a round may start; without effect on others.
///
/// Each attempt asks `still_waits` once it holds the key's row: a request whose caller hung up by then takes no permits
/// and its reports are not applied, however long the transaction waited for the row. A sync only reports, so it is
/// applied all the same.
///
/// # Errors
/// [`StoreError`] when it was given up; nothing is known to have been done.
pub async fn transact(
    store: &Store,
    key: &SemaphoreKey,
    work: Work,
    pace: Pace,
    calls: &[Heard],
    still_waits: StillWaits<'_>,
) -> Result<Turn, StoreError> {
    let looks = work == Work::Sync && !calls.is_empty() && calls.iter().all(|call| call.applied);
    let prepared = Prepared::default();
    let body = Transaction { key, work, pace, calls, still_waits, moment: None, prepared, looks };
    let ran = run(store, body).await;
    metrics::report(store.metrics(), key, work, calls, ran.as_ref());
    ran.map(|ran| ran.value)
}

/// A moment by both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// By the database's clock.
    pub now: DbTime,
    /// By this process's clock.
    pub anchor: Instant,
}

/// As [`transact`], at a moment that is given instead of read, for tests that need hours to pass. No pace, no metrics.
///
/// # Errors
/// As of [`transact`].
pub async fn transact_at(
    store: &Store,
    key: &SemaphoreKey,
    work: Work,
    calls: &[Heard],
    moment: Moment,
) -> Result<Turn, StoreError> {
    let (pace, prepared) = (Pace::Period(Duration::ZERO), Prepared::default());
    let (still_waits, looks): (StillWaits<'_>, _) = (&|_| true, false);
    let body = Transaction { key, work, pace, calls, still_waits, moment: Some(moment), prepared, looks };
    run(store, body).await.map(|ran| ran.value)
}

async fn run(store: &Store, mut body: Transaction<'_>) -> Result<Ran<Turn>, StoreError> {
    let Transaction { key, work, .. } = body;
    let mut before = 0;
    for _ in 0..PREPARE_MAX {
        let Ran { value, attempts, phases } = store.transaction(name(work), key, &body).await?;
        match value {
            Attempted::Done(turn) => return Ok(Ran { value: *turn, attempts: before + attempts, phases }),
            Attempted::Missing(missing) if !body.looks => {
                body.prepared = store.prepare(key, &missing).await?;
            }
            Attempted::Missing(_) | Attempted::MustWrite => body.looks = false,
        }
        before += attempts;
    }
    Err(StoreError::Fenced)
}

/// What a kind of transaction is called in logs and metrics.
pub(crate) fn name(work: Work) -> &'static str {
    match work {
        Work::Round => "round",
        Work::Sync => "sync",
        Work::Timer => "timer",
    }
}

struct Transaction<'a> {
    key: &'a SemaphoreKey,
    work: Work,
    pace: Pace,
    calls: &'a [Heard],
    still_waits: StillWaits<'a>,
    moment: Option<Moment>,
    prepared: Prepared,
    /// All calls were heard before: unless something has to be written, it only reads.
    looks: bool,
}

impl Transaction<'_> {
    /// Which calls take part.
    fn present(&self) -> Vec<bool> {
        self.calls.iter().enumerate().map(|(at, call)| !call.asks || (self.still_waits)(at)).collect()
    }
}

impl Body for Transaction<'_> {
    type Output = Attempted;

    fn begin(&self) -> &'static str {
        if self.looks {
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        } else {
            "BEGIN ISOLATION LEVEL SERIALIZABLE"
        }
    }

    async fn run(&self, attempt: &mut Attempt) -> Result<Step<Attempted>, StoreError> {
        let Self { key, work, prepared, looks, .. } = *self;
        let mut taken =
            if looks { store::look_at(attempt, key).await? } else { store::take(attempt, key).await? };
        if let Some(Moment { now, anchor }) = self.moment {
            (taken.now, taken.anchor) = (now, anchor);
        }
        attempt.phases.end(Phase::Take);
        let present = self.present();
        let heard = self.calls.iter().zip(&present).filter(|(_, present)| **present);
        let calls: Vec<Call> = heard.map(|(heard, _)| heard.call(taken.anchor)).collect();
        if calls.is_empty() && !self.calls.is_empty() {
            let nothing = Semaphore::default();
            let semaphore = taken.semaphore.as_ref().unwrap_or(&nothing);
            let turn = turn(&taken, semaphore, TurnResult::Abandoned, Stirred::nothing());
            return Ok(Step::RollBack(Attempted::Done(Box::new(turn))));
        }
        let Some(mut semaphore) = taken.semaphore.take() else {
            // A client of a key that was forgotten may still be fenced.
            let known = work == Work::Sync && store::knows_clients(attempt, key, &calls).await?;
            return Ok(Step::RollBack(without_row(&taken, work, &calls, &present, known)));
        };
        if let Some(remaining) = too_early(&taken, &semaphore, work, self.pace) {
            let turn = turn(&taken, &semaphore, TurnResult::TooEarly(remaining), Stirred::nothing());
            return Ok(Step::RollBack(Attempted::Done(Box::new(turn))));
        }
        if self.pace == Pace::Eager && store::is_anybody_blocked(attempt, key).await? {
            return Ok(Step::RollBack(not_eager(&taken, &semaphore)));
        }
        semaphore.slot_cap = semaphore.slot_cap.max(prepared.slot_cap);
        taken.batch_cap = taken.batch_cap.max(prepared.batch_cap);
        let (state, asked) = match store::load(attempt, key, &taken, semaphore, work, &calls).await? {
            Loaded::State(state, asked) => (state, asked),
            Loaded::Missing(missing) => return Ok(Step::RollBack(Attempted::Missing(missing))),
        };
        attempt.phases.end(Phase::Load);
        let mut plan = plan(work, &state, &calls)?;
        attempt.phases.end(Phase::Plan);
        if self.pace == Pace::Eager && plan.answers.iter().any(lacks_something) {
            return Ok(Step::RollBack(not_eager(&taken, &state.semaphore)));
        }
        if looks && !writes_nothing(&state, &plan) {
            return Ok(Step::RollBack(Attempted::MustWrite));
        }
        let stirred = Stirred::by(&state, &plan, &calls);
        let outcomes = outcomes(&present, std::mem::take(&mut plan.answers));
        let done = turn(&taken, &plan.semaphore, outcomes, stirred);
        if looks {
            return Ok(Step::RollBack(Attempted::Done(Box::new(Turn { asked, ..done }))));
        }
        store::apply(attempt, key, &plan, work, taken.batch_cap).await?;
        attempt.phases.end(Phase::Apply);
        let versions = taken.version.map(|before| (before, before + 1));
        let done = Turn { audit: plan.audit, asked, tally: Some(plan.tally), versions, ..done };
        Ok(Step::Commit(Attempted::Done(Box::new(done))))
    }
}

/// Whether a plan changes nothing but when clients were last heard, which open calls tell anyway.
fn writes_nothing(state: &State, plan: &Plan) -> bool {
    let is_as_before = |(id, after): (&ClientId, &Client)| {
        state
            .clients
            .get(id)
            .is_some_and(|before| Client { last_seen: before.last_seen, ..after.clone() } == *before)
    };
    plan.blocks.is_empty()
        && plan.groups.is_empty()
        && plan.pending.is_empty()
        && plan.audit.is_empty()
        && plan.clients.iter().all(is_as_before)
}

fn plan(work: Work, state: &State, calls: &[Call]) -> Result<Plan, StoreError> {
    let plan = match work {
        Work::Round => round(state, calls),
        Work::Sync => sync(state, calls),
        Work::Timer => timer(state),
    };
    check(work, state, calls, &plan).map_err(StoreError::Violation)?;
    Ok(plan)
}

/// A key without a row: refused where no policy covers it; a sync is answered without writing anything; for a round, a
/// sync that has seen rounds, or one of a client that is known, the row is made.
fn without_row(taken: &Taken, work: Work, calls: &[Call], present: &[bool], known: bool) -> Attempted {
    let nothing = Semaphore::default();
    let answers = if taken.policy.is_none() {
        calls.iter().map(|_| Outcome::Refused(Refused::NoPolicy)).collect()
    } else if work == Work::Round || known || calls.iter().any(|call| call.seen > 0) {
        return Attempted::Missing(Missing::default());
    } else {
        let policy = taken.policy.as_ref().map(|(policy, _)| policy.clone());
        sync(&State::new(taken.now, nothing.clone(), policy), calls).answers
    };
    Attempted::Done(Box::new(turn(taken, &nothing, outcomes(present, answers), Stirred::nothing())))
}

/// Gives each call that was present its answer.
fn outcomes(present: &[bool], answers: Vec<Outcome>) -> TurnResult {
    let mut answers = answers.into_iter();
    TurnResult::Outcomes(present.iter().map(|present| present.then(|| answers.next()).flatten()).collect())
}

/// How long until a round may start, where that is in the future. A last round that the clock has not reached yet was
/// before the clock was set back, and holds up nothing.
fn too_early(taken: &Taken, semaphore: &Semaphore, work: Work, pace: Pace) -> Option<Duration> {
    let Pace::Period(period) = pace else { return None };
    let last = semaphore.last_round_at.filter(|_| work == Work::Round && taken.policy.is_some())?;
    let since = u64::try_from(taken.now - last).ok()?;
    period.checked_sub(Duration::from_micros(since)).filter(|remaining| !remaining.is_zero())
}

fn not_eager(taken: &Taken, semaphore: &Semaphore) -> Attempted {
    Attempted::Done(Box::new(turn(taken, semaphore, TurnResult::NotEager, Stirred::nothing())))
}

fn lacks_something(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Answered(answer) if !answer.blocked.is_empty())
}

fn turn(taken: &Taken, semaphore: &Semaphore, result: TurnResult, stirred: Stirred) -> Turn {
    let until = |deadline: DbTime| Duration::from_micros(u64::try_from(deadline - taken.now).unwrap_or(0));
    Turn {
        result,
        now: taken.now,
        anchor: taken.anchor,
        timing: taken.policy.as_ref().map(|(_, timing)| *timing),
        next_deadline: semaphore.next_deadline().map(|deadline| taken.anchor + until(deadline)),
        audit: Vec::new(),
        asked: Vec::new(),
        stirred,
        round: semaphore.round,
        versions: taken.version.map(|version| (version, version)),
        tally: None,
    }
}
