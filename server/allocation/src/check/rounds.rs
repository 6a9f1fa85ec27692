//! Numbers of rounds: they rise, and no caller moves them far.

use super::{Case, Violation, violated};
use crate::answers::{Outcome, Refused};
use crate::names::ROUND_MAX;

/// A day of the clock, in rounds.
const DAY: u64 = 24 * 3600 * 1_000_000;

/// A round has a number that was never used; a block is made by its round; nothing else makes blocks.
pub(super) fn rise(case: &Case) -> Result<(), Violation> {
    let (old, new) = (case.before.semaphore.round, case.plan.semaphore.round);
    let numbered = case.numbers_a_round();
    if new < old || (numbered && new == old) {
        return violated("P7", format!("round {new} after {old}"));
    }
    match case.made().find(|block| !numbered || block.id.round != new) {
        Some(block) => violated("P1", format!("round {new} makes {block:?}")),
        None => Ok(()),
    }
}

/// A `seen` counts if it is at most a day ahead of the clock, or at most the key's round, and else it is refused. So no
/// message takes the round further than that, and no reply carries a number that a request may not carry.
pub(super) fn are_moved_by_the_clock_alone(case: &Case) -> Result<(), Violation> {
    let (old, new) = (case.before.semaphore.round, case.plan.semaphore.round);
    let clock = u64::try_from(case.plan.now.0).ok().filter(|clock| *clock < ROUND_MAX).unwrap_or(0);
    let bound = old.max((clock + DAY).min(ROUND_MAX - 1));
    for (call, outcome) in case.calls.iter().zip(&case.plan.answers) {
        let refused = matches!(outcome, Outcome::Refused(Refused::SeenTooFarAhead { .. }));
        if refused != (call.seen > bound) {
            return violated("P4", format!("seen {} at most {bound} is refused: {refused}", call.seen));
        }
    }
    let highest = bound + u64::from(case.numbers_a_round());
    if new > highest || (new > ROUND_MAX && new > old) {
        return violated("P4", format!("round {new} after {old}, at most {highest}"));
    }
    Ok(())
}
