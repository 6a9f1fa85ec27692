//! The ledger against a small holder written from the protocol's rules, over a network that loses, repeats and
//! reorders; its process dies and another one goes on, under a generation that may be too low at first.

mod holder;

use std::collections::BTreeMap;

use proptest::prelude::*;
use queue_wire::Status;

use super::fund::{Returned, Ticket};
use super::{BlockId, Call, Identity, Ledger, PATIENCE_MAX_MS, Waiter};
use crate::generation::Generation;
pub(super) use holder::{Holder, lease_verdict, verdict};
use holder::{Refusal, Told};

pub(super) fn ledger() -> Ledger {
    ledger_of("p")
}

fn ledger_of(process: &str) -> Ledger {
    Ledger::new(Identity { client_id: "worker".to_owned(), process: process.to_owned() }, 0)
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
    /// The holder is of a later version, and says of open blocks what this one does not know.
    Newer(usize),
    /// The client gives a call up, which may still arrive.
    GiveUp(usize),
    Lose(usize),
    Reclaim(usize),
    Retire(usize),
    /// Others begin or cease to lack permits.
    Contend(bool),
    /// A round looks at a parked request again, which may be for the last time.
    Round(usize, bool),
    Detach(usize),
    Attach(usize),
    /// The process dies. Of what is detached each ends whose bit is set, unless nothing of it is to go on. The clock that
    /// the next one takes its generation from may be behind.
    Crash {
        ended: u8,
        resume: bool,
        behind: bool,
    },
    /// An operator declares the client dead.
    Settle,
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
        1 => pick.clone().prop_map(Step::Newer),
        1 => pick.clone().prop_map(Step::GiveUp),
        1 => pick.clone().prop_map(Step::Lose),
        1 => pick.clone().prop_map(Step::Reclaim),
        1 => pick.clone().prop_map(Step::Retire),
        2 => (pick.clone(), any::<bool>()).prop_map(|(at, over)| Step::Round(at, over)),
        1 => pick.clone().prop_map(Step::Detach),
        1 => pick.prop_map(Step::Attach),
        1 => (any::<u8>(), prop::bool::weighted(0.8), any::<bool>())
            .prop_map(|(ended, resume, behind)| Step::Crash { ended, resume, behind }),
        1 => any::<bool>().prop_map(Step::Contend),
        2 => (0..2_000_u64).prop_map(Step::Tick),
        1 => prop::bool::weighted(0.3).prop_map(|settle| if settle { Step::Settle } else { Step::Tick(1) }),
    ]
}

#[derive(Debug, Clone)]
struct Item {
    block: BlockId,
    /// Drawn from this group's fund.
    fast: Option<(&'static str, Ticket)>,
    paper: Paper,
}

/// Whether an item's permit has become a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Paper {
    Never,
    Detached(String),
    Attached,
}

struct World {
    now: u64,
    ledger: Ledger,
    process: String,
    processes: u64,
    generation: Generation,
    /// Somebody has declared this process dead, so that its items are not counted.
    excused: bool,
    holder: Holder,
    waiting: Vec<Waiter>,
    running: Vec<Item>,
    /// Items of this process that ended.
    ended: u64,
    messages: Vec<Call>,
    replies: Vec<Told>,
}

impl World {
    fn new(limit: u64, lease: u64) -> Self {
        let mut world = Self {
            now: 0,
            ledger: ledger(),
            process: String::new(),
            processes: 0,
            generation: Generation::new(1),
            excused: false,
            holder: Holder::lending(limit, lease),
            waiting: Vec::new(),
            running: Vec::new(),
            ended: 0,
            messages: Vec::new(),
            replies: Vec::new(),
        };
        world.start(1, false);
        world
    }

    /// A process starts, and declares what is detached and runs still.
    fn start(&mut self, generation: u64, resume: bool) {
        self.processes += 1;
        self.process = format!("p{}", self.processes);
        self.ledger = ledger_of(&self.process);
        self.generation = Generation::new(generation);
        self.ledger.speak_as(generation);
        self.excused = false;
        self.ended = 0;
        if resume {
            self.ledger.resume();
            self.ledger.reconcile();
        }
        for item in &self.running {
            let Paper::Detached(name) = &item.paper else { panic!("only what is detached goes on") };
            self.ledger.declare(name, item.block.as_str());
        }
    }

    fn crash(&mut self, ended: u8, resume: bool, generation: u64) {
        self.waiting.clear();
        let goes_on = resume && !self.excused;
        self.running.retain(|item| matches!(item.paper, Paper::Detached(_)) && goes_on);
        let mut at = 0;
        self.running.retain(|_| {
            at += 1;
            ended >> ((at - 1) % 8) & 1 == 0
        });
        self.running.iter_mut().for_each(|item| item.fast = None);
        self.start(generation, resume);
    }

    fn step(&mut self, step: &Step) {
        let group = |nightly: bool| if nightly { "nightly" } else { "" };
        match *step {
            Step::Enqueue(nightly) => self.waiting.push(self.ledger.enqueue(group(nightly), self.now)),
            Step::Draw(nightly) => {
                let drawn = self.ledger.try_draw(group(nightly));
                self.running.extend(drawn.map(|block| Item { block, fast: None, paper: Paper::Never }));
            }
            Step::DrawFast(nightly) => self.draw_fast(group(nightly)),
            Step::Cancel(at) => {
                if let Some(waiter) = pick(&mut self.waiting, at, false) {
                    self.ledger.cancel(&waiter);
                }
            }
            Step::Release(at) => {
                if let Some(item) = self.take_item(at, |paper| !matches!(paper, Paper::Detached(_))) {
                    self.release(&item);
                }
            }
            Step::PutBack(at) => {
                if let Some(item) = self.take_item(at, |paper| *paper == Paper::Never) {
                    let of_lease = self.ledger.leases.contains_key(&item.block);
                    self.ended += u64::from(of_lease || self.ledger.lost.contains_key(&item.block));
                    self.ledger.put_back(&item.block);
                }
            }
            Step::Arrive(at, again) => {
                if let Some(call) = pick(&mut self.messages, at, again) {
                    // One whose clock was ahead takes over from its successor, if it is heard only now.
                    let from_the_dead = call.message.process.as_ref() != Some(&self.process);
                    self.excused |= from_the_dead && call.message.generation >= self.generation.current();
                    self.replies.extend(self.holder.hear(call, self.now));
                }
            }
            Step::Reply(at, again) => {
                if let Some(told) = pick(&mut self.replies, at, again) {
                    self.hear(&told);
                }
            }
            Step::Newer(at) => self.speak_of_the_future(at),
            Step::GiveUp(at) => {
                let call = pick(&mut self.messages, at, true);
                self.give_up(call);
            }
            Step::Lose(at) => {
                let call = pick(&mut self.messages, at, false);
                self.give_up(call);
            }
            Step::Reclaim(at) => self.holder.reclaim(at),
            Step::Retire(at) => self.holder.retire(at),
            Step::Contend(contended) => self.holder.contended = contended,
            Step::Round(at, over) => self.replies.extend(self.holder.look_again(at, over, self.now)),
            Step::Detach(at) => self.detach(at),
            Step::Attach(at) => self.attach(at),
            Step::Crash { ended, resume, behind } => {
                let last = self.holder.generation().max(self.generation.current());
                self.crash(ended, resume, if behind { last.saturating_sub(1).max(1) } else { last + 1 });
            }
            Step::Settle => {
                self.holder.settle();
                self.excused = true;
            }
            Step::Tick(ms) => self.now += ms,
        }
        self.settle();
    }

    fn speak_of_the_future(&mut self, at: usize) {
        let Some(at) = at.checked_rem(self.replies.len()) else { return };
        let Ok(reply) = &mut self.replies[at].answer else { return };
        let grants = reply.grants.iter_mut().map(|verdict| &mut verdict.status);
        let leases = reply.leases.iter_mut().map(|verdict| &mut verdict.status);
        let open = [Status::Active, Status::Expired, Status::Retired];
        grants
            .chain(leases)
            .filter(|status| open.contains(status))
            .for_each(|status| *status = Status::Other);
    }

    fn draw_fast(&mut self, group: &'static str) {
        if let Some(ticket) = self.ledger.fund(group).draw() {
            assert!(self.waiting.iter().all(|waiter| waiter.group != group), "waiters come first");
            let block = self.ledger.block_of(ticket).unwrap();
            self.running.push(Item { block, fast: Some((group, ticket)), paper: Paper::Never });
        }
    }

    fn hear(&mut self, told: &Told) {
        if told.process != self.process {
            return;
        }
        match &told.answer {
            Ok(reply) if self.generation.admit(told.generation) => {
                let lost = self.ledger.replied(told.number, reply, self.now + 250);
                assert!(lost == 0 || self.excused, "{lost} are lost");
            }
            Ok(_) => {}
            Err(Refusal::Superseded) => self.ledger.failed(told.number, self.now + 100),
            Err(Refusal::Fenced(lowest)) => {
                if self.generation.shut_out(told.generation, Some(*lowest)) {
                    self.ledger.failed(told.number, self.now);
                    self.ledger.speak_as(self.generation.current());
                } else {
                    assert!(self.excused, "shut out though nobody took over");
                    self.ledger.fence();
                    assert_eq!(self.ledger.next_call(u64::MAX), None);
                    self.running.clear();
                    self.crash(0, false, *lowest);
                }
            }
        }
    }

    fn give_up(&mut self, call: Option<Call>) {
        let process = Some(&self.process);
        if let Some(call) = call.filter(|call| call.message.process.as_ref() == process) {
            self.ledger.failed(call.number, self.now + 100);
        }
    }

    fn take_item(&mut self, at: usize, of: impl Fn(&Paper) -> bool) -> Option<Item> {
        let places = self.running.iter().enumerate().filter(|(_, item)| of(&item.paper));
        let places: Vec<usize> = places.map(|(place, _)| place).collect();
        Some(self.running.remove(places[at.checked_rem(places.len())?]))
    }

    fn detach(&mut self, at: usize) {
        if let Some(item) = self.take_item(at, |paper| !matches!(paper, Paper::Detached(_))) {
            let name = format!("d{}-{}", self.now, self.running.len() + self.messages.len());
            if self.running.iter().any(|other| other.paper == Paper::Detached(name.clone())) {
                return self.running.push(item);
            }
            self.ledger.detach(&name, &item.block);
            self.running.push(Item { fast: None, paper: Paper::Detached(name), ..item });
        }
    }

    fn attach(&mut self, at: usize) {
        if let Some(item) = self.take_item(at, |paper| matches!(paper, Paper::Detached(_))) {
            let Paper::Detached(name) = &item.paper else { unreachable!() };
            assert_eq!(self.ledger.attach(name).as_ref(), Some(&item.block));
            assert_eq!(self.ledger.attach(name), None);
            self.running.push(Item { paper: Paper::Attached, ..item });
        }
    }

    fn release(&mut self, item: &Item) {
        self.ended += 1;
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
            self.running.push(Item { block: served.block, fast: None, paper: Paper::Never });
        }
        while let Some(call) = self.ledger.next_call(self.now) {
            self.messages.push(call);
        }
        let again = self.ledger.sync.in_flight.map(|(_, sent_at)| sent_at + PATIENCE_MAX_MS);
        assert!(again.is_none_or(|at| self.ledger.wake_at() <= Some(at)), "a call that hangs is waited for");
        let mut running = BTreeMap::<&str, u64>::new();
        self.running.iter().for_each(|item| *running.entry(item.block.as_str()).or_default() += 1);
        for (block, items) in running.into_iter().filter(|_| !self.excused) {
            let counted = self.holder.counted(block);
            assert!(items <= counted, "{items} items run on {block}, {counted} counted");
            assert!(self.ledger.is_counted(&BlockId(block.into())), "{block}");
        }
        assert!(self.holder.usage() <= self.holder.limit);
        self.ledger.check();
        assert_eq!(self.ledger.running(), self.running.len() as u64);
    }

    /// From now on nothing is lost and items end at once.
    fn run_fairly(&mut self, done: impl Fn(&Self) -> bool) {
        let replies = std::mem::take(&mut self.replies).into_iter().map(|told| (told.process, told.number));
        let messages = std::mem::take(&mut self.messages).into_iter();
        let messages =
            messages.map(|call| (call.message.process.unwrap_or_default(), call.number)).chain(replies);
        for (process, number) in messages {
            if process == self.process {
                self.ledger.failed(number, self.now);
            }
        }
        for _ in 0..1000 {
            if done(self) {
                return;
            }
            self.now += 2_000;
            let running = self.running.len();
            let steps = (0..running).flat_map(|_| [Step::Attach(0), Step::Release(0)]);
            let steps = steps.chain((0..8).flat_map(|_| [Step::Arrive(0, false), Step::Reply(0, false)]));
            let steps = steps.chain([Step::Round(0, true), Step::Reply(0, false)]);
            steps.for_each(|step| self.step(&step));
        }
        panic!("it does not end: {:?} {:?}", self.ledger, self.holder);
    }

    /// Drains, as often as another process takes over meanwhile: one that was shut out starts again, and says nothing
    /// of what its predecessors left until it has something to say.
    fn wind_down(&mut self) {
        loop {
            let process = self.process.clone();
            self.ledger.reconcile();
            self.ledger.drain();
            assert!(self.ledger.try_draw("").is_none() && self.ledger.fund("nightly").draw().is_none());
            self.run_fairly(|world| world.running.is_empty() && world.ledger.is_settled());
            if self.process == process {
                return;
            }
        }
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
        world.wind_down();
        prop_assert_eq!((world.holder.in_use(), world.ledger.unconfirmed()), (0, 0));
        prop_assert_eq!((world.ledger.tally().released, world.ledger.idle()), (world.ended, 0));
    }

    #[test]
    fn whatever_a_process_leaves_its_successor_gives_back(
        limit in 1..8_u64,
        lease in prop_oneof![Just(0), 1..6_u64],
        steps in prop::collection::vec(step(), 0..200),
        ended in any::<u8>(),
    ) {
        let mut world = World::new(limit, lease);
        steps.iter().for_each(|step| world.step(step));
        world.step(&Step::Crash { ended, resume: true, behind: false });
        world.wind_down();
        prop_assert_eq!((world.holder.in_use(), world.ledger.unconfirmed()), (0, 0));
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
