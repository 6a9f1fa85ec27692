//! A small holder, written from the protocol's rules.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use queue_wire::{Blocked, GrantVerdict, LeaseReport, LeaseVerdict, Message, Reason, Reply, Status};

use crate::ledger::Call;
use crate::transport::Endpoint;

/// What a call was answered, by process and number.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) process: String,
    pub(super) generation: u64,
    pub(super) number: u64,
    pub(super) answer: Result<Reply, Refusal>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Refusal {
    Superseded,
    Fenced(u64),
}

#[derive(Debug)]
struct Block {
    round: u64,
    group: String,
    permits: u64,
    claimed: u64,
    released: u64,
    expired: bool,
}

/// A lease's ttl, which this holder looks at in rounds.
const TTL_MS: u64 = 4_000;

#[derive(Debug)]
struct Lent {
    round: u64,
    group: String,
    permits: u64,
    drawn: u64,
    released: u64,
    retired: bool,
    stopped: bool,
    reported_at: u64,
}

#[derive(Debug, Default)]
pub(in crate::ledger) struct Holder {
    pub(super) limit: u64,
    /// Permits of the largest lease; 0 for none.
    lease: u64,
    round: u64,
    blocks: BTreeMap<String, Block>,
    leases: BTreeMap<String, Lent>,
    /// Somebody else lacks permits; this client did in its last round.
    pub(super) contended: bool,
    blocked: bool,
    /// The highest generation heard, and its process.
    kept: Option<(u64, String)>,
    /// Requests that got nothing.
    parked: Vec<Call>,
}

impl Holder {
    pub(in crate::ledger) fn new(limit: u64) -> Self {
        Self { limit, ..Self::default() }
    }

    pub(super) fn lending(limit: u64, lease: u64) -> Self {
        Self { limit, lease, ..Self::default() }
    }

    pub(super) fn counted(&self, id: &str) -> u64 {
        let granted = self.blocks.get(id).map_or(0, |block| block.claimed - block.released);
        granted + self.leases.get(id).map_or(0, Lent::footprint)
    }

    pub(super) fn usage(&self) -> u64 {
        let granted: u64 = self.blocks.values().map(|block| block.permits - block.released).sum();
        granted + self.leases.values().map(Lent::footprint).sum::<u64>()
    }

    fn left(&self) -> u64 {
        self.limit.saturating_sub(self.usage())
    }

    /// Takes a call in: what it is answered, and what another one is because of it.
    pub(super) fn hear(&mut self, call: Call, now: u64) -> Vec<Told> {
        if let Err(lowest) = self.admit(&call.message) {
            return vec![told(&call, Err(Refusal::Fenced(lowest)))];
        }
        let mut answers = Vec::new();
        if call.endpoint == Endpoint::Request {
            let waiting =
                self.parked.iter().position(|parked| parked.message.process == call.message.process);
            if let Some(waiting) = waiting {
                if self.parked[waiting].number >= call.number {
                    return vec![told(&call, Err(Refusal::Superseded))];
                }
                answers.push(told(&self.parked.remove(waiting), Err(Refusal::Superseded)));
            }
        }
        let reply = self.answer(&call, now);
        if call.endpoint == Endpoint::Request && call.message.wait_ms > 0 && !brings(&call, &reply) {
            let mut parked = call;
            parked.message.grants = None;
            parked.message.leases = parked.message.leases.map(|_| Vec::new());
            self.parked.push(parked);
        } else {
            answers.push(told(&call, Ok(reply)));
        }
        answers
    }

    /// A round looks at a parked request again; when its time is `over`, it is answered whatever it gets.
    pub(super) fn look_again(&mut self, at: usize, over: bool, now: u64) -> Option<Told> {
        let call = self.parked.get(at.checked_rem(self.parked.len())?)?.clone();
        let reply = self.answer(&call, now);
        (over || brings(&call, &reply)).then(|| {
            self.parked.retain(|parked| parked.number != call.number);
            told(&call, Ok(reply))
        })
    }

    /// Generation, process and fence; a higher generation takes over.
    fn admit(&mut self, message: &Message) -> Result<(), u64> {
        let (generation, process) = (message.generation, message.process.clone().unwrap_or_default());
        if let Some((kept, heard)) = &self.kept {
            match generation.cmp(kept) {
                Ordering::Equal if process == *heard => return Ok(()),
                Ordering::Less | Ordering::Equal => return Err(kept + 1),
                Ordering::Greater => {}
            }
            self.parked.clear();
            if message.resume {
                self.leases.values_mut().for_each(|lease| lease.retired = true);
            } else {
                self.blocks.clear();
                self.leases.clear();
            }
        }
        self.kept = Some((generation, process));
        Ok(())
    }

    /// An operator declares the client dead.
    pub(super) fn settle(&mut self) {
        if let Some((kept, heard)) = &mut self.kept {
            (*kept, *heard) = (*kept + 1, "nobody".to_owned());
            self.blocks.clear();
            self.leases.clear();
            self.parked.clear();
        }
    }

    /// The highest generation heard.
    pub(super) fn generation(&self) -> u64 {
        self.kept.as_ref().map_or(0, |(kept, _)| *kept)
    }

    /// Permits of grants that are in use, and footprints.
    pub(super) fn in_use(&self) -> u64 {
        let claimed: u64 = self.blocks.values().map(|block| block.claimed - block.released).sum();
        claimed + self.leases.values().map(Lent::footprint).sum::<u64>()
    }

    pub(in crate::ledger) fn answer(&mut self, call: &Call, now: u64) -> Reply {
        let message = &call.message;
        if message.all {
            let (grants, leases) = (message.grants.as_ref().unwrap(), message.leases.as_ref().unwrap());
            let said = |id: &String| {
                grants.iter().any(|report| report.id == *id) || leases.iter().any(|report| report.id == *id)
            };
            self.blocks.retain(|id, block| block.round > message.seen || said(id));
            self.leases.retain(|id, lease| lease.round > message.seen || said(id));
        }
        let reports = message.grants.as_deref().unwrap_or_default();
        for report in reports {
            if let Some(block) = self.blocks.get_mut(&report.id) {
                block.claimed = block.claimed.max(report.claimed.min(block.permits));
                let beyond = report.claimed.saturating_sub(block.claimed);
                block.released =
                    block.released.max(report.released.saturating_sub(beyond).min(block.claimed));
            }
        }
        let lease_reports = message.leases.as_deref().unwrap_or_default();
        lease_reports.iter().for_each(|report| self.hear_lease(report, now));
        let mut blocked = Vec::new();
        if call.endpoint == Endpoint::Request {
            blocked = self.run_round(message, now);
            self.blocked = !blocked.is_empty();
        }
        let unknown = reports.iter().filter(|report| !self.blocks.contains_key(&report.id));
        let unknown = unknown.map(|report| verdict(&report.id, Status::NotFound));
        let told =
            |id: &String, block: &Block| block.round > message.seen || reports.iter().any(|r| r.id == *id);
        let known =
            self.blocks.iter().filter(|(id, block)| told(id, block)).map(|(id, block)| block.verdict(id));
        let grants = unknown.chain(known).collect();
        let leases = self.lease_verdicts(message.seen, lease_reports, now);
        self.blocks.retain(|_, block| !block.is_settled());
        self.leases.retain(|_, lease| lease.footprint() > 0);
        let contended = self.contended || self.blocked;
        let state = format!(
            "{:?} {contended}",
            self.leases.iter().map(|(id, l)| (id, l.retired)).collect::<Vec<_>>()
        );
        Reply { v: 1, round: self.round, grants, leases, blocked, contended, state, ..Reply::default() }
    }

    fn hear_lease(&mut self, report: &LeaseReport, now: u64) {
        let Some(lease) = self.leases.get_mut(&report.id) else { return };
        lease.drawn = lease.drawn.max(report.drawn.min(lease.permits));
        lease.released = lease.released.max(report.released.min(lease.drawn));
        lease.stopped |= report.stopped;
        lease.retired |= report.stopped;
        lease.reported_at = now;
    }

    fn lease_verdicts(&self, seen: u64, reports: &[LeaseReport], now: u64) -> Vec<LeaseVerdict> {
        let unknown = reports.iter().filter(|report| !self.leases.contains_key(&report.id)).map(|report| {
            lease_verdict(&report.id, if report.stopped { Status::Settled } else { Status::Retired })
        });
        let told = |id: &String, lease: &Lent| lease.round > seen || reports.iter().any(|r| r.id == *id);
        let known = self.leases.iter().filter(|(id, lease)| told(id, lease));
        unknown.chain(known.map(|(id, lease)| lease.verdict(id, now))).collect()
    }

    fn run_round(&mut self, message: &Message, now: u64) -> Vec<Blocked> {
        self.round += 1;
        for lease in self.leases.values_mut() {
            lease.retired |= now.saturating_sub(lease.reported_at) >= TTL_MS;
        }
        let reports = message.grants.as_deref().unwrap_or_default();
        let lease_reports = message.leases.as_deref().unwrap_or_default();
        let mut demand = message.demand.clone();
        demand.sort_by_key(|entry| std::cmp::Reverse(entry.oldest_age_ms));
        let mut lacking = Vec::new();
        for entry in demand {
            let granted = self.blocks.iter().filter(|(id, block)| {
                block.group == entry.group
                    && block.round > message.seen
                    && !reports.iter().any(|r| r.id == **id)
            });
            let granted: u64 = granted.map(|(_, block)| block.permits - block.released).sum();
            let lent = self.leases.iter().filter(|(id, lease)| {
                lease.group == entry.group
                    && lease.round > message.seen
                    && !lease_reports.iter().any(|r| r.id == **id)
            });
            let lent: u64 = lent.map(|(_, lease)| lease.permits - lease.drawn).sum();
            let wanted = entry.count.saturating_sub(granted + lent);
            let permits =
                if self.lease == 0 { wanted.min(self.left()) } else { wanted.min(1).min(self.left()) };
            if permits > 0 {
                let (group, round) = (entry.group.clone(), self.round);
                let block = Block { round, group, permits, claimed: 0, released: 0, expired: false };
                self.blocks.insert(format!("{round}-{}", entry.group), block);
            }
            lacking.push((entry.group, wanted - permits));
        }
        let lends = message.leases.is_some();
        lacking.into_iter().filter_map(|(group, count)| self.lend(lends, group, count, now)).collect()
    }

    fn lend(&mut self, lends: bool, group: String, count: u64, now: u64) -> Option<Blocked> {
        let live = |lease: &Lent| lease.group == group && !lease.retired && lease.drawn < lease.permits;
        let permits = self.lease.min(self.left());
        let mut lacks = count;
        if lends && permits > 0 && !self.leases.values().any(live) {
            let (round, id) = (self.round, format!("{}-lease-{group}", self.round));
            lacks = count.saturating_sub(permits);
            let group = group.clone();
            let (drawn, released, retired, stopped) = (0, 0, false, false);
            let lent = Lent { round, group, permits, drawn, released, retired, stopped, reported_at: now };
            self.leases.insert(id, lent);
        }
        (lacks > 0).then_some(Blocked { group, count: lacks, reason: Reason::Limit })
    }

    pub(super) fn retire(&mut self, at: usize) {
        if let Some(lease) = self.leases.values_mut().nth(at) {
            lease.retired = true;
        }
    }

    pub(super) fn reclaim(&mut self, at: usize) {
        let Some(block) = self.blocks.values_mut().nth(at) else { return };
        block.expired |= block.claimed < block.permits;
        block.permits = block.claimed;
        self.blocks.retain(|_, block| !block.is_settled());
    }
}

/// Whether a reply says more than that everything is as it was.
fn brings(call: &Call, reply: &Reply) -> bool {
    let seen = call.message.seen;
    let news =
        |round: Option<u64>, status| status != Status::Active || round.is_some_and(|round| round > seen);
    reply.grants.iter().any(|grant| news(grant.round, grant.status))
        || reply.leases.iter().any(|lease| news(lease.round, lease.status))
}

fn told(call: &Call, answer: Result<Reply, Refusal>) -> Told {
    let process = call.message.process.clone().unwrap_or_default();
    Told { process, generation: call.message.generation, number: call.number, answer }
}

impl Block {
    fn is_settled(&self) -> bool {
        self.released == self.permits
    }

    fn verdict(&self, id: &str) -> GrantVerdict {
        let status = match (self.is_settled(), self.expired) {
            (true, _) => Status::Settled,
            (false, true) => Status::Expired,
            (false, false) => Status::Active,
        };
        GrantVerdict {
            round: Some(self.round),
            group: Some(self.group.clone()),
            permits: Some(self.permits),
            claimed: Some(self.claimed),
            released: Some(self.released),
            ..verdict(id, status)
        }
    }
}

impl Lent {
    fn footprint(&self) -> u64 {
        if self.stopped { self.drawn - self.released } else { self.permits - self.released }
    }

    fn verdict(&self, id: &str, now: u64) -> LeaseVerdict {
        let status = match (self.footprint(), self.retired) {
            (0, _) => Status::Settled,
            (_, true) => Status::Retired,
            (_, false) => Status::Active,
        };
        let left = TTL_MS.saturating_sub(now.saturating_sub(self.reported_at));
        LeaseVerdict {
            round: Some(self.round),
            group: Some(self.group.clone()),
            permits: Some(self.permits),
            drawn: Some(self.drawn),
            released: Some(self.released),
            ttl_ms: Some(if self.retired { 0 } else { left }),
            ..lease_verdict(id, status)
        }
    }
}

pub(in crate::ledger) fn lease_verdict(id: &str, status: Status) -> LeaseVerdict {
    LeaseVerdict {
        id: id.to_owned(),
        status,
        round: None,
        group: None,
        permits: None,
        drawn: None,
        released: None,
        ttl_ms: None,
    }
}

pub(in crate::ledger) fn verdict(id: &str, status: Status) -> GrantVerdict {
    GrantVerdict {
        id: id.to_owned(),
        status,
        round: None,
        group: None,
        permits: None,
        claimed: None,
        released: None,
        claim_within_ms: None,
    }
}
