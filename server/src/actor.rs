//! One actor per active key: decides when the key's next transaction starts, and never has two under way.
//!
//! Authoritative for round wait and period as this process sees them (the transaction checks the period again), for
//! batching syncs, and for deadlines of keys in memory. It holds nothing that matters: if it ends, callers get an error
//! and ask again, and the scan for due keys starts another actor.

use crate::changes::Changes;
use crate::claims::Claims;
use crate::clock;
use crate::functions::Failing;
use crate::hints::News;
use crate::holder::Shared;
use crate::panics;
use crate::parked::Parked;
use crate::pending::Pending;
use crate::refusal::Refusal;
use crate::reply::Said;
use crate::round::{self, Pace, TurnResult};
use crate::speaker::Speaker;
use crate::stirred::Stirred;
use crate::store::{FunctionCall, StoreError, Timing};
use crate::telemetry::spans;
use crate::trouble;
use crate::waiting::Waiting;
use pgsemaphore_allocation::{Block, ClientId, Kind, Outcome, SemaphoreKey, Work};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tracing::Instrument as _;

/// An actor without work ends after this.
const IDLE: Duration = Duration::from_secs(5);
/// An actor stays for a deadline that is this close; later ones are found by the scan for due keys.
pub(crate) const HORIZON: Duration = Duration::from_secs(10);
/// How long the timing of rounds is believed without being told that policies changed.
const TIMING_LIFETIME: Duration = Duration::from_secs(5);

/// What an actor is told.
pub(crate) enum Command {
    Call(Box<Pending>),
    /// Something is due at this moment, without a message.
    Due(Instant),
    /// A newer request of this process waits at another holder.
    GiveWay(Speaker),
    /// A transaction beside the actor's changed something of the key.
    Changed,
    /// A hint came, and the key's row was at this version after it.
    Hint(News, i64),
    /// Which policy wins, and as of when; none if no policy covers the key.
    Policy(Option<i64>),
}

/// When the next round starts, and how close it may follow the last one.
#[derive(Clone, Copy)]
struct Opening {
    at: Instant,
    period: Duration,
}

/// What a task that was under way leaves.
enum Finished {
    Looked(Result<Option<Timing>, StoreError>),
    Turned { work: Work, turn: Option<Summary>, returned: Vec<Pending> },
    Panicked,
}

/// What the actor keeps of a transaction.
struct Summary {
    anchor: Instant,
    timing: Option<Timing>,
    next_deadline: Option<Instant>,
    versions: Option<(i64, i64)>,
    too_early: Option<Duration>,
    /// Nothing was allocated: an eager request did not fit, or every caller had hung up.
    no_round: bool,
    /// Who was given permits.
    claimants: BTreeSet<ClientId>,
    stirred: Stirred,
    asked: Vec<FunctionCall>,
}

pub(crate) struct Actor {
    key: SemaphoreKey,
    shared: Arc<Shared>,
    inbox: UnboundedReceiver<Command>,
    waiting: Waiting,
    syncs: Vec<Pending>,
    claims: Claims,
    parked: Parked,
    failing: Failing,
    changes: Changes,
    running: Option<JoinHandle<Finished>>,
    /// Timing of rounds, when it was read, and how many policies were changed through this holder by then.
    timing: Option<(Timing, Instant, u64)>,
    /// The policy that wins, as far as is known.
    policy: Option<Option<i64>>,
    /// What is under way began before the policy changed.
    reads_old_policy: bool,
    last_round: Option<Instant>,
    opening: Option<Opening>,
    deadline: Option<Instant>,
    timer_ran_last: bool,
    active_at: Instant,
}

impl Actor {
    pub(crate) fn new(key: SemaphoreKey, shared: Arc<Shared>, inbox: UnboundedReceiver<Command>) -> Self {
        Self {
            key,
            shared,
            inbox,
            waiting: Waiting::default(),
            syncs: Vec::new(),
            claims: Claims::default(),
            parked: Parked::default(),
            failing: Failing::default(),
            changes: Changes::default(),
            running: None,
            timing: None,
            policy: None,
            reads_old_policy: false,
            last_round: None,
            opening: None,
            deadline: None,
            timer_ran_last: false,
            active_at: clock::now(),
        }
    }

    /// Works until the key is idle or the holder stops.
    pub(crate) async fn run(mut self) {
        let stop = self.shared.stop.clone();
        loop {
            self.start_next();
            let wake = self.next_wake();
            tokio::select! {
                command = self.inbox.recv() => match command {
                    Some(command) => self.hear(command),
                    None => return,
                },
                finished = join(&mut self.running) => self.finish(finished),
                () = tokio::time::sleep_until(wake.into()) => if self.leave_if_idle() { return },
                () = stop.cancelled() => return self.stop().await,
            }
        }
    }

    fn hear(&mut self, command: Command) {
        match command {
            Command::Call(call) => {
                self.active_at = clock::now();
                self.claims.heard(&call.heard.client);
                if call.heard.asks { self.waiting.admit(*call) } else { self.syncs.push(*call) }
            }
            Command::Due(at) => {
                self.active_at = clock::now();
                self.deadline = Some(self.deadline.map_or(at, |deadline| deadline.min(at)));
            }
            Command::GiveWay(new) => self.waiting.give_way(&new),
            Command::Changed => self.changes.assume(),
            Command::Hint(news, version) => self.changes.hear(news, version),
            Command::Policy(policy) => self.hear_of_policy(policy),
        }
    }

    /// Another policy may change when rounds start, and what parked calls hear.
    fn hear_of_policy(&mut self, policy: Option<i64>) {
        if self.policy.replace(policy) != Some(policy) {
            (self.timing, self.opening) = (None, None);
            self.reads_old_policy = self.running.is_some();
            self.changes.assume();
        }
    }

    /// Has those who are parked looked at whom this may concern.
    fn hear_news(&mut self, news: News) {
        self.waiting.rouse();
        if news == News::Changed {
            self.look_at(Parked::take_all);
        }
    }

    /// Starts what is to be done now, unless something is under way.
    fn start_next(&mut self) {
        if self.running.is_some() {
            return;
        }
        if let Some(news) = self.changes.take() {
            self.hear_news(news);
        }
        let now = clock::now();
        self.waiting.conclude(now);
        if self.claims.awaited_until(now).is_some() {
            return;
        }
        if self.waiting.has_parked() && self.syncs.iter().any(|sync| sync.heard.gives_back()) {
            // What comes back with them can be given on in the same transaction.
            self.waiting.rouse();
        }
        if self.needs_opening(now) && !self.plan_opening(now) {
            let (shared, key) = (self.shared.clone(), self.key.clone());
            let look = async move { Finished::Looked(shared.store.timing(&key).await) };
            return self.run_task(look);
        }
        if let Some(request) = self.take_eager(now) {
            self.opening = None;
            return self.start(Work::Round, Pace::Eager, vec![request]);
        }
        self.look_at(|parked| parked.take_due(now));
        let opening = self.opening.take_if(|opening| opening.at <= now);
        let requests = opening.map_or_else(Vec::new, |_| self.waiting.take(now));
        let syncs = std::mem::take(&mut self.syncs);
        if let Some(opening) = opening.filter(|_| !requests.is_empty()) {
            let calls = syncs.into_iter().chain(requests).collect();
            return self.start(Work::Round, Pace::Period(opening.period), calls);
        }
        // What is due and syncs take turns, so that neither waits for the other for long. A round does what is due itself.
        let due = self.deadline.is_some_and(|deadline| deadline <= now);
        if due && (syncs.is_empty() || !self.timer_ran_last) {
            (self.deadline, self.syncs) = (None, syncs);
            return self.start(Work::Timer, Pace::Period(Duration::ZERO), Vec::new());
        }
        if !syncs.is_empty() {
            self.start(Work::Sync, Pace::Period(Duration::ZERO), syncs);
        }
    }

    /// The request that need not wait for the round that is planned: the policy is eager, and nobody else waits.
    fn take_eager(&mut self, now: Instant) -> Option<Pending> {
        let eager = self.timing.is_some_and(|(timing, _, _)| timing.eager);
        let later = self.opening.is_some_and(|opening| opening.at > now);
        if eager && later { self.waiting.take_alone() } else { None }
    }

    fn needs_opening(&self, now: Instant) -> bool {
        self.opening.is_none() && self.waiting.first_arrival().is_some() || self.waiting.wants_round(now)
    }

    /// Decides when the next round starts: after the wait of its first new request, and at once if there is reason to
    /// hope for those who are parked. False: the timing must be looked up first.
    fn plan_opening(&mut self, now: Instant) -> bool {
        let Some((timing, read_at, epoch)) = self.timing else { return false };
        if epoch != self.shared.policies.own() || read_at.elapsed() > TIMING_LIFETIME {
            return false;
        }
        let parked = self.waiting.wants_round(now).then_some(now);
        let new = self.waiting.first_arrival().map(|first| first + timing.wait);
        let earliest = self.last_round.map_or(now, |last| last + timing.period);
        if let Some(at) = parked.or(new) {
            self.open(Opening { at: at.max(earliest), period: timing.period }, now);
        }
        true
    }

    /// Plans the next round, unless it starts sooner already.
    fn open(&mut self, opening: Opening, now: Instant) {
        self.waiting.round_is_planned(now);
        if self.opening.is_none_or(|planned| opening.at < planned.at) {
            self.opening = Some(opening);
        }
    }

    fn start(&mut self, work: Work, pace: Pace, calls: Vec<Pending>) {
        let callers = calls.iter().map(|call| &call.caller.span);
        let span = spans::of_transaction(&self.key, round::name(work), callers);
        let turn = execute(self.shared.clone(), self.key.clone(), work, pace, calls).instrument(span);
        self.timer_ran_last = work == Work::Timer;
        self.run_task(turn);
    }

    fn run_task(&mut self, work: impl Future<Output = Finished> + Send + 'static) {
        let shared = self.shared.clone();
        let task = async move {
            let finished = panics::caught("transaction", shared.store.metrics(), work).await;
            finished.unwrap_or(Finished::Panicked)
        };
        self.running = Some(self.shared.tasks.spawn(task));
    }

    fn finish(&mut self, finished: Option<Finished>) {
        self.running = None;
        self.active_at = clock::now();
        match finished {
            Some(Finished::Looked(Ok(Some(timing)))) => self.remember(timing),
            Some(Finished::Looked(Ok(None))) => {
                let now = self.active_at;
                self.open(Opening { at: now, period: Duration::ZERO }, now);
            }
            Some(Finished::Looked(Err(error))) => {
                let _within = self.waiting.span().entered();
                trouble::tell(&format_args!("the policy of {} could not be read", self.key), &error);
                self.refuse_waiting(&Refusal::Unavailable);
            }
            Some(Finished::Turned { work, turn, returned }) => self.turned(work, turn, returned),
            // The callers of the task were refused with it. To try again at once might panic again, without end.
            Some(Finished::Panicked) | None => {
                self.changes.lose_track();
                self.refuse_waiting(&Refusal::Unavailable);
            }
        }
    }

    fn turned(&mut self, work: Work, turn: Option<Summary>, returned: Vec<Pending>) {
        let Some(mut turn) = turn else {
            // Whatever was due still is; the scan for due keys brings it again.
            return self.changes.lose_track();
        };
        if let Some(timing) = turn.timing {
            self.remember(timing);
        }
        self.deadline = turn.next_deadline;
        self.changes.follow(turn.versions, work == Work::Round && !turn.no_round && turn.too_early.is_none());
        if work == Work::Round {
            self.claims.expect(std::mem::take(&mut turn.claimants), self.active_at);
            self.syncs.iter().for_each(|sync| self.claims.heard(&sync.heard.client));
        }
        self.failing.heed(&self.key, &turn.asked);
        self.spread(work, &turn.stirred);
        let (requests, syncs) = returned.into_iter().partition::<Vec<_>, _>(|call| call.heard.asks);
        self.waiting.put_back(requests);
        if turn.too_early.is_some() {
            self.syncs.extend(syncs);
        } else {
            self.keep_parked(syncs);
        }
        if work == Work::Round && !turn.no_round {
            self.round_was(&turn);
        }
    }

    /// Tells who waits, here and elsewhere, what a transaction changed. A round has given parked requests all it could.
    fn spread(&mut self, work: Work, stirred: &Stirred) {
        self.look_at(|parked| parked.take_stirred(stirred));
        let concerns = |client: &_| stirred.freed || stirred.includes(client);
        if work != Work::Round && self.waiting.has_parked_of(concerns) {
            self.waiting.rouse();
        }
        if let Some(news) = stirred.news {
            self.shared.outbox.put(&self.key, news);
        }
    }

    /// Notes when the key's latest round was: this one, or one of another holder that this one came too early after.
    fn round_was(&mut self, turn: &Summary) {
        self.last_round = Some(turn.anchor);
        if let Some(remaining) = turn.too_early {
            let at = turn.anchor + remaining;
            let period = turn.timing.map_or(Duration::ZERO, |timing| timing.period);
            self.opening = Some(Opening { at, period });
            self.last_round = at.checked_sub(period);
        }
    }

    /// Has parked syncs looked at by the next batch of syncs.
    fn look_at(&mut self, take: impl FnOnce(&mut Parked) -> Vec<Pending>) {
        self.syncs.extend(take(&mut self.parked));
    }

    /// Keeps syncs whose client has nothing to hear yet.
    fn keep_parked(&mut self, syncs: Vec<Pending>) {
        let now = clock::now();
        let replaced = syncs.into_iter().filter_map(|sync| self.parked.keep(sync, now));
        self.syncs.extend(replaced);
    }

    fn remember(&mut self, timing: Timing) {
        if !std::mem::take(&mut self.reads_old_policy) {
            self.policy = Some(Some(timing.stamp));
            self.timing = Some((timing, clock::now(), self.shared.policies.own()));
        }
    }

    fn next_wake(&self) -> Instant {
        let (now, idle) = (clock::now(), self.active_at + IDLE);
        if self.running.is_some() {
            return idle.max(now + IDLE);
        }
        if let Some(claims) = self.claims.awaited_until(now) {
            return claims;
        }
        let opening = self.opening.map(|opening| opening.at);
        let due = [opening, self.deadline, self.parked.next_due(), self.waiting.next_due()];
        let due = due.into_iter().flatten().min();
        due.map_or(idle, |due| due.min(idle.max(now)))
    }

    /// Leaves if there is nothing to do. Commands are sent under the lock that is held here, so none is lost.
    fn leave_if_idle(&mut self) -> bool {
        let now = clock::now();
        let near = self.deadline.is_some_and(|deadline| deadline < now + HORIZON);
        let busy = self.running.is_some() || self.has_callers();
        if busy || near || now < self.active_at + IDLE {
            self.active_at = self.active_at.max(now - IDLE / 2);
            return false;
        }
        self.shared.keys.remove_if(&self.key, || self.inbox.is_empty())
    }

    fn has_callers(&self) -> bool {
        !self.waiting.is_empty() || !self.syncs.is_empty() || !self.parked.is_empty()
    }

    fn refuse_waiting(&mut self, refusal: &Refusal) {
        self.opening = None;
        let syncs = std::mem::take(&mut self.syncs);
        let calls = self.waiting.take(clock::now()).into_iter().chain(syncs);
        calls.for_each(|call| call.caller.answer(Err(refusal.clone())));
    }

    /// Refuses who waits, and lets the transaction under way end.
    async fn stop(mut self) {
        self.inbox.close();
        while let Some(command) = self.inbox.recv().await {
            self.hear(command);
        }
        self.look_at(Parked::take_all);
        self.refuse_waiting(&Refusal::ShuttingDown);
        if let Some(running) = self.running.take()
            && let Ok(Finished::Turned { returned, .. }) = running.await
        {
            returned.into_iter().for_each(|call| call.caller.answer(Err(Refusal::ShuttingDown)));
        }
    }
}

/// Waits for the task under way; for ever if there is none.
async fn join(running: &mut Option<JoinHandle<Finished>>) -> Option<Finished> {
    match running {
        Some(task) => task.await.ok(),
        None => std::future::pending().await,
    }
}

/// One transaction and its answers, in a task that no caller can cancel. Returns the calls that are not answered yet:
/// those of a round that was too early, and those that are kept open.
async fn execute(
    shared: Arc<Shared>,
    key: SemaphoreKey,
    work: Work,
    pace: Pace,
    calls: Vec<Pending>,
) -> Finished {
    let heard: Vec<_> = calls.iter().map(|call| call.heard.clone()).collect();
    let still_waits = |at: usize| calls.get(at).is_some_and(|call| !call.caller.has_hung_up());
    let turn = match round::transact(&shared.store, &key, work, pace, &heard, &still_waits).await {
        Ok(turn) => turn,
        Err(error) => {
            trouble::tell(&format_args!("a transaction of {key} failed ({work:?})"), &error);
            calls.into_iter().for_each(|call| call.caller.answer(Err(Refusal::Unavailable)));
            return Finished::Turned { work, turn: None, returned: Vec::new() };
        }
    };
    let mut returned = Vec::new();
    let (mut too_early, mut no_round, mut claimants) = (None, false, BTreeSet::new());
    let round::Turn { result, now, anchor, timing, next_deadline, stirred, asked, versions, .. } = turn;
    match result {
        TurnResult::Outcomes(outcomes) => {
            if work == Work::Round {
                let granted = heard.iter().zip(&outcomes);
                let granted = granted.filter(|(_, outcome)| outcome.as_ref().is_some_and(grants));
                claimants.extend(granted.map(|(call, _)| call.client.clone()));
            }
            let answered = calls.into_iter().zip(outcomes);
            let answered = answered.filter_map(|(call, outcome)| Some((call, outcome?)));
            returned.extend(answered.filter_map(|(call, outcome)| call.hear(Said { outcome, now, anchor })));
        }
        TurnResult::Abandoned => no_round = true,
        TurnResult::NotEager => {
            no_round = true;
            returned = calls;
        }
        TurnResult::TooEarly(remaining) => {
            too_early = Some(remaining);
            returned = calls;
        }
    }
    let turn =
        Summary { anchor, timing, next_deadline, versions, too_early, no_round, claimants, stirred, asked };
    Finished::Turned { work, turn: Some(turn), returned }
}

/// Whether the caller is told of permits that it has to claim.
fn grants(outcome: &Outcome) -> bool {
    let unclaimed = |block: &Block| block.kind == Kind::Grant && block.used < block.permits;
    let Outcome::Answered(answer) = outcome else { return false };
    answer.verdicts.iter().filter_map(|verdict| verdict.block.as_ref()).any(unclaimed)
}
