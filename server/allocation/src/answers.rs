//! Step 7: what each call is told. Verdicts are those of the end of the transaction.

use crate::blocked::Lacking;
use crate::call::Call;
use crate::draft::Draft;
use crate::names::{BlockId, ClientId, DbTime, Slot};
use crate::plan::Plan;
use crate::state::{Block, Kind, Status};
use std::collections::{BTreeMap, BTreeSet};

/// What becomes of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is answered.
    Answered(Answer),
    /// It is refused.
    Refused(Refused),
}

/// Why a call is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// No policy covers the key. The call's reports were applied.
    NoPolicy,
    /// `seen` is more than a day ahead of the key's round and of the clock. Nothing of the call was applied.
    SeenTooFarAhead {
        /// The highest value accepted.
        max: u64,
    },
}

/// The answer to one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The key's latest round.
    pub round: u64,
    /// One for each reported block, and one for each open block made after `seen`.
    pub verdicts: Vec<Verdict>,
    /// What of the demand stays queued.
    pub blocked: Vec<Lacking>,
    /// Somebody's demand is blocked by the limit.
    pub contended: bool,
    /// When the next round may start; `None` in the answer to a sync.
    pub next_round_at: Option<DbTime>,
}

/// What a block is at the end of the transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The id as the client spelt it.
    pub id: String,
    /// What it is.
    pub status: VerdictStatus,
    /// The block, where this client holds it or it was settled in this transaction.
    pub block: Option<Block>,
}

/// The status of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerdictStatus {
    /// An open block.
    Open(Status),
    /// Everything came back in this transaction.
    Settled,
    /// It never existed, belongs to someone else, or was reclaimed whole.
    NotFound,
}

/// Turns the draft into a plan with an outcome for each call.
pub(crate) fn finish(
    mut draft: Draft,
    calls: &[Call],
    admitted: &[Result<(), Refused>],
    mut lacking: BTreeMap<usize, Vec<Lacking>>,
    next_round_at: Option<DbTime>,
) -> Plan {
    let mut by_client = BTreeMap::<&ClientId, Vec<Slot>>::new();
    for (slot, block) in &draft.blocks {
        by_client.entry(&block.client).or_default().push(*slot);
    }
    let contended = draft.semaphore.contended_until.is_some_and(|until| until > draft.now);
    let answer = |(at, call): (usize, &Call)| match admitted[at] {
        Err(refused) => Outcome::Refused(refused),
        Ok(()) => Outcome::Answered(Answer {
            round: draft.semaphore.round,
            verdicts: verdicts(&draft, call, by_client.get(&call.client).map_or(&[], Vec::as_slice)),
            blocked: lacking.remove(&at).unwrap_or_default(),
            contended,
            next_round_at,
        }),
    };
    let answers = calls.iter().enumerate().map(answer).collect();
    draft.shorten_free_list();
    plan(draft, answers)
}

fn verdicts(draft: &Draft, call: &Call, own: &[Slot]) -> Vec<Verdict> {
    let mut told = BTreeSet::new();
    let reported = call.grants.iter().filter(|report| told.insert(report.id.as_str()));
    let mut verdicts: Vec<_> = reported.map(|report| verdict(draft, &call.client, &report.id)).collect();
    let unseen =
        own.iter().filter_map(|slot| draft.blocks.get(slot)).filter(|block| block.id.round > call.seen);
    for block in unseen {
        let id = block.id.to_string();
        if !told.contains(id.as_str()) {
            verdicts.push(Verdict {
                id,
                status: VerdictStatus::Open(block.status),
                block: Some(block.clone()),
            });
        }
    }
    verdicts
}

fn verdict(draft: &Draft, client: &ClientId, id: &str) -> Verdict {
    let own = |block: &&Block| block.client == *client && block.kind == Kind::Grant;
    let name = BlockId::parse(id);
    if let Some(block) = name.and_then(|name| draft.block(name)).filter(own) {
        return Verdict {
            id: id.to_owned(),
            status: VerdictStatus::Open(block.status),
            block: Some(block.clone()),
        };
    }
    if let Some(block) = name.and_then(|name| draft.settled.get(&name)).filter(own) {
        return Verdict { id: id.to_owned(), status: VerdictStatus::Settled, block: Some(block.clone()) };
    }
    Verdict { id: id.to_owned(), status: VerdictStatus::NotFound, block: None }
}

fn plan(draft: Draft, answers: Vec<Outcome>) -> Plan {
    let Draft { now, semaphore, groups, clients, mut blocks, pending, .. } = draft;
    Plan {
        now,
        groups: groups.into_iter().filter(|(group, _)| draft.changed_groups.contains(group)).collect(),
        blocks: draft.changed_slots.into_iter().map(|slot| (slot, blocks.remove(&slot))).collect(),
        pending: pending
            .into_iter()
            .filter(|(n, _)| semaphore.batches.iter().any(|batch| batch.n == *n))
            .collect(),
        clients: clients.into_iter().filter(|(id, _)| draft.changed_clients.contains(id)).collect(),
        semaphore,
        answers,
    }
}
