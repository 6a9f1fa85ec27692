//! Transactions of keys: counted, and told in one line of the log each.

use super::{Label, Metrics};
use crate::round::{self, Heard, Turn, TurnResult};
use crate::store::{Phase, Ran, StoreError};
use pgsemaphore_allocation::{Outcome, Retired, SemaphoreKey, Tally, Work};

/// Counts what a transaction did for `calls`, and says it at level debug.
pub(crate) fn report(
    metrics: &Metrics,
    key: &SemaphoreKey,
    work: Work,
    calls: &[Heard],
    outcome: Result<&Ran<Turn>, &StoreError>,
) {
    let kind = round::name(work);
    let ran = match outcome {
        Ok(ran) => ran,
        Err(error) => {
            metrics.rounds.add([kind.into(), "failed".into()], 1);
            metrics.check_violations.add([], u64::from(matches!(error, StoreError::Violation(_))));
            return;
        }
    };
    let turn = &ran.value;
    let outcome = if turn.tally.is_some() { "committed" } else { "looked_at" };
    metrics.rounds.add([kind.into(), outcome.into()], 1);
    for phase in Phase::ALL {
        if let Some(took) = ran.phases.took(phase) {
            metrics.transaction_phase.record([kind.into(), phase.name().into()], took);
        }
    }
    let tally = turn.tally.unwrap_or_default();
    count_permits(metrics, &tally);
    for call in turn.asked.iter().filter(|call| call.failure.is_some()) {
        metrics.function_failures.add([call.field.into()], 1);
    }
    let blocked = if work == Work::Round { count_blocked(metrics, turn) } else { 0 };
    if work == Work::Round && matches!(turn.result, TurnResult::Outcomes(_)) {
        let new = calls.iter().filter(|call| call.asks && !call.applied);
        new.for_each(|call| metrics.wait.record([], turn.anchor.saturating_duration_since(call.arrival)));
    }
    let millis = |phase| ran.phases.took(phase).unwrap_or_default().as_secs_f64() * 1000.0;
    tracing::debug!(
        %key, kind, outcome, round = turn.round, calls = calls.len(), granted = tally.granted, leased = tally.leased,
        released = tally.released, reclaimed = tally.reclaimed, blocked, attempts = ran.attempts,
        take_ms = millis(Phase::Take), load_ms = millis(Phase::Load), plan_ms = millis(Phase::Plan),
        apply_ms = millis(Phase::Apply), commit_ms = millis(Phase::Commit), "transaction"
    );
}

fn count_permits(metrics: &Metrics, tally: &Tally) {
    let count = |count: i64| u64::try_from(count).unwrap_or(0);
    metrics.permits_granted.add([], count(tally.granted));
    metrics.permits_claimed.add([], count(tally.claimed));
    metrics.permits_released.add([], count(tally.released));
    metrics.permits_reclaimed.add([], count(tally.reclaimed));
    metrics.leases_issued.add([], count(tally.leases));
    metrics.leased_permits.add([], count(tally.leased));
    for because in Retired::ALL {
        metrics.leases_retired.add([retired(because)], count(tally.retired(because)));
    }
}

/// Counts the demand that a round left, by reason; gives all of it.
fn count_blocked(metrics: &Metrics, turn: &Turn) -> i64 {
    let TurnResult::Outcomes(outcomes) = &turn.result else { return 0 };
    let answers = outcomes.iter().flatten().filter_map(|outcome| match outcome {
        Outcome::Answered(answer) => Some(answer),
        Outcome::Refused(_) => None,
    });
    let lacking = answers.flat_map(|answer| &answer.blocked);
    lacking.fold(0, |sum, lacking| {
        metrics.blocked_demand.add([lacking.reason.name().into()], u64::try_from(lacking.count).unwrap_or(0));
        sum + lacking.count
    })
}

fn retired(because: Retired) -> Label {
    match because {
        Retired::Silent => "silent",
        Retired::NotEligible => "not_eligible",
        Retired::OverBudget => "over_budget",
        Retired::TakenOver => "taken_over",
        Retired::GivenBack => "given_back",
    }
    .into()
}
