//! Processes that end, and those that start in their place; and holders that nobody can reach.

use super::World;
use super::other::Other;
use super::process::{Item, Process};
use crate::plant::Plant;
use pgsemaphore_allocation::Micros;

/// Holders that are away for no longer than this may not have been missed: three of their heartbeats.
const UNNOTICED_OUTAGE: Micros = 3_000_000;

impl World {
    /// A process is gone, with its items, but for those that are detached and go on with a successor.
    pub(super) fn crash_process(&mut self) -> bool {
        let Some(at) = self.random.index(self.processes.len()) else { return false };
        let process = self.processes.remove(at);
        self.trace.say(|| format!("{} crashes", process.name));
        self.succeed_to(process);
        true
    }

    /// A process that does not answer has a successor, and wakes up later.
    pub(super) fn succeed(&mut self) -> bool {
        let frozen = |process: &Process| process.frozen && process.shut_out.is_none();
        let frozen: Vec<_> = (0..self.processes.len()).filter(|at| frozen(&self.processes[*at])).collect();
        let Some(at) = self.random.index(frozen.len()).map(|which| frozen[which]) else { return false };
        let process = &mut self.processes[at];
        let (name, generation) = (process.name.clone(), process.generation + 1);
        let resumes = self.random.percent(60);
        let detached = |item: &mut Item| resumes && item.detached.is_some();
        let goes_on: Vec<Item> = process.items.extract_if(.., detached).collect();
        let from = process.serial;
        self.count("a frozen process has a successor");
        self.start_successor(name, generation, resumes, goes_on, from);
        true
    }

    /// What becomes of the client of a process that is gone.
    fn succeed_to(&mut self, process: Process) {
        let Process { serial, name, generation, items, .. } = process;
        let has_another = self.processes.iter().any(|other| other.name == name);
        let returns = !has_another && self.random.percent(60);
        let resumes = returns && self.random.percent(60);
        let (goes_on, lost): (Vec<_>, Vec<_>) = items
            .into_iter()
            .partition(|item| resumes && item.detached.is_some() && !self.random.percent(20));
        lost.iter().for_each(|item| self.audit.lets_go(serial, item.block.as_str(), false));
        if returns {
            // By a clock that is behind it may be as high as the last one.
            let generation = if self.random.percent(15) { generation } else { generation + 1 };
            self.start_successor(name, generation, resumes, goes_on, serial);
        } else if !has_another {
            self.dead.push(name);
            self.start_process();
        }
    }

    fn start_successor(
        &mut self,
        name: String,
        generation: u64,
        resumes: bool,
        goes_on: Vec<Item>,
        from: u32,
    ) {
        let at = self.start(name, generation);
        if !resumes {
            return;
        }
        let process = &mut self.processes[at];
        goes_on.iter().for_each(|item| self.audit.passes_on(from, process.serial, item.block.as_str()));
        let forgets = self.plant == Some(Plant::ReleasesResumed);
        process.resume(if forgets { Vec::new() } else { goes_on });
    }

    /// An item is to go on without its process, if that ends.
    pub(super) fn detach(&mut self) -> bool {
        let Some(at) = self.any_process() else { return false };
        let process = &mut self.processes[at];
        let of = |item: &&mut Item| item.started && item.detached.is_none();
        let Some(item) = process.items.iter_mut().find(of) else { return false };
        self.detached += 1;
        let name = format!("d{}", self.detached);
        process.ledger.detach(&name, &item.block);
        item.detached = Some(name);
        true
    }

    /// One that was shut out stops: it lets its items end.
    pub(super) fn stop_if_shut_out(&mut self, at: usize) {
        let process = &mut self.processes[at];
        if process.shut_out.is_none() || self.audit.is_shut_out(process.serial) {
            return;
        }
        self.audit.shut_out(process.serial);
        let name = process.name.clone();
        if self.plant == Some(Plant::GoesOnFenced) {
            process.shut_out = None;
        } else {
            process.stop();
        }
        self.trace.say(|| format!("{name} is shut out"));
        self.count("a process is shut out");
    }

    /// One whose items have ended since it was shut out is replaced, under the generation that it was told.
    pub(super) fn replace_the_stopped(&mut self) {
        let stopped = |process: &Process| process.shut_out.is_some() && process.items.is_empty();
        while let Some(at) = self.processes.iter().position(stopped) {
            let Process { name, shut_out, .. } = self.processes.remove(at);
            let has_another = self.processes.iter().any(|other| other.name == name);
            if let Some(generation) = shut_out.filter(|_| !has_another) {
                let at = self.start(name, generation);
                // As in `end_faults`: whoever is there in the end is heard once.
                if self.fair {
                    self.processes[at].ledger.reconcile();
                }
            }
        }
    }

    /// A client of another make does the same under another name.
    pub(super) fn other_is_shut_out(&mut self, at: usize) {
        let serial = self.others[at].serial;
        self.audit.shut_out(serial);
        self.started += 1;
        self.others[at] = Other::new(self.started);
        self.audit.starts(self.started, self.others[at].name());
    }

    /// All holders are away.
    pub(super) fn outage(&mut self) {
        self.trace.say(|| "all holders are away".to_owned());
        for at in 0..self.holders.len() {
            let callers = self.holders[at].crash();
            self.holders[at].frozen = true;
            self.break_off(callers);
        }
        let by = self.random.between(1_000_000, 120_000_000);
        self.pass(by);
    }

    /// So much time has passed; what if no holder is there?
    pub(super) fn nobody_may_listen(&mut self, by: Micros) {
        if self.holders.iter().any(|holder| !holder.frozen) {
            self.unheard = 0;
            return;
        }
        self.unheard += by;
        self.heartbeats_are_missed(self.unheard);
    }

    /// All holders' heartbeats are so old. The database's clock may also have been set ahead: silence counts anew then.
    pub(super) fn heartbeats_are_missed(&mut self, by: Micros) {
        if by > UNNOTICED_OUTAGE {
            self.audit.nobody_listens(self.now());
            if self.plant != Some(Plant::SilenceInOutage) {
                self.store.set_serving_since(None);
            }
        }
    }

    /// Holders that are awake note once a second that they hear the clients whose calls they keep open.
    pub(super) fn open_calls_are_heard(&mut self) {
        let now = self.now();
        for holder in self.holders.iter_mut().filter(|holder| !holder.frozen) {
            if !holder.notes_open_calls(now) {
                continue;
            }
            let clients = holder.open_calls(self.store.rows(&self.key));
            self.audit.open_calls(&clients, now);
            if self.plant != Some(Plant::ParkedUnheard) {
                self.store.hear(&self.key, &clients, now);
            }
        }
    }

    /// A holder says that it is there.
    pub(super) fn heartbeat(&mut self) -> bool {
        if self.any_holder().is_none() || self.store.is_served() {
            return false;
        }
        self.trace.say(|| "holders listen again".to_owned());
        self.store.set_serving_since(Some(self.now()));
        self.audit.nobody_listens(self.now());
        self.count("holders listen again");
        true
    }
}
