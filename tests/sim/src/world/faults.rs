//! What goes wrong, beside the network.

use super::World;
use super::network::{CallName, Packet, Refusal};

/// Copies that are kept.
const COPIES_MAX: usize = 3;

impl World {
    pub(super) fn crash_holder(&mut self) {
        let Some(at) = self.random.index(self.holders.len()) else { return };
        let callers = self.holders[at].crash();
        self.trace.say(|| format!("holder {at} crashes"));
        self.break_off(callers);
    }

    pub(super) fn freeze_process(&mut self) -> bool {
        let Some(at) = self.any_process() else { return false };
        self.processes[at].frozen = true;
        let name = self.processes[at].name.clone();
        self.trace.say(|| format!("{name} freezes"));
        true
    }

    pub(super) fn freeze_holder(&mut self) -> bool {
        let Some(at) = self.any_holder() else { return false };
        self.holders[at].frozen = true;
        self.trace.say(|| format!("holder {at} freezes"));
        true
    }

    /// Somebody that was frozen goes on where it was.
    pub(super) fn thaw(&mut self) -> bool {
        let frozen = |world: &Self| {
            let holders = world.holders.iter().enumerate().filter(|(_, holder)| holder.frozen);
            let processes = world.processes.iter().enumerate().filter(|(_, process)| process.frozen);
            let holders = holders.map(|(at, _)| (true, at));
            holders.chain(processes.map(|(at, _)| (false, at))).collect::<Vec<_>>()
        };
        let asleep = frozen(self);
        let Some(which) = self.random.index(asleep.len()) else { return false };
        match asleep[which] {
            (true, at) => self.holders[at].frozen = false,
            (false, at) => self.processes[at].frozen = false,
        }
        let (holder, at) = asleep[which];
        self.trace.say(|| format!("{} {at} wakes up", if holder { "holder" } else { "process" }));
        true
    }

    /// Clocks are set, back too, or go at another speed.
    pub(super) fn set_clock(&mut self) {
        let by = self.random.between(-600_000_000, 600_000_000);
        let rate = self.random.between(300, 3000);
        let at = self.random.index(self.processes.len() + 1).filter(|at| *at < self.processes.len());
        let clock = match at {
            Some(at) => &mut self.processes[at].clock,
            None => &mut self.clock,
        };
        let by = if at.is_none() && self.restores { by.abs() } else { by };
        clock.jump(by);
        clock.rate = rate;
        if at.is_none() {
            self.heartbeats_are_missed(by);
        }
        self.trace.say(|| format!("clock of {at:?} is set by {} ms, and goes at {rate}/1000", by / 1000));
    }

    pub(super) fn copy(&mut self) {
        self.copies.push(self.store.clone());
        if self.copies.len() > COPIES_MAX {
            self.copies.remove(0);
        }
        self.trace.say(|| "the store is copied".to_owned());
    }

    /// The store is an older copy of itself again, which takes a second. Transactions under way are lost.
    pub(super) fn restore(&mut self) -> bool {
        if !self.restores {
            return false;
        }
        let Some(at) = self.random.index(self.copies.len()) else { return false };
        self.store = self.copies[at].clone();
        self.pass(1_000_000);
        self.store.set_serving_since(Some(self.now()));
        self.audit.nobody_listens(self.now());
        self.trace.say(|| "the store is restored from a copy".to_owned());
        let jobs = self.holders.iter_mut().flat_map(|holder| std::mem::take(&mut holder.jobs));
        let callers = jobs.flat_map(|job| job.batch).map(|waiting| waiting.name).collect();
        self.break_off(callers);
        self.audit.restored(&self.rows());
        true
    }

    /// Callers see their connections break.
    pub(super) fn break_off(&mut self, callers: Vec<CallName>) {
        for name in callers {
            self.send(Packet::Answer { name, answer: Err(Refusal::Unavailable) });
        }
    }
}
