//! Step 7: what each call is told. Verdicts are those of the end of the transaction.

use crate::blocked::Lacking;
use crate::call::Call;
use crate::draft::Draft;
use crate::fingerprint;
use crate::names::{BlockId, ClientId, DbTime, Group, Micros, Slot};
use crate::plan::Plan;
use crate::state::{Block, Kind, Policy, Provisioning, State, Status};
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
    /// Another process speaks for the client, or this one was declared dead. Nothing of the call was applied.
    Fenced {
        /// The lowest generation admitted.
        generation: u64,
    },
    /// `seen` is above the key's round and more than a day ahead of the clock. Nothing of the call was applied.
    SeenTooFarAhead {
        /// The highest value accepted.
        max: u64,
    },
    /// The key's round is [`ROUND_MAX`](crate::ROUND_MAX), so no round can be numbered. The call's reports were applied.
    RoundsUsedUp,
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
    /// Groups in which this client holds a lease and somebody's demand is blocked by the group's ceiling.
    pub contended_groups: Vec<Group>,
    /// Differs from the last one when the client has to hear of something.
    pub state: String,
    /// When the next round may start; `None` in the answer to a sync.
    pub next_round_at: Option<DbTime>,
    /// Within this a client that holds anything must be heard again; `None` if it may be silent.
    pub report_within: Option<Micros>,
}

/// What a block is at the end of the transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The id as the client spelt it.
    pub id: String,
    /// Whether it was reported, or is delivered, as a grant or as a lease.
    pub kind: Kind,
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
    state: &State,
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
    let provisioning = state.policy.as_ref().map_or(Provisioning::None, |policy| policy.provisioning);
    let report_within = state.policy.as_ref().and_then(Policy::report_within);
    let answer = |(at, call): (usize, &Call)| {
        if let Err(refused) = admitted[at] {
            return Outcome::Refused(refused);
        }
        let own = by_client.get(&call.client).map_or(&[][..], Vec::as_slice);
        let contended_groups = contended_groups(&draft, own);
        let open_blocks = draft.clients.get(&call.client).map_or(0, |client| client.open_blocks);
        let names = contended_groups.iter().map(Group::as_str);
        Outcome::Answered(Answer {
            round: draft.semaphore.round,
            verdicts: verdicts(&draft, call, own),
            blocked: lacking.remove(&at).unwrap_or_default(),
            contended,
            state: fingerprint::of_client(open_blocks, contended, names, provisioning, report_within),
            contended_groups,
            next_round_at: next_round_at.filter(|_| call.asks),
            report_within,
        })
    };
    let answers = calls.iter().enumerate().map(answer).collect();
    draft.shorten_free_list();
    plan(draft, answers)
}

/// Groups in which the client holds a lease and whose ceiling blocks somebody's demand.
fn contended_groups(draft: &Draft, own: &[Slot]) -> Vec<Group> {
    let leases =
        own.iter().filter_map(|slot| draft.blocks.get(slot)).filter(|block| block.kind == Kind::Lease);
    let groups: BTreeSet<&Group> = leases.map(|lease| &lease.group).collect();
    let contended =
        |group: &&Group| draft.groups[*group].contended_until.is_some_and(|until| until > draft.now);
    groups.into_iter().filter(contended).cloned().collect()
}

fn verdicts(draft: &Draft, call: &Call, own: &[Slot]) -> Vec<Verdict> {
    let mut told = BTreeSet::new();
    let mut verdicts = Vec::new();
    for report in call.grants.iter().filter(|report| told.insert(report.id.as_str())) {
        verdicts.push(verdict(draft, call, &report.id, Kind::Grant, VerdictStatus::NotFound));
    }
    for report in call.leases.iter().filter(|report| told.insert(report.id.as_str())) {
        let stopped = call.leases.iter().any(|other| other.id == report.id && other.stopped);
        let unknown = if stopped { VerdictStatus::Settled } else { VerdictStatus::Open(Status::Retired) };
        verdicts.push(verdict(draft, call, &report.id, Kind::Lease, unknown));
    }
    let open = own.iter().filter_map(|slot| draft.blocks.get(slot));
    for block in open.filter(|block| block.id.round > call.seen) {
        let id = block.id.to_string();
        if !told.contains(id.as_str()) {
            let status = VerdictStatus::Open(block.status);
            verdicts.push(Verdict { id, kind: block.kind, status, block: Some(block.clone()) });
        }
    }
    verdicts
}

/// The verdict of a reported block; `unknown` where the client holds no such block.
fn verdict(draft: &Draft, call: &Call, id: &str, kind: Kind, unknown: VerdictStatus) -> Verdict {
    let own = |block: &&Block| block.client == call.client && block.kind == kind;
    let name = BlockId::parse(id);
    let open = name.and_then(|name| draft.block(name)).filter(own);
    let settled = name.and_then(|name| draft.settled.get(&name)).filter(own);
    let status = match (open, settled) {
        (Some(block), _) => VerdictStatus::Open(block.status),
        (None, Some(_)) => VerdictStatus::Settled,
        (None, None) => unknown,
    };
    Verdict { id: id.to_owned(), kind, status, block: open.or(settled).cloned() }
}

fn plan(draft: Draft, answers: Vec<Outcome>) -> Plan {
    let Draft { now, semaphore, groups, clients, mut blocks, pending, audit, tally, .. } = draft;
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
        audit,
        tally,
        answers,
    }
}
