//! What can happen next.

use super::state::{Printed, Request, State, speak};
use crate::audit::Verdict;
use crate::world::network::{self, CallName, Packet, Refusal};
use crate::world::transactions::misheard;
use pgsemaphore_allocation::Work;
use queue_client::Endpoint;
use std::rc::Rc;

#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    /// An item of a process waits.
    Queue(usize),
    /// The item that waited longest waits no longer.
    Cancel(usize),
    /// A process sends what it has to say.
    Speak(usize),
    /// A process waits no longer for the answer to its oldest call.
    GiveUp(usize),
    /// An item of a process ends.
    End(usize, usize),
    /// A process crashes.
    Crash(usize),
    /// A packet arrives.
    Arrive(usize),
    /// A packet arrives, and will arrive again.
    ArriveAgain(usize),
    /// A packet is lost.
    Lose(usize),
    /// The requests that wait are allocated.
    Round,
    /// Claim deadlines pass.
    Deadlines,
}

impl State {
    pub(super) fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (at, actor) in self.actors.iter().enumerate() {
            let (actor, process) = (&actor.is, &actor.is.process);
            let mut when = |possible: bool, action: Action| actions.extend(possible.then_some(action));
            when(actor.items_left > 0, Action::Queue(at));
            when(actor.cancels_left > 0 && !process.waiting.is_empty(), Action::Cancel(at));
            when(self.can_speak(at), Action::Speak(at));
            when(!process.under_way().is_empty(), Action::GiveUp(at));
            when(self.crashes_left > 0 && !process.frozen, Action::Crash(at));
            let mut blocks: Vec<_> = process.items.iter().map(|item| &item.block).collect();
            blocks.dedup();
            (0..blocks.len()).for_each(|which| when(true, Action::End(at, which)));
        }
        for (at, packet) in self.network.iter().enumerate() {
            if at > 0 && self.network[at - 1].print == packet.print {
                continue;
            }
            // What is never delivered is as good as lost; it matters only as long as there is a place for others.
            if !self.has_place_for(1) {
                actions.push(Action::Lose(at));
            }
            actions.push(Action::Arrive(at));
            let answered = matches!(&*packet.is, Packet::Call { .. });
            if self.repeats_left > 0 && self.has_place_for(usize::from(answered)) {
                actions.push(Action::ArriveAgain(at));
            }
        }
        if self.rounds_left > 0 && !self.waiting.is_empty() && self.has_place_for(self.waiting.len()) {
            actions.push(Action::Round);
        }
        let due = self.rows().semaphore.next_deadline().is_some();
        if self.deadlines_left > 0 && due {
            actions.push(Action::Deadlines);
        }
        actions
    }

    fn can_speak(&self, at: usize) -> bool {
        let actor = &self.actors[at].is;
        let may = actor.requests_left > 0 || actor.syncs_left > 0;
        may && self.has_place_for(1) && actor.process.ledger.wake_at().is_some()
    }

    /// The next state, if there is one.
    pub(super) fn after(&self, action: Action) -> Option<(Self, Verdict)> {
        let mut state = self.clone();
        let verdict = state.take(action)?;
        let verdict = verdict.and_then(|()| state.judge());
        Some((state, verdict))
    }

    fn take(&mut self, action: Action) -> Option<Verdict> {
        match action {
            Action::Queue(at) => self.act(at, |actor| {
                actor.items_left -= 1;
                let process = &mut actor.process;
                let now = process.now_ms();
                process.waiting.push(process.ledger.enqueue("", now));
            }),
            Action::Cancel(at) => self.act(at, |actor| {
                actor.cancels_left -= 1;
                let waiter = actor.process.waiting.remove(0);
                actor.process.ledger.cancel(&waiter);
            }),
            Action::Speak(at) => self.say(at)?,
            Action::GiveUp(at) => self.act(at, |actor| {
                let oldest = actor.process.under_way().into_iter().next();
                oldest.into_iter().for_each(|number| actor.process.give_up(number, 0));
            }),
            Action::End(at, which) => self.act(at, |actor| {
                let mut blocks: Vec<_> = actor.process.items.iter().map(|item| item.block.clone()).collect();
                blocks.dedup();
                let of = |item: &crate::world::process::Item| item.block == blocks[which];
                let Some(item) = actor.process.items.iter().position(of) else { return };
                let item = actor.process.items.remove(item);
                actor.process.ledger.release(&item.block);
            }),
            Action::Crash(at) => {
                self.crashes_left -= 1;
                self.act(at, |actor| {
                    let serial = actor.process.serial + 100;
                    let clock = actor.process.clock.clone();
                    actor.process = crate::world::process::Process::new(serial, clock);
                });
            }
            Action::Lose(at) => drop(self.network.remove(at)),
            Action::Arrive(at) => {
                let packet = self.network.remove(at);
                return Some(self.arrive(&packet.is));
            }
            Action::ArriveAgain(at) => {
                self.repeats_left -= 1;
                let packet = self.network[at].clone();
                return Some(self.arrive(&packet.is));
            }
            Action::Round => {
                self.rounds_left -= 1;
                let batch = std::mem::take(&mut self.waiting);
                let batch: Vec<_> = batch.iter().map(|request| (*request.is).clone()).collect();
                return Some(self.transact(Work::Round, &batch));
            }
            Action::Deadlines => {
                self.deadlines_left -= 1;
                return Some(self.passes());
            }
        }
        Some(Ok(()))
    }

    fn say(&mut self, at: usize) -> Option<()> {
        let call = self.act(at, |actor| {
            let call = speak(actor)?;
            let left = match call.endpoint {
                Endpoint::Request => &mut actor.requests_left,
                Endpoint::Sync => &mut actor.syncs_left,
            };
            *left = left.checked_sub(1)?;
            Some(call)
        })?;
        let name = CallName { from: self.actors[at].is.process.serial, number: call.number };
        let message = Rc::new(call.message);
        self.send(Packet::Call { name, holder: 0, endpoint: call.endpoint, message });
        Some(())
    }

    fn arrive(&mut self, packet: &Packet) -> Verdict {
        match packet {
            Packet::Call { name, endpoint: Endpoint::Sync, message, .. } => {
                return self.transact(Work::Sync, &[(name.clone(), message.clone())]);
            }
            Packet::Call { name, message, .. } => {
                let request = Printed::told((name.clone(), message.clone()));
                let same = |other: &Printed<Request>| other.is.0.from == name.from;
                let Some(at) = self.waiting.iter().position(same) else {
                    self.waiting.push(request);
                    return Ok(());
                };
                let mut refused = name.clone();
                if self.waiting[at].is.0.number < name.number {
                    refused = self.waiting.remove(at).is.0.clone();
                    self.waiting.push(request);
                }
                self.send(Packet::Answer { name: refused, answer: Err(Refusal::Superseded) });
            }
            Packet::Answer { name, answer } => {
                let to = self.actors.iter().position(|actor| actor.is.process.serial == name.from);
                let answer = answer.clone().map(|reply| misheard(reply, self.bounds.plant));
                let answer = answer.as_deref().map_err(|refusal| *refusal);
                to.into_iter()
                    .for_each(|at| self.act(at, |actor| actor.process.hear(name.number, answer, 0)));
            }
            Packet::HangUp { .. } => {}
        }
        Ok(())
    }

    /// One line for people.
    pub(super) fn tells(&self, action: Action) -> String {
        match action {
            Action::Arrive(at) | Action::ArriveAgain(at) | Action::Lose(at) => {
                let name = format!("{action:?}");
                let what = name.split('(').next().unwrap_or_default();
                format!("{what}: {}", network::told(&self.network[at].is))
            }
            Action::Speak(at) => {
                let process = &self.actors[at].is.process;
                let call = speak(&mut (*self.actors[at].is).clone());
                let (said, name) = (call.map(|call| call.message), &process.name);
                format!("{name} says {said:?}")
            }
            other => format!("{other:?}"),
        }
    }
}
