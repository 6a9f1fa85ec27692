//! Numbers of rounds: they follow the database's clock and what holders said, not what callers say.

use super::{Committed, Verdict, violated};
use crate::store::Rows;
use crate::world::network::Refusal;

/// A day of the clock, in rounds.
const DAY: u64 = 24 * 3600 * 1_000_000;

/// A message that has seen what no holder can have said is refused, and no other. The rest take the round to the end of
/// the next day at most, and a round adds 1: else callers could move it until no message can carry it (P4).
pub(super) fn follow_the_clock(committed: &Committed, before: &Rows, after: &Rows) -> Verdict {
    let (old, new) = (before.semaphore.round, after.semaphore.round);
    let most = old.max(u64::try_from(committed.now.0).unwrap_or(0) + DAY);
    for call in &committed.calls {
        let refused = call.refusal == Some(Refusal::Invalid);
        if refused != (call.message.seen > most) {
            let said = (call.message.seen, call.refusal);
            return violated("P4", format!("seen and answer {said:?} after round {old}, at most {most}"));
        }
    }
    if new > most + 1 {
        return violated("P4", format!("round {new} after {old}, at most {most}"));
    }
    Ok(())
}
