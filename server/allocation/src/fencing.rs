//! Step 1: which calls are heard. A process speaks for its client until one of a higher generation does, or until it is
//! declared dead; all others are fenced.

use crate::answers::Refused;
use crate::call::Call;
use crate::draft::{Draft, Usage};
use crate::names::{ClientId, DbTime, ROUND_MAX};
use crate::plan::{Act, Audit};
use crate::state::{Client, Incarnation};
use crate::tally::Retired;
use std::cmp::Reverse;

/// How far `seen` may be ahead of the clock: one day, in rounds (microseconds).
const SEEN_AHEAD_MAX: u64 = 86_400_000_000;

/// The highest `seen` that is accepted. It follows the database's clock, so callers cannot move it: a `seen` raises the
/// key's round, and a bound that followed the round would rise with each message. A key whose round is higher already
/// accepts that round, because its holders answered with it.
fn seen_max(round: u64, now: DbTime) -> u64 {
    (now.as_round() + SEEN_AHEAD_MAX).min(ROUND_MAX - 1).max(round)
}

/// Says for each call whether it is admitted. Processes of higher generations take over first, so that of two
/// processes in one transaction only the newer one is heard, and the other declares nothing.
pub(crate) fn admit(draft: &mut Draft, calls: &[Call]) -> Vec<Result<(), Refused>> {
    let max = seen_max(draft.semaphore.round, draft.now);
    let mut newest_first: Vec<&Call> = calls.iter().filter(|call| call.seen <= max).collect();
    newest_first.sort_by_key(|call| Reverse(call.from.generation));
    newest_first.into_iter().for_each(|call| introduce(draft, call));
    let admit = |call: &Call| {
        if call.seen > max {
            return Err(Refused::SeenTooFarAhead { max });
        }
        match draft.clients.get(&call.client).and_then(|client| client.fences(&call.from)) {
            Some(generation) => Err(Refused::Fenced { generation }),
            None => Ok(()),
        }
    };
    let admitted: Vec<_> = calls.iter().map(admit).collect();
    let heard = calls.iter().zip(&admitted).filter(|(_, admitted)| admitted.is_ok());
    let seen = heard.map(|(call, _)| call.seen).max().unwrap_or(0);
    draft.semaphore.round = draft.semaphore.round.max(seen);
    admitted
}

/// A process that is heard for the first time, in its client's name.
fn introduce(draft: &mut Draft, call: &Call) {
    let Some(client) = draft.clients.get(&call.client) else { return };
    if client.incarnation.as_ref() == Some(&call.from) || client.fences(&call.from).is_some() {
        return;
    }
    if client.is_taken_over_by(&call.from) {
        take_over(draft, &call.client, &call.from);
    } else if client.incarnation.is_some() {
        return; // the same process, which says `resume` another way than first
    }
    if let Some(client) = draft.clients.get_mut(&call.client) {
        client.incarnation = Some(call.from.clone());
    }
    draft.changed_clients.insert(call.client.clone());
}

/// The earlier process starts nothing more. What it holds comes back, or goes on with its successor; leases are drawn
/// from by nobody in either case.
fn take_over(draft: &mut Draft, client: &ClientId, successor: &Incarnation) {
    let slots = draft.slots_of(client);
    let resume = successor.resumes;
    slots.iter().for_each(|slot| draft.retire(*slot, Retired::TakenOver));
    let usage: Usage = if resume {
        slots.iter().filter_map(|slot| draft.blocks.get(slot)).map(Usage::of).sum()
    } else {
        slots.into_iter().map(|slot| draft.write_off(slot)).sum()
    };
    fence(draft, client, successor.generation);
    draft.record(client, Act::Takeover { resume }, usage);
}

/// Admits no generation below `lowest` from now on, and forgets what blocked the ones before.
pub(crate) fn fence(draft: &mut Draft, id: &ClientId, lowest: u64) {
    let now = draft.now;
    let Some(client) = draft.clients.get_mut(id) else { return };
    client.lowest_generation = client.lowest_generation.max(lowest);
    client.fenced_at = Some(now);
    draft.marks_may_end |= !client.blocked.is_empty();
    client.blocked.clear();
    client.blocked_at = None;
    draft.changed_clients.insert(id.clone());
}

impl Draft {
    /// Keeps for people what was declared; nothing where no permits were concerned.
    pub(crate) fn record(&mut self, client: &ClientId, act: Act, usage: Usage) {
        let Usage { grants, leases } = usage;
        let generation = self.clients.get(client).map_or(0, Client::lowest_admitted);
        if usage != Usage::default() {
            self.audit.push(Audit { client: client.clone(), act, generation, grants, leases });
        }
    }
}

impl Client {
    /// The lowest generation of a process that was not heard yet and would be.
    pub fn lowest_admitted(&self) -> u64 {
        let heard = self.incarnation.as_ref().map_or(0, |process| process.generation + 1);
        self.lowest_generation.max(heard)
    }

    /// Differs when other processes are admitted than before.
    pub fn speaker(&self) -> (Option<&Incarnation>, u64) {
        (self.incarnation.as_ref(), self.lowest_generation)
    }

    /// Whether `process` is shut out; the lowest generation admitted if so.
    fn fences(&self, process: &Incarnation) -> Option<u64> {
        let (generation, lowest) = (process.generation, self.lowest_admitted());
        let speaks = self
            .incarnation
            .as_ref()
            .is_some_and(|own| own.generation == generation && own.process == process.process);
        let admitted = generation >= if speaks { self.lowest_generation } else { lowest };
        (!admitted).then_some(lowest)
    }

    /// Whether `process` is admitted as the successor of the one that speaks now.
    pub(crate) fn is_taken_over_by(&self, process: &Incarnation) -> bool {
        let higher = |own: &Incarnation| process.generation > own.generation;
        self.incarnation.as_ref().is_some_and(higher) && process.generation >= self.lowest_generation
    }
}
