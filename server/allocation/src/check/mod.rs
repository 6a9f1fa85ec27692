//! A second opinion on a plan, written from the promises P1 to P7 and not from the algorithm.
//!
//! Tests run it on every plan, and a holder runs it before COMMIT: on a violation it rolls back, so that a fault of the
//! algorithm costs availability and never the ceiling. It shares no code with the steps of a round.

mod accounting;
mod admission;
mod fencing;
mod finding;
mod leases;
mod order;
mod rounds;
mod telling;

use crate::answers::{Outcome, Refused};
use crate::call::Call;
use crate::names::{BlockId, ClientId, ROUND_MAX};
use crate::plan::{Plan, Work};
use crate::state::{Block, State};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A promise that a plan breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The promise, as the specification numbers it.
    pub promise: &'static str,
    /// What is wrong.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.detail)
    }
}

impl std::error::Error for Violation {}

/// Checks a plan for `calls` on `before`.
///
/// # Errors
/// The first promise that the plan breaks.
pub fn check(work: Work, before: &State, calls: &[Call], plan: &Plan) -> Result<(), Violation> {
    let case = Case::new(work, before, calls, plan);
    accounting::counters_follow_blocks(&case)?;
    accounting::marks_only_move_forward(&case)?;
    accounting::what_comes_back_has_a_reason(&case)?;
    accounting::rows_are_not_shared(&case)?;
    fencing::one_process_speaks(&case)?;
    fencing::declarations_are_kept(&case)?;
    rounds::rise(&case)?;
    rounds::are_moved_by_the_clock_alone(&case)?;
    admission::ceilings_hold(&case)?;
    admission::oldest_is_served_first(&case)?;
    order::of_rows_is_of_demand(&case)?;
    order::newest_leases_are_retired_first(&case)?;
    finding::what_is_due_came_back(&case)?;
    finding::what_will_be_due_is_found(&case)?;
    finding::batches_count_their_grants(&case)?;
    finding::silent_leases_are_retired(&case)?;
    leases::go_where_they_may(&case)?;
    leases::that_may_not_stay_are_retired(&case)?;
    leases::of_who_is_not_permitted_are_retired(&case)?;
    telling::every_demand_is_explained(&case)?;
    telling::reasons_are_true(&case)?;
    telling::obstacles_come_first(&case)?;
    telling::contended_groups_are_told(&case)?;
    telling::what_is_blocked_is_kept(&case)?;
    telling::every_verdict_is_what_is_written(&case)
}

struct Case<'a> {
    work: Work,
    before: &'a State,
    calls: &'a [Call],
    plan: &'a Plan,
    /// The blocks that were read or made, as they are after the plan, by owner: a round of many calls looks at each
    /// block a few times and not once for each call.
    own: BTreeMap<&'a ClientId, Vec<&'a Block>>,
    /// Blocks that come back whatever their owner says of them.
    written_off: BTreeSet<BlockId>,
}

impl<'a> Case<'a> {
    fn new(work: Work, before: &'a State, calls: &'a [Call], plan: &'a Plan) -> Self {
        let mut case = Self { work, before, calls, plan, own: BTreeMap::new(), written_off: BTreeSet::new() };
        let mut own = BTreeMap::<_, Vec<_>>::new();
        case.known().for_each(|block| own.entry(&block.client).or_default().push(block));
        case.own = own;
        case.written_off = fencing::written_off(&case);
        case
    }

    /// The blocks that were read or made, as they are after the plan.
    fn known(&self) -> impl Iterator<Item = &'a Block> {
        let before = self.before.blocks.values();
        before.filter_map(|block| self.after(block)).chain(self.made())
    }

    /// Those of them that a client holds.
    fn own(&self, client: &ClientId) -> impl Iterator<Item = &'a Block> {
        self.own.get(client).into_iter().flatten().copied()
    }

    /// Those of them that the caller has not heard of by its `seen`.
    fn unheard(&self, call: &Call) -> impl Iterator<Item = &'a Block> {
        self.own(&call.client).filter(|block| block.id.round > call.seen)
    }

    /// Blocks that the plan makes.
    fn made(&self) -> impl Iterator<Item = &'a Block> {
        let before = self.before;
        let known = |block: &Block| before.blocks.get(&block.id.slot).is_some_and(|old| old.id == block.id);
        self.plan.blocks.values().flatten().filter(move |block| !known(block))
    }

    /// Blocks that the plan changes, with what becomes of each: `None` where its row is free or another block's.
    fn changed(&self) -> impl Iterator<Item = (&Block, Option<&Block>)> {
        self.plan.blocks.iter().filter_map(|(slot, after)| {
            let old = self.before.blocks.get(slot)?;
            Some((old, after.as_ref().filter(|new| new.id == old.id)))
        })
    }

    /// Whether this transaction is a round that can make blocks: it has a policy and a number.
    fn numbers_a_round(&self) -> bool {
        self.work == Work::Round && self.before.policy.is_some() && self.before.semaphore.round < ROUND_MAX
    }

    /// Whether this transaction takes back what is due.
    fn reclaims(&self) -> bool {
        match self.work {
            Work::Round => self.numbers_a_round(),
            Work::Timer => true,
            Work::Sync => false,
        }
    }

    /// Calls that were heard, so that their reports count.
    fn admitted(&self) -> impl Iterator<Item = &'a Call> {
        let heard = |outcome: &Outcome| {
            let refused = |refused| matches!(refused, Refused::NoPolicy | Refused::RoundsUsedUp);
            match outcome {
                Outcome::Answered(_) => true,
                Outcome::Refused(reason) => refused(*reason),
            }
        };
        let told = self.calls.iter().zip(&self.plan.answers);
        told.filter(move |(_, outcome)| heard(outcome)).map(|(call, _)| call)
    }

    /// Whether an open block comes back whatever its owner says of it.
    fn is_written_off(&self, block: &Block) -> bool {
        self.written_off.contains(&block.id)
    }

    /// What a block is after the plan.
    fn after(&self, block: &Block) -> Option<&'a Block> {
        let now = match self.plan.blocks.get(&block.id.slot) {
            Some(written) => written.as_ref(),
            None => self.before.blocks.get(&block.id.slot),
        };
        now.filter(|now| now.id == block.id)
    }
}

fn violated(promise: &'static str, detail: impl Into<String>) -> Result<(), Violation> {
    Err(Violation { promise, detail: detail.into() })
}
