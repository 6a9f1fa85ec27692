//! The round: what a holder decides, as a pure function.
//!
//! `(State, calls) -> Plan`. [`State`] is what a transaction read of one key, calls are what clients said, and the
//! [`Plan`] is data: rows to write and answers to give. Authoritative for how permits are counted, granted and
//! reclaimed. Not authoritative for who waits, when a round starts, or how rows are stored; nothing here has I/O, a
//! clock, randomness or an iteration order that depends on a hash. [`check`] is a second opinion, written from the
//! promises and not from this algorithm.
//!
//! The steps of a round, in order, are the modules `fencing`, `reports`, `unknown`, `silence`, `reclaim`, `retire`,
//! `grants`, `leases`, `blocked` and `answers`; [`round`], [`sync`] and [`timer`] put them together. All of them change blocks through `draft` alone, which keeps
//! counters, batches and free slots in step with the blocks.

mod answers;
mod batches;
mod blocked;
mod budget;
mod call;
mod check;
mod draft;
mod fencing;
mod fingerprint;
mod grants;
mod leases;
mod names;
mod plan;
mod reclaim;
mod reports;
mod retire;
mod silence;
mod slots;
mod state;
mod tally;
mod undelivered;
mod unknown;

pub use answers::{Answer, Outcome, Refused, Verdict, VerdictStatus};
pub use blocked::{BLOCKED_LIFETIME, BLOCKED_REWRITTEN_AFTER, BlockedEntry, Lacking, Reason};
pub use call::{Call, Demand, GrantReport, LeaseReport};
pub use check::{Violation, check};
pub use fingerprint::of_block as block_fingerprint;
pub use names::{BlockId, ClientId, DbTime, Group, Micros, Permits, ROUND_MAX, SemaphoreKey, Slot};
pub use plan::{Act, Audit, PendingWrite, Plan, Work};
pub use retire::must_read_leases;
pub use silence::{last_seen_resolution, must_read_all_blocks, silent_since};
pub use state::{
    Batch, Block, Client, Contended, Extra, GroupUsage, Incarnation, Kind, Policy, Provisioning, Semaphore,
    Silence, State, Status,
};
pub use tally::{Retired, Tally};

use draft::Draft;
use undelivered::Owned;

/// Plans a round: numbers it, applies reports, reclaims, grants, and says what stays blocked. Syncs may take part: to
/// them it is as if they came just before it.
///
/// Without a policy, or without a number for the round, nothing is reclaimed or granted; reports are applied and every
/// request is refused as [`Refused::NoPolicy`] or [`Refused::RoundsUsedUp`].
pub fn round(state: &State, calls: &[Call]) -> Plan {
    let Some(policy) = state.policy.clone() else { return refuse(state, calls, Refused::NoPolicy) };
    if state.semaphore.round >= ROUND_MAX {
        return refuse(state, calls, Refused::RoundsUsedUp);
    }
    let mut draft = Draft::new(state);
    let admitted = hear(&mut draft, Some(&policy), calls);
    draft.charged = reports::charges(&draft, &policy, calls, &admitted);
    draft.number_round();
    draft.semaphore.permit_limit = policy.limit.or(draft.semaphore.permit_limit);
    silence::settle(&mut draft, state);
    reclaim::reclaim(&mut draft, state);
    retire::retire(&mut draft, state, Work::Round);
    draft.sort_free_slots();
    let entries = grants::in_order(draft.now, calls, &admitted);
    let mut owned = Owned::new(&draft, calls);
    let mut lacking = grants::allocate(&mut draft, state, &policy, calls, &entries, &mut owned);
    leases::allocate(&mut draft, state, &policy, calls, &entries, &mut owned, &mut lacking);
    blocked::record(&mut draft, state, calls, &admitted, &lacking);
    silence::schedule(&mut draft, Some(&policy));
    let next_round_at = Some(draft.now + policy.round_period);
    answers::finish(draft, state, calls, &admitted, lacking, next_round_at)
}

/// Applies the reports of calls that can have no round.
fn refuse(state: &State, calls: &[Call], refused: Refused) -> Plan {
    let mut plan = sync(state, calls);
    for (call, answer) in calls.iter().zip(&mut plan.answers) {
        if call.asks && matches!(answer, Outcome::Answered(_)) {
            *answer = Outcome::Refused(refused);
        }
    }
    plan
}

/// Plans a batch of syncs: applies reports and answers; nothing is reclaimed, granted, charged or numbered, and nothing
/// retired but by a takeover.
pub fn sync(state: &State, calls: &[Call]) -> Plan {
    let mut draft = Draft::new(state);
    let admitted = hear(&mut draft, state.policy.as_ref(), calls);
    blocked::end_marks(&mut draft, state);
    silence::schedule(&mut draft, state.policy.as_ref());
    answers::finish(draft, state, calls, &admitted, Default::default(), None)
}

/// Plans what is due without any message: declares silent clients dead and reclaims, answers nobody.
pub fn timer(state: &State) -> Plan {
    let mut draft = Draft::new(state);
    silence::settle(&mut draft, state);
    reclaim::reclaim(&mut draft, state);
    retire::retire(&mut draft, state, Work::Timer);
    blocked::end_marks(&mut draft, state);
    silence::schedule(&mut draft, state.policy.as_ref());
    answers::finish(draft, state, &[], &[], Default::default(), None)
}

/// Steps 1 and 2: who is heard, and what is said.
fn hear(draft: &mut Draft, policy: Option<&Policy>, calls: &[Call]) -> Vec<Result<(), Refused>> {
    let admitted = fencing::admit(draft, calls);
    reports::apply(draft, policy, calls, &admitted);
    unknown::settle(draft, calls, &admitted);
    admitted
}
