//! P7 and the reply's part of P4: what a reply says.

use super::{Verdict, violated};
use crate::store::Rows;
use pgsemaphore_allocation::{Block, Status as Stored};
use queue_client::wire::{GrantVerdict, Message, Reply, Status};

/// Each report has one verdict, and every verdict is what the rows say.
pub(super) fn is_committed(rows: &Rows, message: &Message, reply: &Reply) -> Verdict {
    if reply.round != rows.semaphore.round {
        return violated("P7", format!("round {} is not {}", reply.round, rows.semaphore.round));
    }
    for report in message.grants.iter().flatten() {
        if !reply.grants.iter().any(|verdict| verdict.id == report.id) {
            return violated("P7", format!("no verdict for {report:?}"));
        }
    }
    for verdict in &reply.grants {
        let own =
            |block: &&Block| block.client.as_str() == message.client_id && block.id.to_string() == verdict.id;
        let row = rows.blocks.values().find(own);
        if !says(verdict, row) {
            return violated("P7", format!("{verdict:?} says more than {row:?}"));
        }
        if reply.grants.iter().filter(|other| other.id == verdict.id).count() > 1 {
            return violated("P7", format!("{verdict:?} is said twice"));
        }
    }
    Ok(())
}

fn says(verdict: &GrantVerdict, row: Option<&Block>) -> bool {
    let Some(row) = row else { return matches!(verdict.status, Status::Settled | Status::NotFound) };
    let status = match row.status {
        Stored::Active => Status::Active,
        Stored::Expired => Status::Expired,
        Stored::Retired => Status::Retired,
    };
    let said = [verdict.permits, verdict.claimed, verdict.released].map(|count| count.map(super::permits));
    verdict.status == status
        && verdict.round == Some(row.id.round)
        && verdict.group.as_deref() == Some(row.group.as_str())
        && said == [Some(row.permits), Some(row.used), Some(row.released)]
}

/// A reply that was lost is made up for by the next one.
pub(super) fn delivers_what_is_unseen(rows: &Rows, message: &Message, reply: &Reply) -> Verdict {
    let unseen = |block: &&Block| {
        block.client.as_str() == message.client_id
            && block.id.round > message.seen
            && !reply.grants.iter().any(|verdict| verdict.id == block.id.to_string())
    };
    match rows.blocks.values().find(unseen) {
        Some(block) => violated("P4", format!("a reply to {message:?} does not deliver {block:?}")),
        None => Ok(()),
    }
}
