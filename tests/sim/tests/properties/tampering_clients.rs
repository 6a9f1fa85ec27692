//! The ways to tamper with who speaks, and with what is declared.

use crate::tampering::{change, count, kept};
use crate::world::Case;
use pgsemaphore_allocation::{Act, ClientId, Kind, Outcome, Plan, Refused, Status, Work};

pub(crate) fn refuse_who_speaks(_: &Case, plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    let answered = plan.answers.iter_mut().find(|outcome| matches!(outcome, Outcome::Answered(_)))?;
    *answered = Outcome::Refused(Refused::Fenced { generation: 9 });
    Some(plan)
}

pub(crate) fn forget_who_took_over(case: &Case, plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    let heard = case.calls.iter().zip(&plan.answers).filter(|(_, told)| matches!(told, Outcome::Answered(_)));
    let before = |id| case.state.clients[id].incarnation.clone();
    let taken = heard.map(|(call, _)| &call.client).find(|id| {
        let after = plan.clients.get(*id).and_then(|client| client.incarnation.as_ref());
        after.is_some_and(|after| before(id).is_some_and(|old| old.generation < after.generation))
    })?;
    plan.clients.get_mut(taken)?.incarnation = before(taken);
    Some(plan)
}

pub(crate) fn lower_a_fence(case: &Case, plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    let (_, client) =
        plan.clients.iter_mut().find(|(id, _)| case.state.clients[*id].lowest_generation > 0)?;
    client.lowest_generation = 0;
    Some(plan)
}

pub(crate) fn keep_what_was_written_off(case: &Case, plan: &Plan) -> Option<Plan> {
    let declared = plan.audit.iter().find(|entry| entry.act != Act::Takeover { resume: true })?;
    let gone = |slot| plan.blocks.get(slot).is_some_and(Option::is_none);
    let named = |id: &str| case.calls.iter().any(|call| call.reported().any(|named| named == id));
    let (slot, block) = case.state.blocks.iter().find(|(slot, block)| {
        block.client == declared.client
            && gone(*slot)
            && !named(&block.id.to_string())
            && block.batch.is_none()
    })?;
    let mut kept = plan.clone();
    count(case, &mut kept, block, 1);
    kept.blocks.insert(*slot, Some(block.clone()));
    Some(kept)
}

pub(crate) fn leave_out_a_declaration(case: &Case, plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    let named = |id: &str| case.calls.iter().any(|call| call.reported().any(|named| named == id));
    let unsaid = |client: &ClientId| {
        let mut own = case.state.blocks.values().filter(|block| block.client == *client);
        own.any(|block| !named(&block.id.to_string()))
    };
    let settles = |act| matches!(act, Act::Takeover { resume: false } | Act::SettleSilent);
    let at = plan.audit.iter().position(|entry| settles(entry.act) && unsaid(&entry.client))?;
    plan.audit.remove(at);
    Some(plan)
}

pub(crate) fn keep_a_lease_live(case: &Case, plan: &Plan) -> Option<Plan> {
    let resumed = plan.audit.iter().find(|entry| entry.act == Act::Takeover { resume: true })?;
    let lease = kept(case, plan).find(|(old, new)| {
        let own = new.client == resumed.client && new.kind == Kind::Lease;
        own && old.status == Status::Active && new.status == Status::Retired && !new.stopped
    })?;
    change(case, plan, lease.1.id.slot, |block| block.status = Status::Active)
}

/// As if its client were dead, which nobody said.
pub(crate) fn write_off_what_is_held(case: &Case, plan: &Plan) -> Option<Plan> {
    let (_, block) = kept(case, plan).find(|(old, new)| old == new && new.batch.is_none())?;
    let mut tampered = plan.clone();
    count(case, &mut tampered, block, -1);
    tampered.blocks.insert(block.id.slot, None);
    Some(tampered)
}

/// A sync that shares a round says nothing of what its client lacks.
pub(crate) fn forget_what_it_lacks(case: &Case, plan: &Plan) -> Option<Plan> {
    let only_syncs = |id: &ClientId| {
        let mut calls = case.calls.iter().filter(|call| call.client == *id).peekable();
        case.work == Work::Round && calls.peek().is_some() && calls.all(|call| !call.asks)
    };
    let mut plan = plan.clone();
    let after = case.state.clients.iter().map(|(id, before)| (id, plan.clients.get(id).unwrap_or(before)));
    let lacking = after.filter(|(id, client)| only_syncs(id) && !client.blocked.is_empty());
    let (id, mut client) = lacking.map(|(id, client)| (id.clone(), client.clone())).next()?;
    client.blocked.clear();
    plan.clients.insert(id, client);
    Some(plan)
}
