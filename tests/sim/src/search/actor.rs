//! A process in a state: what it did so far, and what of it matters to others.
//!
//! A ledger is never copied. A process is done again from its deeds where a new state of it is needed, and each deed in
//! each state of a process is done once: there are few of those, however many states the world has.

use super::{Bounds, Printed};
use crate::plant::Plant;
use crate::world::network::{CallName, Packet, Refusal};
use crate::world::process::{Clock, Process};
use crate::world::transactions::{misheard, misspeak};
use queue_client::Endpoint;
use queue_client::ledger::Call;
use queue_client::wire::Reply;
use std::collections::HashMap;
use std::rc::Rc;

/// Something that a process does, or that happens to it.
#[derive(Debug, Clone)]
pub(super) enum Deed {
    /// An item waits.
    Queue,
    /// The item that waited longest waits no longer.
    Cancel,
    /// It says what it has to say.
    Speak,
    /// It waits no longer for the answer to its oldest call.
    GiveUp,
    /// An item ends, on this one of the blocks that it has permits of.
    End(usize),
    /// It crashes, and another one takes its place.
    Crash,
    /// It is answered.
    Hear(u64, Result<Rc<Reply>, Refusal>),
}

/// A process, known by its deeds.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) print: u128,
    deeds: Vec<Deed>,
    pub(super) serial: u32,
    /// Its `client_id`.
    pub(super) client: String,
    /// Blocks that it has permits of, and how many.
    pub(super) held: Vec<(String, i64)>,
    pub(super) items_left: u32,
    pub(super) cancels_left: u32,
    pub(super) requests_left: u32,
    pub(super) syncs_left: u32,
    pub(super) waits: bool,
    pub(super) has_calls: bool,
    pub(super) has_more_to_say: bool,
}

/// What became of a deed, and what was said: nothing, if it went beyond what the process may do.
type Done = Option<(Rc<Actor>, Option<Printed<Packet>>)>;

/// Everything that was ever done.
pub(super) struct Actors {
    bounds: Bounds,
    done: HashMap<(u128, u128), Done>,
}

impl Actors {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, done: HashMap::new() }
    }

    pub(super) fn start(&self, serial: u32) -> Rc<Actor> {
        Rc::new(self.actor(&Deeds::new(serial, self.bounds.plant), serial, Vec::new()))
    }

    /// `deed_print` tells deeds apart.
    pub(super) fn does(&mut self, actor: &Rc<Actor>, deed: &Deed, deed_print: u128) -> Done {
        let key = (actor.print, deed_print);
        if let Some(done) = self.done.get(&key) {
            return done.clone();
        }
        let mut again = self.again(actor);
        let said = again.does(deed).map(|Call { number, endpoint, message }| {
            let name = CallName { from: actor.serial, number };
            Printed::new(Packet::Call { name, holder: 0, endpoint, message: Rc::new(message) })
        });
        let deeds = actor.deeds.iter().chain([deed]).cloned().collect();
        let done = self.within_bounds(&again).then(|| {
            let serial = if matches!(deed, Deed::Crash) { actor.serial + 100 } else { actor.serial };
            (Rc::new(self.actor(&again, serial, deeds)), said)
        });
        super::forget_if_many(&mut self.done);
        self.done.insert(key, done.clone());
        done
    }

    /// The process itself.
    pub(super) fn again(&self, actor: &Actor) -> Deeds {
        let first = actor.serial % 100;
        let mut again = Deeds::new(first, self.bounds.plant);
        actor.deeds.iter().for_each(|deed| drop(again.does(deed)));
        again
    }

    fn within_bounds(&self, deeds: &Deeds) -> bool {
        deeds.requests <= self.bounds.requests && deeds.syncs <= self.bounds.syncs
    }

    fn actor(&self, after: &Deeds, serial: u32, deeds: Vec<Deed>) -> Actor {
        let process = &after.process;
        let mut held = Vec::<(String, i64)>::new();
        for item in &process.items {
            match held.iter_mut().find(|(block, _)| block == item.block.as_str()) {
                Some((_, count)) => *count += 1,
                None => held.push((item.block.as_str().to_owned(), 1)),
            }
        }
        let left = |most: u32, done: u32| most.saturating_sub(done);
        Actor {
            print: super::print(&format!("{after:?}")),
            deeds,
            serial,
            client: process.name.clone(),
            held,
            items_left: left(self.bounds.items, after.items),
            cancels_left: left(self.bounds.cancels, after.cancels),
            requests_left: left(self.bounds.requests, after.requests),
            syncs_left: left(self.bounds.syncs, after.syncs),
            waits: !process.waiting.is_empty(),
            has_calls: !process.under_way().is_empty(),
            has_more_to_say: process.ledger.wake_at().is_some(),
        }
    }
}

/// A process, and how much it did.
#[derive(Debug)]
pub(super) struct Deeds {
    pub(super) process: Process,
    plant: Option<Plant>,
    items: u32,
    cancels: u32,
    requests: u32,
    syncs: u32,
}

impl Deeds {
    fn new(serial: u32, plant: Option<Plant>) -> Self {
        let process = Process::new(serial, Clock { now: 0, rate: 1000 });
        Self { process, plant, items: 0, cancels: 0, requests: 0, syncs: 0 }
    }

    pub(super) fn does(&mut self, deed: &Deed) -> Option<Call> {
        let process = &mut self.process;
        let mut said = None;
        match deed {
            Deed::Queue => {
                self.items += 1;
                process.waiting.push(process.ledger.enqueue("", 0));
            }
            Deed::Cancel => {
                self.cancels += 1;
                let waiter = process.waiting.remove(0);
                process.ledger.cancel(&waiter);
            }
            Deed::Speak => said = self.speak(),
            Deed::GiveUp => {
                let oldest = process.under_way().into_iter().next();
                oldest.into_iter().for_each(|number| process.give_up(number, 0));
            }
            Deed::End(which) => {
                let mut blocks: Vec<_> = process.items.iter().map(|item| item.block.clone()).collect();
                blocks.dedup();
                let of = process.items.iter().position(|item| item.block == blocks[*which]);
                let item = of.map(|at| process.items.remove(at));
                item.iter().for_each(|item| process.ledger.release(&item.block));
            }
            Deed::Crash => *process = Process::new(process.serial + 100, process.clock.clone()),
            Deed::Hear(number, answer) => {
                let answer = answer.clone().map(|reply| misheard(reply, self.plant, &process.ledger));
                process.hear(*number, answer.as_deref().map_err(|refusal| *refusal), 0);
                if process.shut_out.is_some() {
                    process.stop();
                }
            }
        }
        self.process.served();
        self.process.items.sort_by(|one, other| one.block.cmp(&other.block));
        said
    }

    /// The next call; the moment that the process waits for has come.
    fn speak(&mut self) -> Option<Call> {
        let process = &mut self.process;
        let wake_at = i64::try_from(process.ledger.wake_at()?).unwrap_or(i64::MAX);
        process.clock.now = wake_at.saturating_mul(1000);
        let call = process.speak().map(|(call, _)| call);
        process.clock.now = 0;
        let mut call = call?;
        match call.endpoint {
            Endpoint::Request => self.requests += 1,
            Endpoint::Sync => self.syncs += 1,
        }
        misspeak(&mut call.message, self.plant);
        Some(call)
    }
}
