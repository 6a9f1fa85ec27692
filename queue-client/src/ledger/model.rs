//! The ledger against a small holder written from the protocol's rules, over a network that loses, repeats and
//! reorders.

use std::collections::BTreeMap;

use proptest::prelude::*;
use queue_wire::{Blocked, GrantVerdict, Message, Reason, Reply, Status};

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

#[derive(Debug, Default)]
pub(super) struct Holder {
    limit: u64,
    round: u64,
    blocks: BTreeMap<String, Block>,
}

impl Holder {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, ..Self::default() }
    }

    fn counted(&self, id: &str) -> u64 {
        self.blocks.get(id).map_or(0, |block| block.claimed - block.released)
    }

    fn usage(&self) -> u64 {
        self.blocks.values().map(|block| block.permits - block.released).sum()
    }

    pub(super) fn answer(&mut self, call: &Call) -> Reply {
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
        let blocked = if call.endpoint == Endpoint::Request { self.run_round(message) } else { Vec::new() };
        let unknown = reports.iter().filter(|report| !self.blocks.contains_key(&report.id));
        let unknown = unknown.map(|report| verdict(&report.id, Status::NotFound));
        let told =
            |id: &String, block: &Block| block.round > message.seen || reports.iter().any(|r| r.id == *id);
        let known =
            self.blocks.iter().filter(|(id, block)| told(id, block)).map(|(id, block)| block.verdict(id));
        let grants = unknown.chain(known).collect();
        self.blocks.retain(|_, block| !block.is_settled());
        Reply { v: 1, round: self.round, grants, blocked, ..Reply::default() }
    }

    fn run_round(&mut self, message: &Message) -> Vec<Blocked> {
        self.round += 1;
        let reports = message.grants.as_deref().unwrap_or_default();
        let mut demand = message.demand.clone();
        demand.sort_by_key(|entry| std::cmp::Reverse(entry.oldest_age_ms));
        let mut blocked = Vec::new();
        for entry in demand {
            let delivered_again = self.blocks.iter().filter(|(id, block)| {
                block.group == entry.group
                    && block.round > message.seen
                    && !reports.iter().any(|r| r.id == **id)
            });
            let undelivered: u64 = delivered_again.map(|(_, block)| block.permits - block.released).sum();
            let wanted = entry.count.saturating_sub(undelivered);
            let permits = wanted.min(self.limit.saturating_sub(self.usage()));
            if permits > 0 {
                let (group, round) = (entry.group.clone(), self.round);
                let block = Block { round, group, permits, claimed: 0, released: 0, expired: false };
                self.blocks.insert(format!("{round}-{}", entry.group), block);
            }
            if wanted > permits {
                blocked.push(Blocked { group: entry.group, count: wanted - permits, reason: Reason::Limit });
            }
        }
        blocked
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
    Tick(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let pick = 0..8_usize;
    prop_oneof![
        4 => any::<bool>().prop_map(Step::Enqueue),
        1 => any::<bool>().prop_map(Step::Draw),
        1 => pick.clone().prop_map(Step::Cancel),
        2 => pick.clone().prop_map(Step::Release),
        1 => pick.clone().prop_map(Step::PutBack),
        6 => (pick.clone(), any::<bool>()).prop_map(|(at, again)| Step::Arrive(at, again)),
        6 => (pick.clone(), any::<bool>()).prop_map(|(at, again)| Step::Reply(at, again)),
        1 => pick.clone().prop_map(Step::GiveUp),
        1 => pick.clone().prop_map(Step::Lose),
        1 => pick.prop_map(Step::Reclaim),
        2 => (0..2_000_u64).prop_map(Step::Tick),
    ]
}

struct World {
    now: u64,
    ledger: Ledger,
    holder: Holder,
    waiting: Vec<Waiter>,
    running: Vec<BlockId>,
    messages: Vec<Call>,
    replies: Vec<(u64, Reply)>,
}

impl World {
    fn new(limit: u64) -> Self {
        Self {
            now: 0,
            ledger: ledger(),
            holder: Holder::new(limit),
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
            Step::Draw(nightly) => self.running.extend(self.ledger.try_draw(group(nightly))),
            Step::Cancel(at) => {
                if let Some(waiter) = pick(&mut self.waiting, at, false) {
                    self.ledger.cancel(&waiter);
                }
            }
            Step::Release(at) => {
                if let Some(block) = pick(&mut self.running, at, false) {
                    self.ledger.release(&block);
                }
            }
            Step::PutBack(at) => {
                if let Some(block) = pick(&mut self.running, at, false) {
                    self.ledger.put_back(&block);
                }
            }
            Step::Arrive(at, again) => {
                if let Some(call) = pick(&mut self.messages, at, again) {
                    self.replies.push((call.number, self.holder.answer(&call)));
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
            Step::Tick(ms) => self.now += ms,
        }
        self.settle();
    }

    /// Takes what comes out of the ledger, then holds both sides against each other.
    fn settle(&mut self) {
        for served in self.ledger.served() {
            let first = self.waiting.iter().position(|waiter| waiter.group == served.waiter.group);
            let first = self.waiting.remove(first.expect("someone waited"));
            assert_eq!(first, served.waiter, "first in, first out");
            self.running.push(served.block);
        }
        while let Some(call) = self.ledger.next_call(self.now) {
            self.messages.push(call);
        }
        let mut running = BTreeMap::<&str, u64>::new();
        self.running.iter().for_each(|block| *running.entry(block.as_str()).or_default() += 1);
        for (block, items) in running {
            let counted = self.holder.counted(block);
            assert!(items <= counted, "{items} items run on {block}, {counted} counted");
        }
        assert!(self.holder.usage() <= self.holder.limit);
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
        limit in 1..6_u64,
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let mut world = World::new(limit);
        steps.iter().for_each(|step| world.step(step));

        world.run_fairly(|world| world.waiting.is_empty());

        world.ledger.cancel_all();
        world.run_fairly(|world| world.running.is_empty() && world.ledger.is_settled());
        prop_assert_eq!(world.holder.blocks.values().map(|block| block.claimed).sum::<u64>(), 0);
    }

    #[test]
    fn the_same_events_give_the_same_calls(steps in prop::collection::vec(step(), 0..100)) {
        let run = || {
            let mut world = World::new(3);
            steps.iter().for_each(|step| world.step(step));
            (world.messages, world.ledger.wake_at())
        };
        prop_assert_eq!(run(), run());
    }
}
