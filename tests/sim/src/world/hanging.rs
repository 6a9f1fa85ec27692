//! A world in which time passes evenly, every process lives, and calls hang: nobody may be declared dead, and nobody waits
//! for long while there are permits.
//!
//! One call of five hangs by itself: it never arrives, arrives late, or its answer is late or lost. Beside that one holder
//! at a time is frozen (it takes calls and answers none, and thaws in the middle of its transactions) or cut off one way
//! (calls arrive and answers don't, or the other way round). What was held back arrives later, in its order. At the
//! holders that work no two calls of one kind and process hang in a row: what else would a client rely on?
//!
//! Processes choose addresses as the HTTP transport does, and it ends calls at an address without a sign of life. Now and
//! then the runtime of a process ends under its calls; its application goes on within a second.

mod judge;
mod transport;

use super::{Outcome, World};
use crate::audit::Verdict;
use crate::plant::Plant;
use pgsemaphore_allocation::{Micros, Provisioning, Work};
use std::collections::BTreeMap;
use transport::{Hang, Line};

const TICK: Micros = 20_000;
const SECOND: Micros = 1_000_000;
/// Holders look again at what is parked this often, whatever news they got.
const LOOK_AGAIN_EVERY: Micros = SECOND;

/// Runs the world of a seed in which calls hang for at least so many steps, then drains it.
pub fn simulate_hanging(seed: u64, steps: u64, plant: Option<Plant>, trace: bool) -> Outcome {
    let mut world = Hanging::new(seed, plant, trace);
    let result = world.run(steps).and_then(|()| world.world.drain());
    if let Err(violation) = &result {
        world.world.trace.say(|| format!("VIOLATED {violation}"));
    }
    let World { step, census, trace, .. } = world.world;
    Outcome { steps: step, violation: result.err(), trace: trace.into_lines(), census }
}

struct Hanging {
    world: World,
    /// By process.
    lines: BTreeMap<u32, Line>,
    trouble: Option<Trouble>,
    /// What is held back, until when.
    held: Vec<(Micros, super::Packet)>,
    next_trouble: Micros,
    looked_again: Micros,
    /// Since when somebody waits though there are permits.
    idle_since: Option<Micros>,
}

/// A holder that nobody gets an answer from.
struct Trouble {
    holder: usize,
    what: What,
    since: Micros,
    until: Micros,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Frozen,
    CallsCut,
    AnswersCut,
}

impl Hanging {
    fn new(seed: u64, plant: Option<Plant>, trace: bool) -> Self {
        let mut world = World::new(seed, plant, trace);
        world.others.clear();
        world.clock.rate = 1000;
        world.processes.iter_mut().for_each(|process| process.clock.rate = 1000);
        if world.holders.len() < 2 {
            world.holders.push(super::Holder::default());
        }
        let policy = &mut world.limits.policy;
        policy.settle_after = Some(world.random.between(5_000, 30_000) * 1000);
        policy.grant_timeout = world.random.between(4_000, 15_000) * 1000;
        policy.lease_ttl = world.random.between(2_000, 20_000) * 1000;
        if world.random.percent(50) {
            policy.provisioning = Provisioning::None;
        } else {
            policy.provisioning = Provisioning::Strict;
        }
        world.store.set_limits(&world.key, Some(world.limits.clone()));
        world.audit.everybody_lives();
        let next_trouble = world.random.between(0, 20) * SECOND;
        Self {
            world,
            lines: BTreeMap::new(),
            trouble: None,
            held: Vec::new(),
            next_trouble,
            looked_again: 0,
            idle_since: None,
        }
    }

    fn run(&mut self, steps: u64) -> Verdict {
        while self.world.step < steps {
            self.tick()?;
        }
        for holder in &mut self.world.holders {
            holder.frozen = false;
        }
        Ok(())
    }

    fn tick(&mut self) -> Verdict {
        self.world.trace.at(self.world.step);
        self.world.pass(TICK);
        self.trouble_comes_and_goes();
        self.people()?;
        self.end_silent_calls();
        for at in 0..self.world.processes.len() {
            while self.speak(at) {}
        }
        self.carry()?;
        self.holders_work()?;
        self.carry()?;
        self.nobody_waits_in_vain()
    }

    fn trouble_comes_and_goes(&mut self) {
        let (now, world) = (self.world.time, &mut self.world);
        if let Some(trouble) = self.trouble.take_if(|trouble| trouble.until <= now) {
            world.holders[trouble.holder].frozen = false;
            self.next_trouble = now + world.random.between(15, 60) * SECOND;
            world.trace.say(|| format!("holder {} is as before: {:?}", trouble.holder, trouble.what));
        }
        if self.trouble.is_some() || now < self.next_trouble {
            return;
        }
        let Some(holder) = world.any_holder() else { return };
        let kinds = [What::Frozen, What::CallsCut, What::AnswersCut];
        let what = world.random.index(kinds.len()).map_or(What::Frozen, |at| kinds[at]);
        world.holders[holder].frozen = what == What::Frozen;
        world.count(match what {
            What::Frozen => "a holder freezes",
            What::CallsCut => "calls are cut off",
            What::AnswersCut => "answers are cut off",
        });
        world.trace.say(|| format!("holder {holder} is in trouble: {what:?}"));
        let until = now + world.random.between(1, 60) * SECOND;
        self.trouble = Some(Trouble { holder, what, since: now, until });
    }

    /// What applications do in a tick.
    fn people(&mut self) -> Verdict {
        let world = &mut self.world;
        let happens = match world.random.below(100) {
            0..3 => world.queue()?,
            3 => world.cancel(),
            4..7 => world.start_item(),
            7..9 => world.end_item(),
            9 => world.put_back()?,
            10 => world.draw_spare()?,
            11 if world.random.percent(10) => {
                self.runtime_ends();
                true
            }
            _ => false,
        };
        self.world.step += u64::from(happens);
        self.applications_go_on();
        Ok(())
    }

    fn holders_work(&mut self) -> Verdict {
        let now = self.world.time;
        let looks_again = now - self.looked_again >= LOOK_AGAIN_EVERY;
        if looks_again {
            self.looked_again = now;
        }
        let due = self.world.store.next_deadline(&self.world.key).is_some_and(|at| at <= self.world.now());
        for holder in 0..self.world.holders.len() {
            if self.world.holders[holder].frozen {
                continue;
            }
            // Half of the transactions take longer than a tick: a holder may freeze within them.
            while !self.world.holders[holder].jobs.is_empty() && self.world.random.percent(50) {
                self.world.commit(holder, 0)?;
                self.world.step += 1;
            }
            if looks_again {
                self.world.look_again(holder);
            }
            self.world.conclude(holder);
            for work in [Work::Round, Work::Sync, Work::Timer] {
                if (work == Work::Timer && !due) || !self.world.holders[holder].jobs.is_empty() {
                    continue;
                }
                let plant = self.world.plant;
                if let Some(batch) = self.world.holders[holder].take(work, false, plant) {
                    self.world.begin(holder, work, batch)?;
                }
            }
        }
        Ok(())
    }

    fn hangs(&mut self) -> Option<Hang> {
        let random = &mut self.world.random;
        if !random.percent(20) {
            return None;
        }
        let late = random.between(0, 30) * SECOND;
        Some(match random.below(4) {
            0 => Hang::NeverArrives,
            1 => Hang::ArrivesLate(late),
            2 => Hang::AnswerLate(late),
            _ => Hang::AnswerLost,
        })
    }
}
