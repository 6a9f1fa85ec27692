//! What `explain` can say of requests that wait for a round: they are in the memory of holders, not in the database.

use std::fmt::Write as _;

use super::output::ago;
use super::quote::arguments;
use crate::store::Situation;

/// One sentence or two.
pub(super) fn unseen(situation: &Situation) -> String {
    if situation.live_holders == 0 {
        return "no holder runs: nothing is granted until `pgsemaphore serve` does".to_owned();
    }
    let Some(policy) = &situation.policy else {
        return "no policy matches the key: requests are refused".to_owned();
    };
    let last = situation.last_round_ms_ago.map_or_else(
        || "there was no round yet".to_owned(),
        |ms| format!("the last round was {} ago", ago(ms)),
    );
    let (wait, period) = (policy.round_wait_ms, policy.round_period_ms);
    let mut text = format!(
        "{last}; requests since then wait in holders and are not shown: a round starts {wait} ms after the first of \
         them (round_wait_ms), and {period} ms after the round before (round_period_ms)"
    );
    if wait > 0 || period > 1000 {
        let pattern = arguments(&[&policy.pattern]);
        let set = format!("pgsemaphore policy set --round-wait-ms 0 --round-period-ms 100 {pattern}");
        let _ = write!(text, "; for less delay: `{set}`");
    }
    text
}
