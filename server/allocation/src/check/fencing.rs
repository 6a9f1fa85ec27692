//! Who speaks for a client, and whose permits come back because somebody said that their owner is no more.

use super::accounting::counts;
use super::{Case, Violation, violated};
use crate::answers::{Outcome, Refused};
use crate::names::{BlockId, ClientId, Micros, Permits};
use crate::plan::Act;
use crate::state::{Block, Client, Incarnation, Kind, Status};
use std::collections::{BTreeMap, BTreeSet};

/// All calls of a client that are heard are of one process: of the highest generation that was ever heard, and the
/// first one heard under it. Nobody is heard whose generation was declared dead, and nobody else is refused.
pub(super) fn one_process_speaks(case: &Case) -> Result<(), Violation> {
    for (call, outcome) in case.calls.iter().zip(&case.plan.answers) {
        let Some(before) = case.before.clients.get(&call.client) else { continue };
        let after = case.plan.clients.get(&call.client).unwrap_or(before);
        let heard = match outcome {
            Outcome::Refused(Refused::SeenTooFarAhead { .. }) => continue,
            Outcome::Refused(Refused::Fenced { .. }) => false,
            Outcome::Refused(Refused::NoPolicy | Refused::RoundsUsedUp) | Outcome::Answered(_) => true,
        };
        let speaks = after.incarnation.as_ref().is_some_and(|own| is_process(own, &call.from));
        if heard != (speaks && call.from.generation >= after.lowest_generation) {
            return violated("P2", format!("{:?} of {after:?} is heard: {heard}", call.from));
        }
    }
    for (id, after) in &case.plan.clients {
        let Some(before) = case.before.clients.get(id) else { continue };
        let generation = |client: &Client| client.incarnation.as_ref().map(|process| process.generation);
        let other = before.incarnation != after.incarnation && generation(before) >= generation(after);
        if other || after.lowest_generation < before.lowest_generation {
            return violated("P2", format!("{before:?} became {after:?}"));
        }
    }
    Ok(())
}

/// What comes back, or changes hands, without its owner's word is kept for people, with its amount. After a takeover
/// that resumes, no lease of the earlier process is live.
pub(super) fn declarations_are_kept(case: &Case) -> Result<(), Violation> {
    let by_owner = by_owner(case);
    for (id, after) in &case.plan.clients {
        let own = || by_owner.get(id).into_iter().flatten().copied();
        let back: Permits = own().filter(|block| case.is_written_off(block)).map(counts).sum();
        let acts = case.plan.audit.iter().filter(|audit| audit.client == *id);
        let resumes = |act| act == Act::Takeover { resume: true };
        let told: Permits =
            acts.filter(|audit| !resumes(audit.act)).map(|audit| audit.grants + audit.leases).sum();
        // What was reported before counts less; what counts less than nothing more was not written off.
        if told > back || (told == 0 && back > 0 && !reported_away(case, own())) {
            return violated("P4", format!("{back} permits of {id:?} came back, {told} are accounted for"));
        }
        let live = |block: &&Block| {
            let now = case.after(block);
            block.kind == Kind::Lease && now.is_some_and(|now| now.status == Status::Active)
        };
        if succession(case, id).is_some()
            && let Some(lease) = own().find(live)
        {
            return violated("P2", format!("{after:?} took over and {lease:?} is live"));
        }
    }
    Ok(())
}

/// Whether the reports of this transaction alone may have settled what was written off.
fn reported_away<'a>(case: &Case, mut own: impl Iterator<Item = &'a Block>) -> bool {
    own.all(|block| {
        let id = block.id.to_string();
        !case.is_written_off(block) || case.admitted().any(|call| call.reported().any(|named| named == id))
    })
}

fn is_process(one: &Incarnation, other: &Incarnation) -> bool {
    one.generation == other.generation && one.process == other.process
}

/// The process that took the place of an earlier one of the client in this transaction.
pub(super) fn succession<'a>(case: &Case<'a>, id: &ClientId) -> Option<&'a Incarnation> {
    let before = case.before.clients.get(id)?.incarnation.as_ref()?;
    let after = case.plan.clients.get(id)?.incarnation.as_ref()?;
    (after.generation > before.generation).then_some(after)
}

/// Whether a process of the client was declared dead in this transaction.
pub(super) fn is_fenced_anew(case: &Case, id: &ClientId) -> bool {
    let before = case.before.clients.get(id).map_or(0, |client| client.lowest_generation);
    case.plan.clients.get(id).is_some_and(|client| client.lowest_generation > before)
}

/// The blocks that were read, by owner.
fn by_owner<'a>(case: &Case<'a>) -> BTreeMap<&'a ClientId, Vec<&'a Block>> {
    let mut own = BTreeMap::<_, Vec<_>>::new();
    for block in case.before.blocks.values() {
        own.entry(&block.client).or_default().push(block);
    }
    own
}

/// Open blocks that come back whatever their owner says of them: its process was declared dead, by a successor that
/// does not resume or by its silence, or their owner says all that it holds and they are not among it.
pub(super) fn written_off(case: &Case) -> BTreeSet<BlockId> {
    let own = by_owner(case);
    let dead = own.iter().filter(|(id, _)| {
        succession(case, id).is_some_and(|process| !process.resumes) || is_silent(case, id)
    });
    let mut written_off: BTreeSet<_> = dead.flat_map(|(_, blocks)| blocks).map(|block| block.id).collect();
    for call in case.admitted().filter(|call| call.all && !call.applied) {
        let named: BTreeSet<_> = call.reported().filter_map(BlockId::parse).collect();
        let ids = own.get(&call.client).into_iter().flatten().map(|block| block.id);
        written_off.extend(ids.filter(|id| id.round <= call.seen && !named.contains(id)));
    }
    written_off
}

/// That nobody could hear clients for so long may not have been noticed: 3 s.
const UNNOTICED_OUTAGE: Micros = 3_000_000;

/// Silent since before it counts, with nobody away who could have heard it.
fn is_silent(case: &Case, id: &ClientId) -> bool {
    let Some(silence) = case.before.silence.as_ref().filter(|_| case.reclaims()) else {
        return false;
    };
    let after = case.before.policy.as_ref().and_then(|policy| policy.settle_after);
    let Some((after, serving_since)) = after.zip(silence.serving_since) else { return false };
    let speaks = case.admitted().any(|call| call.client == *id) || case.before.open_calls.contains(id);
    let Some(client) = case.before.clients.get(id).filter(|_| silence.clients.contains(id) && !speaks) else {
        return false;
    };
    let since = case.before.semaphore.settle_after_since.into_iter().chain([client.last_seen, serving_since]);
    let late = after.min(200_000_000) / 10;
    since.max().is_some_and(|since| since + after + late + UNNOTICED_OUTAGE <= case.plan.now)
}
