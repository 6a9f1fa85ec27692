//! A world of one semaphore: processes, holders, a store, a network and clocks, and one random step after another.
//!
//! Between any two steps a process, a holder or the store may crash, freeze, or wake up later with what it believed
//! then. Everything is decided by the seed. After a while the faults end and the world is drained ([`drain`]): whoever
//! waits is served, and everything comes back.
//!
//! A process that is gone starts again under its name (`successors`), or is found to be dead: by its silence, or because
//! somebody takes over in its name. One that was only frozen goes on then, until it hears that it is shut out.

mod census;
mod drain;
mod faults;
mod hanging;
pub(crate) mod holder;
pub(crate) mod network;
mod other;
mod people;
pub(crate) mod process;
mod steps;
mod successors;
pub(crate) mod transactions;
pub(crate) mod translate;

use crate::audit::{Audit, Verdict, Violation};
use crate::plant::Plant;
use crate::random::Random;
use crate::store::{Limits, MemoryStore, Rows};
use crate::trace::Trace;
pub use hanging::simulate_hanging;
use holder::Holder;
use network::{CallName, Network, Packet};
use other::Other;
use pgsemaphore_allocation::{DbTime, Group, Micros, SemaphoreKey};
use process::{Clock, Process};
use queue_client::Endpoint;
use queue_client::wire::Message;
use std::collections::BTreeMap;
use std::rc::Rc;

/// When a world starts, by the database's clock.
const START: Micros = 1_764_428_000_000_000;
/// The groups of the semaphore.
const GROUPS: [&str; 2] = ["", "nightly"];

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// Steps taken.
    pub steps: u64,
    /// The promise that was broken, if one was.
    pub violation: Option<Violation>,
    /// What happened, if it was asked for.
    pub trace: Vec<String>,
    /// How often each kind of step was taken.
    pub census: BTreeMap<&'static str, u64>,
}

/// Runs the world of a seed for so many steps, then drains it. The same seed and number of steps give the same world,
/// and the same trace.
pub fn simulate(seed: u64, steps: u64, plant: Option<Plant>, trace: bool) -> Outcome {
    let mut world = World::new(seed, plant, trace);
    let result = world.run(steps).and_then(|()| world.drain());
    if let Err(violation) = &result {
        world.trace.say(|| format!("VIOLATED {violation}"));
    }
    let World { step, census, trace, .. } = world;
    Outcome { steps: step, violation: result.err(), trace: trace.into_lines(), census }
}

/// Steps of one world before it is drained.
pub const WORLD_STEPS: u64 = 2_000;

/// A kind of world: [`simulate`] or [`simulate_hanging`].
pub type Simulate = fn(seed: u64, steps: u64, plant: Option<Plant>, trace: bool) -> Outcome;

/// Runs worlds of a kind from `first_seed` on until they took `steps` together.
///
/// # Errors
/// The seed of the first world in which a promise was broken, with the world's trace.
pub fn simulate_many(simulate: Simulate, first_seed: u64, steps: u64) -> Result<Totals, (u64, Outcome)> {
    let mut totals = Totals { next_seed: first_seed, steps: 0, census: BTreeMap::new() };
    while totals.steps < steps {
        let outcome = simulate(totals.next_seed, WORLD_STEPS, None, false);
        if outcome.violation.is_some() {
            return Err((totals.next_seed, simulate(totals.next_seed, WORLD_STEPS, None, true)));
        }
        totals.next_seed += 1;
        totals.steps += outcome.steps;
        for (name, times) in outcome.census {
            *totals.census.entry(name).or_default() += times;
        }
    }
    Ok(totals)
}

/// What many worlds did.
#[derive(Debug)]
pub struct Totals {
    /// The first seed that was not run.
    pub next_seed: u64,
    /// Steps of all worlds.
    pub steps: u64,
    /// How often each kind of step was taken.
    pub census: BTreeMap<&'static str, u64>,
}

/// A world, as its seed makes it.
struct World {
    random: Random,
    plant: Option<Plant>,
    step: u64,
    /// True time, which nobody knows.
    time: Micros,
    key: SemaphoreKey,
    store: MemoryStore,
    /// The database's clock.
    clock: Clock,
    copies: Vec<MemoryStore>,
    network: Network,
    holders: Vec<Holder>,
    processes: Vec<Process>,
    others: Vec<Other>,
    started: u32,
    /// Names of clients of which no process will start again.
    dead: Vec<String>,
    /// How long no holder has listened, by the database's clock.
    unheard: Micros,
    /// Permits that were detached.
    detached: u64,
    /// The faults have ended.
    fair: bool,
    limits: Limits,
    /// How many of a hundred faults happen.
    weather: u64,
    /// Either the store is restored from older copies, or its clock is set back. After both together a number of a
    /// round could come again, which only the client's `seen` prevents.
    restores: bool,
    audit: Audit,
    trace: Trace,
    census: BTreeMap<&'static str, u64>,
}

impl World {
    /// The world of a seed, before its first step.
    fn new(seed: u64, plant: Option<Plant>, trace: bool) -> Self {
        let mut random = Random::new(seed);
        let mut limits = Limits::of_grants(random.between(1, 6), 10_000_000);
        people::provision(&mut limits.policy, &mut random);
        limits.policy.settle_after = random.percent(40).then(|| people::patience(&mut random));
        let rate = random.between(900, 1100);
        let holders = (0..random.between(1, 3)).map(|_| Holder::default()).collect();
        let mut world = Self {
            plant,
            step: 0,
            time: 0,
            key: SemaphoreKey::new("key"),
            store: MemoryStore::new(),
            clock: Clock { now: START, rate },
            copies: Vec::new(),
            network: Network::default(),
            holders,
            processes: Vec::new(),
            others: Vec::new(),
            started: 0,
            dead: Vec::new(),
            unheard: 0,
            detached: 0,
            fair: false,
            restores: random.percent(50),
            limits,
            weather: random.weighted(&[(1, 3), (2, 15), (2, 50), (1, 100)]).unwrap_or(100),
            audit: Audit::default(),
            trace: Trace::new(trace),
            census: BTreeMap::new(),
            random,
        };
        world.store.set_limits(&world.key, Some(world.limits.clone()));
        world.store.set_serving_since(Some(DbTime(START)));
        for _ in 0..world.random.between(1, 4) {
            world.start_process();
        }
        if world.random.percent(50) {
            world.started += 1;
            let other = Other::new(world.started);
            world.audit.starts(world.started, other.name());
            world.others.push(other);
        }
        world
    }

    fn run(&mut self, steps: u64) -> Verdict {
        let last = self.step + steps;
        while self.step < last {
            let Some(step) = self.random.weighted(&steps::WEIGHTS) else { break };
            self.trace.at(self.step);
            let spared = step.is_fault() && !self.random.percent(self.weather);
            self.replace_the_stopped();
            if !spared && self.take(step)? {
                self.step += 1;
                *self.census.entry(step.name()).or_default() += 1;
            }
        }
        Ok(())
    }

    fn start_process(&mut self) {
        let name = format!("worker-{}", self.started + 1);
        self.start(name, 1);
    }

    fn now(&self) -> DbTime {
        DbTime(self.clock.now)
    }

    fn rows(&self) -> Rows {
        self.store.rows(&self.key).cloned().unwrap_or_default()
    }

    fn send(&mut self, packet: Packet) {
        if let Some(lost) = self.network.send(packet, &mut self.random) {
            self.trace.say(|| format!("lost, too much under way: {}", network::told(&lost)));
        }
    }

    /// A process of a client starts; says which it is.
    fn start(&mut self, name: String, generation: u64) -> usize {
        self.started += 1;
        let now = self.random.between(0, 3_600_000_000);
        let clock = Clock { now, rate: self.random.between(500, 2000) };
        self.audit.starts(self.started, &name);
        self.trace.say(|| format!("{name} starts, generation {generation}"));
        self.processes.push(Process::of(self.started, name, generation, clock));
        self.processes.len() - 1
    }

    /// Time goes on for everybody, as fast as each clock goes.
    fn pass(&mut self, by: Micros) {
        self.time += by;
        let before = self.now();
        self.clock.advance(by);
        self.nobody_may_listen(self.now() - before);
        self.open_calls_are_heard();
        self.processes.iter_mut().for_each(|process| process.clock.advance(by));
    }

    fn any_process(&mut self) -> Option<usize> {
        self.random.index(self.processes.len()).filter(|at| !self.processes[*at].frozen)
    }

    fn any_holder(&mut self) -> Option<usize> {
        self.random.index(self.holders.len()).filter(|at| !self.holders[*at].frozen)
    }

    fn any_group(&mut self) -> Group {
        Group::new(self.random.index(GROUPS.len()).map_or("", |at| GROUPS[at]))
    }

    /// Where a call is sent. In the end all holders know who of them is the key's home, and pass calls on to it.
    fn any_address(&mut self) -> usize {
        if self.fair { 0 } else { self.random.index(self.holders.len()).unwrap_or(0) }
    }

    /// A process sends what its ledger wants to say, one call.
    fn speak(&mut self, at: usize) -> bool {
        let Some((mut call, given_up)) = self.processes[at].speak() else { return false };
        transactions::misspeak(&mut call.message, self.plant);
        let name = CallName { from: self.processes[at].serial, number: call.number };
        let holder = self.any_address();
        self.send_call(name, holder, call.endpoint, call.message);
        if let Some(name) = given_up {
            self.send(Packet::HangUp { name, holder });
        }
        true
    }

    fn send_call(&mut self, name: CallName, holder: usize, endpoint: Endpoint, message: Message) {
        self.audit.says(name.from, &message);
        let packet = Packet::Call { name, holder, endpoint, message: Rc::new(message) };
        self.trace.say(|| network::told(&packet));
        self.send(packet);
    }
}
