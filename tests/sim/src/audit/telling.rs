//! P7 and the reply's part of P4: what a reply says.

use super::{Verdict, violated};
use crate::store::Rows;
use pgsemaphore_allocation::{Block, Kind, Status as Stored};
use queue_client::wire::{GrantVerdict, LeaseVerdict, Message, Reply, Status};
use std::collections::BTreeSet;

/// Each report has one verdict, and every verdict is what the rows say.
pub(super) fn is_committed(rows: &Rows, message: &Message, reply: &Reply) -> Verdict {
    if reply.round != rows.semaphore.round {
        return violated("P7", format!("round {} is not {}", reply.round, rows.semaphore.round));
    }
    let row = |kind: Kind, id: &str| {
        let own = |block: &&Block| block.client.as_str() == message.client_id && block.id.to_string() == id;
        rows.blocks.values().find(own).filter(|block| block.kind == kind)
    };
    for verdict in &reply.grants {
        let row = row(Kind::Grant, &verdict.id);
        if !says(verdict, row) {
            return violated("P7", format!("{verdict:?} says more than {row:?}"));
        }
    }
    for verdict in &reply.leases {
        let row = row(Kind::Lease, &verdict.id);
        if !says_of_lease(verdict, row, message) {
            return violated("P7", format!("{verdict:?} is not {row:?}"));
        }
    }
    let mut told = BTreeSet::new();
    if let Some(twice) = ids(reply).find(|id| !told.insert(*id)) {
        return violated("P7", format!("of {twice} two things are said: {reply:?}"));
    }
    let reported = message.grants.iter().flatten().map(|report| &report.id);
    let mut reported = reported.chain(message.leases.iter().flatten().map(|report| &report.id));
    match reported.find(|id| !told.contains(id.as_str())) {
        Some(id) => violated("P7", format!("no verdict for {id}")),
        None => Ok(()),
    }
}

fn ids(reply: &Reply) -> impl Iterator<Item = &str> {
    let grants = reply.grants.iter().map(|verdict| verdict.id.as_str());
    grants.chain(reply.leases.iter().map(|verdict| verdict.id.as_str()))
}

fn status(row: &Block) -> Status {
    match row.status {
        Stored::Active => Status::Active,
        Stored::Expired => Status::Expired,
        Stored::Retired => Status::Retired,
    }
}

fn says(verdict: &GrantVerdict, row: Option<&Block>) -> bool {
    let Some(row) = row else { return matches!(verdict.status, Status::Settled | Status::NotFound) };
    let said = [verdict.permits, verdict.claimed, verdict.released].map(|count| count.map(super::permits));
    verdict.status == status(row)
        && verdict.round == Some(row.id.round)
        && verdict.group.as_deref() == Some(row.group.as_str())
        && said == [Some(row.permits), Some(row.used), Some(row.released)]
}

fn says_of_lease(verdict: &LeaseVerdict, row: Option<&Block>, message: &Message) -> bool {
    let Some(row) = row else {
        let mut reports = message.leases.iter().flatten();
        let stopped = reports.any(|report| report.id == verdict.id && report.stopped);
        return match verdict.status {
            // With all fields if this transaction settled it.
            Status::Settled => stopped || verdict.permits.is_some(),
            Status::Retired => !stopped && verdict.permits.is_none(),
            _ => false,
        };
    };
    let said = [verdict.permits, verdict.drawn, verdict.released].map(|count| count.map(super::permits));
    verdict.status == status(row)
        && verdict.round == Some(row.id.round)
        && verdict.group.as_deref() == Some(row.group.as_str())
        && said == [Some(row.permits), Some(row.used), Some(row.released)]
}

/// A reply that was lost is made up for by the next one.
pub(super) fn delivers_what_is_unseen(rows: &Rows, message: &Message, reply: &Reply) -> Verdict {
    let unseen = |block: &&Block| {
        block.client.as_str() == message.client_id
            && block.id.round > message.seen
            && !ids(reply).any(|id| id == block.id.to_string())
    };
    match rows.blocks.values().find(unseen) {
        Some(block) => violated("P4", format!("a reply to {message:?} does not deliver {block:?}")),
        None => Ok(()),
    }
}
