//! The loop of one key: sends what the ledger wants to say, tells it how each call ended.
//!
//! Authoritative for pauses: how long after a failure, and how long before blocked demand is stated again, both with
//! jitter so that many clients don't speak at once, and both bounded, whatever the holder asks for. Not authoritative for
//! what is said, or for when an answer that does not come is waited for no longer (`ledger/patience.rs`). When a call fails it is said
//! again, without end; what repeating can't cure fails the waiters. The task ends when there is nothing to report.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use queue_wire::{Blocked, Reply, Status};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tracing::Instrument as _;

use crate::error::{AcquireError, chain};
use crate::events::Event;
use crate::hint::explained;
use crate::ledger::{Call, Happening};
use crate::metrics::{ANSWERED, GIVEN_UP};
use crate::shared::{Shared, State};
use crate::spans;
use crate::transport::{CallError, Endpoint};

const RETRY_MIN: Duration = Duration::from_millis(100);
pub(crate) const RETRY_MAX: Duration = Duration::from_secs(10);
/// Blocked demand of which the holder kept no request is not stated again sooner than this, however soon the next round
/// may start.
const ASK_AGAIN_MIN_MS: u64 = 250;
/// And no later than this: an earlier request just waits at the holder.
const ASK_AGAIN_MAX_MS: u64 = 60_000;
/// Nothing is slept for longer than this.
const SLEEP_MAX: Duration = Duration::from_secs(3600);
/// A request and the one that supersedes it. When there is more, the oldest is given up.
const REQUESTS_MAX: usize = 2;
/// A heartbeat that is sent so late is told: nothing but a blocked runtime delays a timer by this.
const LATE: Duration = Duration::from_millis(250);
/// Syncs whose answers are awaited at a time. When there are more, the oldest is given up.
const SYNCS_MAX: usize = 8;

/// What is counted, retried and given up by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Request,
    Sync,
    Parked,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Sync => "sync",
            Self::Parked => "parked",
        }
    }
}

/// A call that is under way.
struct UnderWay {
    kind: Kind,
    task: AbortHandle,
    generation: u64,
    sent: Instant,
    wait: Duration,
    /// The groups whose demand it states.
    asked: Vec<String>,
}

impl UnderWay {
    /// The holder kept it for about as long as it was asked to.
    fn was_parked(&self) -> bool {
        2 * self.sent.elapsed() >= self.wait
    }
}

/// Runs until the ledger is settled.
pub(crate) async fn drive(shared: Arc<Shared>) {
    let mut driver = Driver {
        name: shared.key.as_str().into(),
        shared,
        calls: JoinSet::new(),
        under_way: BTreeMap::new(),
        retry_request: backoff(),
        retry_sync: backoff(),
        retry_parked: backoff(),
    };
    while let Some(Pause { until, heartbeat }) = driver.speak() {
        let shared = driver.shared.clone();
        let pause = async {
            match until {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(ended) = driver.calls.join_next_with_id() => driver.ended(ended),
            () = shared.wake.notified() => {}
            () = pause => {}
        }
        driver.is_late(heartbeat);
    }
}

/// How long there is nothing to do unless something happens: until the next event if until nothing.
struct Pause {
    until: Option<Instant>,
    /// When the next heartbeat is due.
    heartbeat: Option<Instant>,
}

struct Driver {
    /// The key.
    name: Arc<str>,
    shared: Arc<Shared>,
    calls: JoinSet<Result<Reply, CallError>>,
    under_way: BTreeMap<u64, UnderWay>,
    retry_request: ExponentialBackoff,
    retry_sync: ExponentialBackoff,
    retry_parked: ExponentialBackoff,
}

impl Driver {
    /// Sends what there is to send, and says when to look again, if ever.
    fn speak(&mut self) -> Option<Pause> {
        let shared = self.shared.clone();
        let mut state = shared.state();
        state.ledger.speak_as(shared.client.generation.current());
        while let Some(call) = state.ledger.next_call(shared.now_ms()) {
            self.send(call, &state);
            for (kind, most) in [(Kind::Request, REQUESTS_MAX), (Kind::Sync, SYNCS_MAX)] {
                if let Some(oldest) = self.one_too_many(kind, most) {
                    state.ledger.failed(oldest, 0);
                }
            }
        }
        while let Some(number) = state.ledger.given_up() {
            self.give_up(number);
        }
        shared.client.metrics.tally(state.ledger.tally());
        shared.progress.notify_waiters();
        if state.is_done() {
            state.driven = false;
            return None;
        }
        let (now, now_ms) = (Instant::now(), shared.now_ms());
        let (long_waits, look_at) = state.long_waits(now_ms, shared.client.started);
        long_waits.iter().for_each(|blocked| shared.client.long_wait(&shared.key, blocked));
        let sleep_for = |at: u64| Duration::from_millis(at.saturating_sub(now_ms)).min(SLEEP_MAX);
        let until = [state.ledger.wake_at(), look_at].into_iter().flatten().min();
        let until = until.map(|at| now + sleep_for(at));
        let heartbeat = state.ledger.heartbeat_at().map(|at| now + sleep_for(at));
        Some(Pause { until, heartbeat })
    }

    fn is_late(&self, heartbeat: Option<Instant>) {
        let late_by = heartbeat.map_or(Duration::ZERO, |due| due.elapsed());
        if late_by >= LATE {
            self.tell(|key| Event::HeartbeatLate { key, late_by });
        }
    }

    fn tell(&self, event: impl FnOnce(Arc<str>) -> Event) {
        self.shared.client.tell(event(self.name.clone()));
    }

    fn send(&mut self, call: Call, state: &State) {
        let shared = self.shared.clone();
        let kind = match call.endpoint {
            Endpoint::Request => Kind::Request,
            Endpoint::Sync if call.is_parked() => Kind::Parked,
            Endpoint::Sync => Kind::Sync,
        };
        let Call { number, endpoint, mut message } = call;
        if kind == Kind::Request && message.wait_ms > 0 {
            message.wait_ms -= rand::random_range(0..=message.wait_ms / 4); // so that not all come back at once
        }
        let (generation, wait) = (message.generation, Duration::from_millis(message.wait_ms));
        let asked = message.demand.iter().map(|entry| entry.group.clone()).collect();
        let waiting = state.waiting.values().filter(|_| kind != Kind::Parked).map(|waiting| &waiting.span);
        let span = spans::of_call(&shared.key, endpoint, waiting);
        let task = async move { shared.client.transport.call(&shared.key, endpoint, &message).await };
        let task = self.calls.spawn(task.instrument(span));
        self.under_way.insert(number, UnderWay { kind, task, generation, sent: Instant::now(), wait, asked });
    }

    fn one_too_many(&mut self, kind: Kind, most: usize) -> Option<u64> {
        let mut calls = self.under_way.iter().filter(|(_, call)| call.kind == kind);
        let (&oldest, _) = calls.next()?;
        if calls.count() < most {
            return None;
        }
        self.give_up(oldest);
        Some(oldest)
    }

    fn give_up(&mut self, number: u64) {
        if let Some(call) = self.under_way.remove(&number) {
            call.task.abort();
            self.count(&call, GIVEN_UP);
        }
    }

    fn ended(&mut self, ended: Result<(Id, Result<Reply, CallError>), JoinError>) {
        let (id, result) = match ended {
            Ok(ended) => ended,
            Err(panicked) => (panicked.id(), Err(CallError::Unreachable(Box::new(panicked)))),
        };
        // One that was given up is not there any more.
        let Some(number) =
            self.under_way.iter().find_map(|(number, call)| (call.task.id() == id).then_some(*number))
        else {
            return;
        };
        let Some(call) = self.under_way.remove(&number) else { return };
        self.count(&call, result.as_ref().map_or_else(CallError::name, |_| ANSWERED));
        let shared = self.shared.clone();
        let mut state = shared.state();
        match result {
            Ok(mut reply) if shared.client.generation.admit(call.generation) => {
                reply.held_ms = reply.held_ms.min(millis(call.sent.elapsed()));
                self.replied(&mut state, number, &call, &reply);
            }
            // From before the generation rose: the ledger makes the call again.
            Ok(_) => {}
            Err(error) => {
                let pause = self.pause(call.kind, &error);
                let retry_at = shared.now_ms() + millis(pause);
                self.failed(&mut state, number, &call, retry_at, error);
            }
        }
        state.hand_out();
    }

    fn replied(&mut self, state: &mut State, number: u64, call: &UnderWay, reply: &Reply) {
        *self.retry(call.kind) = backoff();
        state.refused = None;
        let ask_again_at = self.shared.now_ms().saturating_add(ask_again_in(call, reply));
        let lost = state.ledger.replied(number, reply, ask_again_at);
        self.tell_what_happened(state, call, reply);
        self.are_lost(lost);
    }

    fn are_lost(&self, items: u64) {
        if items > 0 {
            self.shared.lost.notify_waiters();
            self.tell(|key| Event::Uncounted { key, items });
        }
    }

    fn tell_what_happened(&self, state: &mut State, call: &UnderWay, reply: &Reply) {
        if let Some(after) = state.standing.reachable() {
            self.tell(|key| Event::Reachable { key, after });
        }
        for happening in state.ledger.happened() {
            self.tell(|key| match happening {
                Happening::Granted { group, permits } => Event::Granted { key, group, permits },
                Happening::Lent { group, permits } => Event::Leased { key, group, permits },
                Happening::Retired { group, undrawn } => Event::LeaseRetired { key, group, undrawn },
                Happening::Contended { key: contended, groups } => {
                    Event::Contended { key, contended, groups }
                }
            });
        }
        if call.kind != Kind::Request {
            return;
        }
        for Blocked { group, count, reason } in state.standing.answered(&call.asked, &reply.blocked) {
            self.tell(|key| Event::Blocked { key, group: group.clone(), count: *count, reason: *reason });
        }
        let State { standing, ledger, .. } = state;
        standing.retain(|group| ledger.waiting(group).is_some());
    }

    fn count(&self, call: &UnderWay, outcome: &'static str) {
        self.shared.client.metrics.call(call.kind.name(), outcome, call.sent.elapsed());
    }

    fn no_answer(&self, state: &mut State, error: &CallError, retry_at: u64) {
        let error = explained(error);
        if state.standing.unreachable() {
            self.shared.client.no_holder_answers(&self.shared.key, &error);
        }
        let retry_in = Duration::from_millis(retry_at.saturating_sub(self.shared.now_ms()));
        self.tell(|key| Event::Unreachable { key, error, retry_in });
    }

    fn failed(&self, state: &mut State, number: u64, call: &UnderWay, retry_at: u64, error: CallError) {
        let key = self.shared.key.as_str();
        let endpoint = if call.kind == Kind::Request { Endpoint::Request } else { Endpoint::Sync };
        tracing::debug!(key, %endpoint, error = chain(&error), "a call to the holder failed");
        match error {
            CallError::NotFound(_) if endpoint == Endpoint::Sync => {
                let lost = state.ledger.forgotten(number);
                self.are_lost(lost);
            }
            CallError::NotFound(_) => {
                state.ledger.refused(number, retry_at);
                state.fail_waiting(&AcquireError::SemaphoreNotFound { key: key.to_owned() });
            }
            CallError::Refused(problem) => {
                state.ledger.refused(number, retry_at);
                state.fail_waiting(&AcquireError::Refused(problem.clone()));
                if state.refused.as_ref().is_none_or(|before| before.code != problem.code) {
                    tracing::warn!(key, detail = problem.detail, "the holder refuses: calls are repeated");
                }
                state.refused = Some(problem);
            }
            CallError::Fenced { generation }
                if self.shared.client.generation.shut_out(call.generation, generation) =>
            {
                state.ledger.failed(number, 0);
                self.shared.client.wake_all();
            }
            CallError::Fenced { generation } => {
                let reason = AcquireError::Fenced { generation };
                if state.stopped.as_ref() != Some(&reason) {
                    self.tell(|key| Event::Fenced { key, generation });
                }
                state.fail_waiting(&reason);
                state.ledger.fence();
                state.stopped = Some(reason);
                self.shared.lost.notify_waiters();
            }
            CallError::Superseded => state.ledger.failed(number, retry_at),
            CallError::RetryLater { .. } | CallError::Foreign { .. } | CallError::Unreachable(_) => {
                self.no_answer(state, &error, retry_at);
                state.ledger.failed(number, retry_at);
            }
        }
    }

    /// How long calls of this kind pause: longer with each failure, at least as long as the answer asks for, but not longer
    /// than [`RETRY_MAX`] and half as much again.
    fn pause(&mut self, kind: Kind, error: &CallError) -> Duration {
        if matches!(error, CallError::Superseded) {
            return RETRY_MIN; // matters only if it was not our own newer call
        }
        let backoff = self.retry(kind).next().unwrap_or(RETRY_MAX);
        match error {
            CallError::RetryLater { after: Some(after), .. }
            | CallError::Foreign { after: Some(after), .. } => {
                backoff.max((*after).min(RETRY_MAX) + backoff / 2)
            }
            _ => backoff,
        }
    }

    fn retry(&mut self, kind: Kind) -> &mut ExponentialBackoff {
        match kind {
            Kind::Request => &mut self.retry_request,
            Kind::Sync => &mut self.retry_sync,
            Kind::Parked => &mut self.retry_parked,
        }
    }
}

/// When demand that stays blocked is stated again: at once where that waits at the holder, which answers what has news
/// for the client, as that a block is settled, although its demand got nothing.
fn ask_again_in(call: &UnderWay, reply: &Reply) -> u64 {
    let known = [Status::Expired, Status::Retired, Status::Settled, Status::NotFound];
    let news = |status, round: Option<u64>| known.contains(&status) || round == Some(reply.round);
    let brought = reply.grants.iter().any(|grant| news(grant.status, grant.round))
        || reply.leases.iter().any(|lease| news(lease.status, lease.round));
    if call.kind == Kind::Request && !call.wait.is_zero() && (brought || call.was_parked()) {
        return 0;
    }
    reply.next_request_in_ms.clamp(ASK_AGAIN_MIN_MS, ASK_AGAIN_MAX_MS)
        + rand::random_range(0..ASK_AGAIN_MIN_MS)
}

pub(crate) fn backoff() -> ExponentialBackoff {
    let builder = ExponentialBuilder::default().with_min_delay(RETRY_MIN).with_max_delay(RETRY_MAX);
    builder.without_max_times().with_jitter().build()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
