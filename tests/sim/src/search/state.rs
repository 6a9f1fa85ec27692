//! A state of the small world, and what must be true in it.

use super::actor::{Actor, Actors, Deed, Deeds};
use super::store::{Request, Stored, Transactions};
use super::{Bounds, Printed, print};
use crate::audit::{Verdict, footprint, usable, violated};
use crate::plant::Plant;
use crate::store::Limits;
use crate::world::network::{CallName, Packet};
use pgsemaphore_allocation::{ClientId, DbTime, Provisioning, Work};
use queue_client::Endpoint;
use queue_client::wire::Reply;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Longer than the claim deadline and the ttl of a lease.
const LONG: i64 = 20_000_000;
/// After so long a silent client is dead: longer than all claim deadlines of a world.
const SETTLE_AFTER: i64 = 100 * LONG;
const START: i64 = 1_764_428_000_000_000;

/// What states have in common: everything that was ever done.
pub(super) struct World {
    pub(super) bounds: Bounds,
    pub(super) actors: Actors,
    pub(super) transactions: Transactions,
}

impl World {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, actors: Actors::new(bounds), transactions: Transactions::new() }
    }

    pub(super) fn start(&self) -> State {
        let mut limits = Limits::of_grants(self.bounds.limit, LONG / 2);
        if self.bounds.lease > 0 {
            limits.policy.provisioning = Provisioning::Strict;
            (limits.policy.permits_per_lease, limits.policy.lease_ttl) = (self.bounds.lease, LONG / 2);
        }
        if self.bounds.silences > 0 {
            limits.policy.settle_after = Some(SETTLE_AFTER);
        }
        State {
            actors: (0..self.bounds.processes).map(|serial| self.actors.start(serial)).collect(),
            store: self.transactions.start(limits, START),
            clock: START,
            waiting: Vec::new(),
            parked: Vec::new(),
            dead: BTreeSet::new(),
            silences_left: self.bounds.silences,
            network: Vec::new(),
            rounds_left: self.bounds.rounds,
            deadlines_left: self.bounds.deadlines,
            repeats_left: self.bounds.repeats,
            crashes_left: self.bounds.crashes,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) actors: Vec<Rc<Actor>>,
    pub(super) store: Rc<Stored>,
    pub(super) clock: i64,
    /// Requests that wait for a round.
    pub(super) waiting: Vec<Printed<Request>>,
    /// Requests that a round brought nothing, and that stay open.
    pub(super) parked: Vec<Printed<Request>>,
    /// Processes that were declared dead.
    pub(super) dead: BTreeSet<u32>,
    pub(super) silences_left: u32,
    /// In the order of fingerprints: which of them was sent first makes no difference.
    pub(super) network: Vec<Printed<Packet>>,
    pub(super) rounds_left: u32,
    pub(super) deadlines_left: u32,
    pub(super) repeats_left: u32,
    pub(super) crashes_left: u32,
}

impl State {
    pub(super) fn fingerprint(&self) -> u128 {
        let actors: Vec<_> = self.actors.iter().map(|actor| actor.print).collect();
        let network: Vec<_> = self.network.iter().map(|packet| packet.print).collect();
        let waiting: Vec<_> = self.waiting.iter().map(|request| request.print).collect();
        let parked: Vec<_> = self.parked.iter().map(|request| request.print).collect();
        let left =
            (self.rounds_left, self.deadlines_left, self.repeats_left, self.crashes_left, self.silences_left);
        print(&(actors, self.store.print, self.clock, network, waiting, parked, &self.dead, left))
    }

    pub(super) fn send(&mut self, packet: Printed<Packet>) {
        let at = self.network.partition_point(|other| other.print < packet.print);
        self.network.insert(at, packet);
    }

    pub(super) fn transact(&mut self, world: &mut World, work: Work, batch: &[Printed<Request>]) -> Verdict {
        let (store, answers, verdict) = world.transactions.run(&self.store, self.clock, work, batch);
        self.store = store;
        answers.into_iter().for_each(|answer| self.send(answer));
        verdict
    }

    /// A round. Where clients may be silent, requests that it brings nothing stay open.
    pub(super) fn allocate(&mut self, world: &mut World, batch: Vec<Printed<Request>>) -> Verdict {
        let (store, answers, verdict) = world.transactions.run(&self.store, self.clock, Work::Round, &batch);
        self.store = store;
        for (request, answer) in batch.into_iter().zip(answers) {
            let nothing = |reply: &Reply| reply.grants.is_empty() && reply.leases.is_empty();
            let parks = matches!(&*answer.is, Packet::Answer { answer: Ok(reply), .. } if nothing(reply));
            if world.bounds.silences > 0 && parks && request.is.1.wait_ms > 0 {
                self.parked.push(request);
            } else {
                self.send(answer);
            }
        }
        verdict
    }

    /// Who has no call open is declared dead, and nobody else.
    pub(super) fn clients_are_silent(&mut self, elsewhere: bool, world: &mut World) -> Verdict {
        let heard: BTreeSet<_> =
            self.parked.iter().map(|request| ClientId::new(request.is.1.client_id.as_str())).collect();
        self.clock += 2 * SETTLE_AFTER;
        let hears = world.bounds.plant != Some(Plant::ParkedUnheard);
        let open = if hears { heard.clone() } else { BTreeSet::new() };
        let (store, verdict) = world.transactions.look_for_silent(&self.store, self.clock, &open, elsewhere);
        let fenced = |id: &ClientId| {
            let client = world.transactions.rows(&store).clients.get(id);
            client.is_some_and(|client| client.fenced_at == Some(DbTime(self.clock)))
        };
        if let Some(client) = heard.iter().find(|id| fenced(id)) {
            return violated("P2", format!("{client} is declared dead, and has a call open"));
        }
        let dead = self.actors.iter().filter(|actor| fenced(&ClientId::new(actor.client.as_str())));
        self.dead.extend(dead.map(|actor| actor.serial));
        self.store = store;
        verdict
    }

    pub(super) fn deadlines_pass(&mut self, world: &mut World) -> Verdict {
        self.clock += LONG;
        self.transact(world, Work::Timer, &[])
    }

    /// P1 and P2.
    pub(super) fn judge(&self, world: &World) -> Verdict {
        let rows = world.transactions.rows(&self.store);
        let usage: i64 = rows.blocks.values().map(footprint).sum();
        if usage > world.bounds.limit {
            return violated("P1", format!("usage {usage}"));
        }
        let living = self.actors.iter().filter(|actor| !self.dead.contains(&actor.serial));
        for (id, held) in living.flat_map(|actor| &actor.held) {
            let row = rows.blocks.values().find(|block| block.id.to_string() == *id);
            let counted = row.map_or(0, usable);
            if *held > counted {
                return violated("P2", format!("{held} permits of {id} are held, its row is {row:?}"));
            }
        }
        Ok(())
    }

    /// P4: without any bound, but with no more faults, everything comes back.
    pub(super) fn all_comes_back(&self, world: &mut World) -> Verdict {
        let mut state = self.clone();
        state.network.clear();
        state.deadlines_pass(world)?;
        let mut settled = true;
        for actor in &self.actors {
            let mut deeds = world.actors.again(actor);
            let process = &mut deeds.process;
            process.under_way().into_iter().for_each(|number| process.give_up(number, 0));
            if world.bounds.lease > 0 {
                // It hears of a lease that was made for a request which arrived twice when it speaks again.
                deeds.does(&Deed::Queue);
                state.talk(&mut deeds, world)?;
            }
            deeds.process.drain();
            let process = &mut deeds.process;
            process.items.drain(..).for_each(|item| process.ledger.release(&item.block));
            state.talk(&mut deeds, world)?;
            settled &= deeds.process.ledger.is_settled() || state.dead.contains(&actor.serial);
        }
        let crashed = self.crashes_left < world.bounds.crashes;
        let semaphore = &world.transactions.rows(&state.store).semaphore;
        let left = semaphore.grants + semaphore.leases;
        if settled && (left == 0 || crashed) {
            return Ok(());
        }
        violated("P4", format!("{left} permits are left: {:?}", state.actors))
    }

    /// A process says what it has to say, and is answered each time.
    fn talk(&mut self, deeds: &mut Deeds, world: &mut World) -> Verdict {
        for _ in 0..10 {
            let Some(call) = deeds.does(&Deed::Speak) else { break };
            let name = CallName { from: deeds.process.serial, number: call.number };
            let work = match call.endpoint {
                Endpoint::Request => Work::Round,
                Endpoint::Sync => Work::Sync,
            };
            let request = Printed::new((name, Rc::new(call.message)));
            self.transact(world, work, &[request])?;
            while let Some(packet) = self.network.pop() {
                if let Packet::Answer { name, answer } = &*packet.is {
                    deeds.does(&Deed::Hear(name.number, answer.clone()));
                }
            }
        }
        Ok(())
    }
}
