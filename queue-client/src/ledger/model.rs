//! The ledger against a small holder written from the protocol's rules, over a network that loses, repeats and
//! reorders.

use std::collections::BTreeMap;

use proptest::prelude::*;
use queue_wire::{Blocked, GrantVerdict, LeaseReport, LeaseVerdict, Message, Reason, Reply, Status};

use super::fund::{Returned, Ticket};
use super::{BlockId, Call, Identity, Ledger, Waiter};
use crate::transport::Endpoint;

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
pub(super) struct Holder {
    limit: u64,
    /// Permits of the largest lease; 0 for none.
    lease: u64,
    round: u64,
    blocks: BTreeMap<String, Block>,
    leases: BTreeMap<String, Lent>,
    /// Somebody else lacks permits; this client did in its last round.
    contended: bool,
    blocked: bool,
}

impl Holder {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, ..Self::default() }
    }

    fn counted(&self, id: &str) -> u64 {
        let granted = self.blocks.get(id).map_or(0, |block| block.claimed - block.released);
        granted + self.leases.get(id).map_or(0, Lent::footprint)
    }

    fn usage(&self) -> u64 {
        let granted: u64 = self.blocks.values().map(|block| block.permits - block.released).sum();
        granted + self.leases.values().map(Lent::footprint).sum::<u64>()
    }

    fn left(&self) -> u64 {
        self.limit.saturating_sub(self.usage())
    }

    pub(super) fn answer(&mut self, call: &Call, now: u64) -> Reply {
        let message = &call.message;
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

    fn retire(&mut self, at: usize) {
        if let Some(lease) = self.leases.values_mut().nth(at) {
            lease.retired = true;
        }
    }

    fn reclaim(&mut self, at: usize) {
        let Some(block) = self.blocks.values_mut().nth(at) else { return };
        block.expired |= block.claimed < block.permits;
        block.permits = block.claimed;
        self.blocks.retain(|_, block| !block.is_settled());
    }
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

pub(super) fn lease_verdict(id: &str, status: Status) -> LeaseVerdict {
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

pub(super) fn verdict(id: &str, status: Status) -> GrantVerdict {
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

pub(super) fn ledger() -> Ledger {
    Ledger::new(Identity { client_id: "worker".to_owned(), process: "p".to_owned() }, 0)
}

/// What may happen; numbers pick one of what there is.
#[derive(Debug, Clone)]
enum Step {
    Enqueue(bool),
    Draw(bool),
    /// As a handle draws, without the ledger.
    DrawFast(bool),
    Cancel(usize),
    Release(usize),
    PutBack(usize),
    /// A message arrives, and may arrive again.
    Arrive(usize, bool),
    /// A reply arrives, and may arrive again.
    Reply(usize, bool),
    /// The client gives a call up, which may still arrive.
    GiveUp(usize),
    Lose(usize),
    Reclaim(usize),
    Retire(usize),
    /// Others begin or cease to lack permits.
    Contend(bool),
    Tick(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let pick = 0..8_usize;
    prop_oneof![
        4 => any::<bool>().prop_map(Step::Enqueue),
        1 => any::<bool>().prop_map(Step::Draw),
        2 => any::<bool>().prop_map(Step::DrawFast),
        1 => pick.clone().prop_map(Step::Cancel),
        2 => pick.clone().prop_map(Step::Release),
        1 => pick.clone().prop_map(Step::PutBack),
        6 => (pick.clone(), any::<bool>()).prop_map(|(at, again)| Step::Arrive(at, again)),
        6 => (pick.clone(), any::<bool>()).prop_map(|(at, again)| Step::Reply(at, again)),
        1 => pick.clone().prop_map(Step::GiveUp),
        1 => pick.clone().prop_map(Step::Lose),
        1 => pick.clone().prop_map(Step::Reclaim),
        1 => pick.prop_map(Step::Retire),
        1 => any::<bool>().prop_map(Step::Contend),
        2 => (0..2_000_u64).prop_map(Step::Tick),
    ]
}

#[derive(Debug, Clone)]
struct Item {
    block: BlockId,
    /// Drawn from this group's fund.
    fast: Option<(&'static str, Ticket)>,
}

struct World {
    now: u64,
    ledger: Ledger,
    holder: Holder,
    waiting: Vec<Waiter>,
    running: Vec<Item>,
    messages: Vec<Call>,
    replies: Vec<(u64, Reply)>,
}

impl World {
    fn new(limit: u64, lease: u64) -> Self {
        Self {
            now: 0,
            ledger: ledger(),
            holder: Holder { limit, lease, ..Holder::default() },
            waiting: Vec::new(),
            running: Vec::new(),
            messages: Vec::new(),
            replies: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        let group = |nightly: bool| if nightly { "nightly" } else { "" };
        match *step {
            Step::Enqueue(nightly) => self.waiting.push(self.ledger.enqueue(group(nightly), self.now)),
            Step::Draw(nightly) => {
                let drawn = self.ledger.try_draw(group(nightly));
                self.running.extend(drawn.map(|block| Item { block, fast: None }));
            }
            Step::DrawFast(nightly) => {
                let group = group(nightly);
                if let Some(ticket) = self.ledger.fund(group).draw() {
                    assert!(self.waiting.iter().all(|waiter| waiter.group != group), "waiters come first");
                    let block = self.ledger.tickets[&ticket].clone();
                    self.running.push(Item { block, fast: Some((group, ticket)) });
                }
            }
            Step::Cancel(at) => {
                if let Some(waiter) = pick(&mut self.waiting, at, false) {
                    self.ledger.cancel(&waiter);
                }
            }
            Step::Release(at) => {
                if let Some(item) = pick(&mut self.running, at, false) {
                    self.release(&item);
                }
            }
            Step::PutBack(at) => {
                if let Some(item) = pick(&mut self.running, at, false) {
                    self.ledger.put_back(&item.block);
                }
            }
            Step::Arrive(at, again) => {
                if let Some(call) = pick(&mut self.messages, at, again) {
                    self.replies.push((call.number, self.holder.answer(&call, self.now)));
                }
            }
            Step::Reply(at, again) => {
                if let Some((number, reply)) = pick(&mut self.replies, at, again) {
                    self.ledger.replied(number, &reply, self.now + 250);
                }
            }
            Step::GiveUp(at) => {
                if let Some(call) = pick(&mut self.messages, at, true) {
                    self.ledger.failed(call.number, self.now + 100);
                }
            }
            Step::Lose(at) => {
                if let Some(call) = pick(&mut self.messages, at, false) {
                    self.ledger.failed(call.number, self.now + 100);
                }
            }
            Step::Reclaim(at) => self.holder.reclaim(at),
            Step::Retire(at) => self.holder.retire(at),
            Step::Contend(contended) => self.holder.contended = contended,
            Step::Tick(ms) => self.now += ms,
        }
        self.settle();
    }

    fn release(&mut self, item: &Item) {
        let Some((group, ticket)) = item.fast else { return self.ledger.release(&item.block) };
        match self.ledger.fund(group).release(ticket) {
            Returned::Counted => {}
            Returned::Last => self.ledger.spent(ticket),
            Returned::Elsewhere => self.ledger.release_ticket(ticket),
        }
    }

    /// Takes what comes out of the ledger, then holds both sides against each other.
    fn settle(&mut self) {
        for served in self.ledger.served() {
            let first = self.waiting.iter().position(|waiter| waiter.group == served.waiter.group);
            let first = self.waiting.remove(first.expect("someone waited"));
            assert_eq!(first, served.waiter, "first in, first out");
            self.running.push(Item { block: served.block, fast: None });
        }
        while let Some(call) = self.ledger.next_call(self.now) {
            self.messages.push(call);
        }
        let mut running = BTreeMap::<&str, u64>::new();
        self.running.iter().for_each(|item| *running.entry(item.block.as_str()).or_default() += 1);
        for (block, items) in running {
            let counted = self.holder.counted(block);
            assert!(items <= counted, "{items} items run on {block}, {counted} counted");
        }
        assert!(self.holder.usage() <= self.holder.limit);
        self.ledger.check();
        assert_eq!(self.ledger.running(), self.running.len() as u64);
    }

    /// From now on nothing is lost and items end at once.
    fn run_fairly(&mut self, done: impl Fn(&Self) -> bool) {
        for call in std::mem::take(&mut self.messages) {
            self.ledger.failed(call.number, self.now);
        }
        for _ in 0..1000 {
            if done(self) {
                return;
            }
            self.now += 2_000;
            let running = self.running.len();
            let steps = (0..running).map(|_| Step::Release(0));
            let steps = steps.chain((0..8).flat_map(|_| [Step::Arrive(0, false), Step::Reply(0, false)]));
            steps.for_each(|step| self.step(&step));
        }
        panic!("it does not end: {:?} {:?}", self.ledger, self.holder);
    }
}

fn pick<T: Clone>(from: &mut Vec<T>, at: usize, again: bool) -> Option<T> {
    let at = at.checked_rem(from.len())?;
    Some(if again { from[at].clone() } else { from.remove(at) })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_runs_is_counted_everyone_is_served_and_all_comes_back(
        limit in 1..8_u64,
        lease in prop_oneof![Just(0), 1..6_u64],
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let mut world = World::new(limit, lease);
        steps.iter().for_each(|step| world.step(step));

        world.run_fairly(|world| world.waiting.is_empty());

        world.ledger.drain();
        prop_assert!(world.ledger.try_draw("").is_none() && world.ledger.fund("nightly").draw().is_none());
        world.run_fairly(|world| world.running.is_empty() && world.ledger.is_settled());
        prop_assert_eq!(world.holder.blocks.values().map(|block| block.claimed).sum::<u64>(), 0);
        prop_assert_eq!(world.holder.leases.values().map(Lent::footprint).sum::<u64>(), 0);
    }

    #[test]
    fn the_same_events_give_the_same_calls(steps in prop::collection::vec(step(), 0..100)) {
        let run = || {
            let mut world = World::new(3, 2);
            steps.iter().for_each(|step| world.step(step));
            (world.messages, world.ledger.wake_at())
        };
        prop_assert_eq!(run(), run());
    }
}
