//! P6 of leases: who is told that others lack permits; and P7 of a client's `state`, by which a parked one is told.

use super::{Audit, Committed, Verdict, violated};
use crate::store::Rows;
use pgsemaphore_allocation::{
    BLOCKED_LIFETIME, BLOCKED_REWRITTEN_AFTER, Block, DbTime, Group, Kind, Micros, Provisioning, Reason, Work,
};
use queue_client::wire::{Message, Reply};
use std::collections::BTreeSet;

/// Entries are written again every few seconds only, so a mark may outlive its entry by as much.
const OUTLIVES: Micros = BLOCKED_LIFETIME + BLOCKED_REWRITTEN_AFTER;

impl Audit {
    /// Contended is what an entry says that counts. After the database's clock was set back entries of the future may
    /// outlive the marks.
    pub(super) fn contended_is_told(&mut self, committed: &Committed, rows: &Rows) -> Verdict {
        let now = committed.now;
        if let Some(latest) = self.latest.filter(|latest| now < *latest) {
            self.marks_fail_until = self.marks_fail_until.max(Some(latest + OUTLIVES));
        }
        self.latest = Some(now);
        let marks_hold = self.marks_fail_until <= Some(now);
        let Some(limits) = committed.limits else { return Ok(()) };
        if committed.work == Work::Round {
            self.unresolved = limits.policy.limit.is_none();
        }
        // The mark stays while the limit can't be resolved, and after that until the next round.
        let stays = self.unresolved || limits.policy.limit.is_none();
        for (message, reply) in answered(committed) {
            let right = |told: bool, reason: Reason, group: Option<&Group>| {
                let counts = |lifetime: Micros| is_blocked(rows, reason, group, now, lifetime);
                if told { counts(OUTLIVES) } else { !marks_hold || !counts(BLOCKED_LIFETIME) }
            };
            let stays = stays && reply.contended;
            if !stays && !right(reply.contended, Reason::Limit, None) {
                let told = reply.contended;
                return violated("P6", format!("{} is told contended: {told}", message.client_id));
            }
            let leases = own(rows, message).filter(|block| block.kind == Kind::Lease);
            let groups: BTreeSet<&Group> = leases.map(|lease| &lease.group).collect();
            let told = |group: &Group| reply.contended_groups.iter().any(|told| told == group.as_str());
            let wrong = groups.iter().find(|group| !right(told(group), Reason::GroupLimit, Some(group)));
            let others = reply.contended_groups.len() > groups.iter().filter(|group| told(group)).count();
            if others || wrong.is_some() {
                let told = &reply.contended_groups;
                return violated("P6", format!("{} is told of {told:?}: {wrong:?}", message.client_id));
            }
        }
        Ok(())
    }

    /// The state of a reply is another where there is something else to hear of, and only there.
    pub(super) fn state_says_what_is(&mut self, committed: &Committed, rows: &Rows) -> Verdict {
        for (message, reply) in answered(committed) {
            let blocks: BTreeSet<_> =
                own(rows, message).map(|block| format!("{} {:?}", block.id, block.status)).collect();
            let mode = match committed.limits.map(|limits| limits.policy.provisioning) {
                None | Some(Provisioning::None) => "none",
                Some(Provisioning::Strict) => "strict",
                Some(Provisioning::Under { .. }) => "under",
                Some(Provisioning::Over { .. }) => "over",
            };
            let within =
                committed.limits.and_then(|limits| limits.policy.settle_after).map(|after| after / 3);
            let what =
                format!("{blocks:?} {} {:?} {mode} {within:?}", reply.contended, reply.contended_groups);
            let meant = self.states.entry(reply.state.clone()).or_insert_with(|| what.clone());
            let said = self.stated.entry(what.clone()).or_insert_with(|| reply.state.clone());
            if *meant != what || *said != reply.state {
                return violated("P7", format!("state {} is {what}, and was {meant}", reply.state));
            }
        }
        Ok(())
    }
}

fn is_blocked(rows: &Rows, reason: Reason, group: Option<&Group>, now: DbTime, lifetime: Micros) -> bool {
    rows.clients.values().any(|client| {
        let mut entries = client.blocked.iter().map(|entry| &entry.lacking);
        client.blocked_at.is_some_and(|at| at + lifetime > now)
            && entries.any(|lacks| lacks.reason == reason && group.is_none_or(|group| lacks.group == *group))
    })
}

fn answered<'a>(committed: &Committed<'a>) -> impl Iterator<Item = (&'a Message, &'a Reply)> {
    committed.calls.iter().filter_map(|told| Some((told.message, told.reply?)))
}

fn own<'a>(rows: &'a Rows, message: &Message) -> impl Iterator<Item = &'a Block> {
    rows.blocks.values().filter(|block| block.client.as_str() == message.client_id)
}
