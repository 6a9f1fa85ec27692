//! A state of the small world, and what must be true in it.

use super::Bounds;
use crate::audit::{Verdict, violated};
use crate::store::{Limits, MemoryStore, Rows};
use crate::world::network::{CallName, Packet, Refusal};
use crate::world::process::{Clock, Process};
use crate::world::translate;
use pgsemaphore_allocation::{DbTime, Policy, SemaphoreKey, Work, check, round, sync, timer};
use queue_client::wire::Message;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

/// Longer than the claim deadline.
const LONG: i64 = 20_000_000;
const START: i64 = 1_764_428_000_000_000;

/// Something that is shared between states, with its fingerprint.
#[derive(Debug, Clone)]
pub(super) struct Printed<T> {
    pub(super) is: Rc<T>,
    pub(super) print: u128,
}

impl<T: Hash> Printed<T> {
    fn new(is: T) -> Self {
        let print = print(&is);
        Self { is: Rc::new(is), print }
    }
}

impl<T: Debug> Printed<T> {
    /// What travels is printed by its text.
    pub(super) fn told(is: T) -> Self {
        let print = print(&format!("{is:?}"));
        Self { is: Rc::new(is), print }
    }
}

/// A call and what it says.
pub(super) type Request = (CallName, Rc<Message>);

/// What a process may still do.
#[derive(Debug, Clone, Hash)]
pub(super) struct Actor {
    pub(super) process: Process,
    pub(super) items_left: u32,
    pub(super) cancels_left: u32,
    pub(super) requests_left: u32,
    pub(super) syncs_left: u32,
}

#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) bounds: Bounds,
    key: SemaphoreKey,
    pub(super) actors: Vec<Printed<Actor>>,
    store: Printed<MemoryStore>,
    clock: i64,
    /// Requests that wait for a round.
    pub(super) waiting: Vec<Printed<Request>>,
    /// In the order of fingerprints: which of them was sent first makes no difference.
    pub(super) network: Vec<Printed<Packet>>,
    pub(super) rounds_left: u32,
    pub(super) deadlines_left: u32,
    pub(super) repeats_left: u32,
    pub(super) crashes_left: u32,
}

impl State {
    pub(super) fn new(bounds: Bounds) -> Self {
        let key = SemaphoreKey::new("key");
        let mut store = MemoryStore::new();
        let policy = Policy { limit: Some(bounds.limit), grant_timeout: LONG / 2, round_period: 0 };
        store.set_limits(&key, Some(Limits { policy, groups: BTreeMap::new() }));
        let actor = |serial| Actor {
            process: Process::new(serial, Clock { now: 0, rate: 1000 }),
            items_left: bounds.items,
            cancels_left: bounds.cancels,
            requests_left: bounds.requests,
            syncs_left: bounds.syncs,
        };
        let first = store.begin(&key, Work::Timer, &[], DbTime(START));
        store.commit(&first, &timer(&first.state)).expect("nothing else runs");
        Self {
            bounds,
            key,
            actors: (0..bounds.processes).map(|serial| Printed::new(actor(serial))).collect(),
            store: Printed::new(store),
            clock: START,
            waiting: Vec::new(),
            network: Vec::new(),
            rounds_left: bounds.rounds,
            deadlines_left: bounds.deadlines,
            repeats_left: bounds.repeats,
            crashes_left: bounds.crashes,
        }
    }

    pub(super) fn fingerprint(&self) -> u128 {
        let mut twice = Twice::default();
        self.actors.iter().for_each(|actor| actor.print.hash(&mut twice));
        self.store.print.hash(&mut twice);
        self.network.iter().for_each(|packet| packet.print.hash(&mut twice));
        self.waiting.iter().for_each(|request| request.print.hash(&mut twice));
        let left = (self.rounds_left, self.deadlines_left, self.repeats_left, self.crashes_left);
        (self.clock, self.network.len(), left).hash(&mut twice);
        twice.print()
    }

    pub(super) fn rows(&self) -> &Rows {
        self.store.is.rows(&self.key).expect("the first state has made the key's row")
    }

    /// Changes a process, and takes the permits that it hands out.
    pub(super) fn act<T>(&mut self, at: usize, act: impl FnOnce(&mut Actor) -> T) -> T {
        let mut actor = (*self.actors[at].is).clone();
        let result = act(&mut actor);
        actor.process.served();
        actor.process.items.sort_by(|one, other| one.block.cmp(&other.block));
        self.actors[at] = Printed::new(actor);
        result
    }

    pub(super) fn send(&mut self, packet: Packet) {
        self.network.push(Printed::told(packet));
        self.network.sort_by_key(|packet| packet.print);
    }

    pub(super) fn has_place_for(&self, packets: usize) -> bool {
        self.network.len() + packets <= self.bounds.under_way
    }

    /// One transaction from its first read to its answers.
    pub(super) fn transact(&mut self, work: Work, batch: &[Request]) -> Verdict {
        let calls: Vec<_> = batch.iter().map(|(_, message)| translate::call(message, 0)).collect();
        let mut store = (*self.store.is).clone();
        let before = self.store.clone();
        let transaction = store.begin(&self.key, work, &calls, DbTime(self.clock));
        let plan = match work {
            Work::Round => round(&transaction.state, &calls),
            Work::Sync => sync(&transaction.state, &calls),
            Work::Timer => timer(&transaction.state),
        };
        if let Err(objection) = check(work, &transaction.state, &calls, &plan) {
            return violated(objection.promise, objection.detail);
        }
        if store.commit(&transaction, &plan).is_err() {
            return violated("P7", "a conflict where nothing else runs");
        }
        if let Some(difference) = store.verify(&self.key).first() {
            return violated("P3", difference.to_string());
        }
        self.store = Printed::new(store);
        for ((name, _), outcome) in batch.iter().zip(plan.answers) {
            let answer = translate::answer(outcome, plan.now, 0);
            self.send(Packet::Answer { name: name.clone(), answer: answer.map(Rc::new) });
        }
        self.nothing_comes_back_twice(&before.is)
    }

    fn nothing_comes_back_twice(&self, before: &MemoryStore) -> Verdict {
        let after = self.rows();
        for old in before.rows(&self.key).into_iter().flat_map(|rows| rows.blocks.values()) {
            let new = after.blocks.get(&old.id.slot).filter(|new| new.id == old.id);
            let counted = new.map_or(0, |new| new.permits - new.released);
            let back = new.is_some_and(|new| new.used < old.used || new.released < old.released);
            if back || counted > old.permits - old.released {
                return violated("P3", format!("{old:?} went back to {new:?}"));
            }
        }
        Ok(())
    }

    /// P1 and P2.
    pub(super) fn judge(&self) -> Verdict {
        let rows = self.rows();
        let usage: i64 = rows.blocks.values().map(|block| block.permits - block.released).sum();
        if usage > self.bounds.limit {
            return violated("P1", format!("usage {usage}"));
        }
        let mut held = BTreeMap::<&str, i64>::new();
        for item in self.actors.iter().flat_map(|actor| &actor.is.process.items) {
            *held.entry(item.block.as_str()).or_default() += 1;
        }
        for (id, held) in held {
            let row = rows.blocks.values().find(|block| block.id.to_string() == id);
            let counted = row.map_or(0, |row| row.used - row.released);
            if held > counted {
                return violated("P2", format!("{held} permits of {id} are held, its row is {row:?}"));
            }
        }
        Ok(())
    }

    /// P4: without any bound, but with no more faults, everything comes back.
    pub(super) fn all_comes_back(&self) -> Verdict {
        let mut state = self.clone();
        state.network.clear();
        for at in 0..state.actors.len() {
            state.act(at, |actor| {
                let process = &mut actor.process;
                process.under_way().into_iter().for_each(|number| process.give_up(number, 0));
                process.waiting.drain(..).for_each(|waiter| process.ledger.cancel(&waiter));
                process.items.drain(..).for_each(|item| process.ledger.release(&item.block));
            });
        }
        state.clock += LONG;
        state.transact(Work::Timer, &[])?;
        for _ in 0..10 {
            for at in 0..state.actors.len() {
                state.exchange(at)?;
            }
        }
        let settled = state.actors.iter().all(|actor| actor.is.process.ledger.is_settled());
        let crashed = self.crashes_left < self.bounds.crashes;
        let left = state.rows().semaphore.grants;
        if settled && (left == 0 || crashed) {
            return Ok(());
        }
        violated("P4", format!("{left} permits are left: {:?}", state.actors))
    }

    /// A process says what it has to say, and is answered at once.
    fn exchange(&mut self, at: usize) -> Verdict {
        let Some(call) = self.act(at, speak) else { return Ok(()) };
        let name = CallName { from: self.actors[at].is.process.serial, number: call.number };
        let work = match call.endpoint {
            queue_client::Endpoint::Request => Work::Round,
            queue_client::Endpoint::Sync => Work::Sync,
        };
        self.transact(work, &[(name, Rc::new(call.message))])?;
        while let Some(packet) = self.network.pop() {
            if let Packet::Answer { name, answer } = &*packet.is {
                let answer = answer.as_ref().map(Rc::as_ref).map_err(|refusal: &Refusal| *refusal);
                self.act(at, |actor| actor.process.hear(name.number, answer, 0));
            }
        }
        Ok(())
    }

    pub(super) fn passes(&mut self) -> Verdict {
        self.clock += LONG;
        self.transact(Work::Timer, &[])
    }
}

/// The next call of a process; the moment that it waits for has come.
pub(super) fn speak(actor: &mut Actor) -> Option<queue_client::ledger::Call> {
    let process = &mut actor.process;
    let wake_at = i64::try_from(process.ledger.wake_at()?).unwrap_or(i64::MAX);
    process.clock.now = wake_at.saturating_mul(1000);
    let call = process.speak().map(|(call, _)| call);
    process.clock.now = 0;
    call
}

fn print(of: &impl Hash) -> u128 {
    let mut twice = Twice::default();
    of.hash(&mut twice);
    twice.print()
}

/// Two hashes of 64 bits of the same, at once.
struct Twice(DefaultHasher, DefaultHasher);

impl Default for Twice {
    fn default() -> Self {
        let mut other = DefaultHasher::new();
        other.write_u8(1);
        Self(DefaultHasher::new(), other)
    }
}

impl Twice {
    fn print(&self) -> u128 {
        u128::from(self.0.finish()) << 64 | u128::from(self.1.finish())
    }
}

impl Hasher for Twice {
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
        self.1.write(bytes);
    }

    fn finish(&self) -> u64 {
        self.0.finish()
    }
}
