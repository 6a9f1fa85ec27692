//! What can happen next.

use super::Printed;
use super::actor::Deed;
use super::state::{State, World};
use super::store::Request;
use crate::audit::Verdict;
use crate::world::network::{self, CallName, Packet, Refusal};
use pgsemaphore_allocation::Work;
use queue_client::Endpoint;
use std::rc::Rc;

#[derive(Debug, Clone)]
pub(super) enum Action {
    /// A process does something.
    Does(usize, Deed),
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
    /// A call that is parked ends without an answer.
    Close(usize),
    /// Clients without an open call are silent for too long. The holder that looks keeps the open calls, or another one.
    Silence { elsewhere: bool },
}

impl State {
    pub(super) fn actions(&self, world: &World) -> Vec<Action> {
        let mut actions = Vec::new();
        let room = world.bounds.under_way.saturating_sub(self.network.len());
        for (at, actor) in self.actors.iter().enumerate() {
            let mut when = |possible: bool, deed: Deed| {
                actions.extend(possible.then_some(Action::Does(at, deed)));
            };
            when(actor.items_left > 0, Deed::Queue);
            when(actor.cancels_left > 0 && actor.waits, Deed::Cancel);
            let may_speak = actor.requests_left > 0 || actor.syncs_left > 0;
            when(may_speak && room > 0 && actor.has_more_to_say, Deed::Speak);
            when(actor.has_calls, Deed::GiveUp);
            when(self.crashes_left > 0, Deed::Crash);
            (0..actor.held.len()).for_each(|which| when(true, Deed::End(which)));
        }
        for (at, packet) in self.network.iter().enumerate() {
            if at > 0 && self.network[at - 1].print == packet.print {
                continue;
            }
            // What is never delivered is as good as lost; it matters only as long as there is room for others.
            if room == 0 {
                actions.push(Action::Lose(at));
            }
            actions.push(Action::Arrive(at));
            let answered = usize::from(matches!(&*packet.is, Packet::Call { .. }));
            if self.repeats_left > 0 && answered <= room {
                actions.push(Action::ArriveAgain(at));
            }
        }
        if self.rounds_left > 0 && !self.waiting.is_empty() && self.waiting.len() <= room {
            actions.push(Action::Round);
        }
        let due = world.transactions.rows(&self.store).semaphore.next_deadline().is_some();
        if self.deadlines_left > 0 && due {
            actions.push(Action::Deadlines);
        }
        actions.extend((0..self.parked.len()).map(Action::Close));
        if self.silences_left > 0 {
            actions.extend([false, true].map(|elsewhere| Action::Silence { elsewhere }));
        }
        actions
    }

    /// The next state, if there is one.
    pub(super) fn after(&self, action: &Action, world: &mut World) -> Option<(Self, Verdict)> {
        let mut state = self.clone();
        let verdict = state.take(action, world)?;
        let verdict = verdict.and_then(|()| state.judge(world));
        Some((state, verdict))
    }

    fn take(&mut self, action: &Action, world: &mut World) -> Option<Verdict> {
        match action {
            Action::Does(at, deed) => {
                self.crashes_left -= u32::from(matches!(deed, Deed::Crash));
                let which = match deed {
                    Deed::End(which) => *which as u64,
                    _ => 0,
                };
                self.does(*at, deed, super::print(&(std::mem::discriminant(deed), which)), world)?;
            }
            Action::Lose(at) => drop(self.network.remove(*at)),
            Action::Arrive(at) => {
                let packet = self.network.remove(*at);
                return Some(self.arrive(&packet, world));
            }
            Action::ArriveAgain(at) => {
                self.repeats_left -= 1;
                let packet = self.network[*at].clone();
                return Some(self.arrive(&packet, world));
            }
            Action::Round => {
                self.rounds_left -= 1;
                let batch = std::mem::take(&mut self.waiting);
                return Some(self.allocate(world, batch));
            }
            Action::Close(at) => drop(self.parked.remove(*at)),
            Action::Silence { elsewhere } => {
                self.silences_left -= 1;
                return Some(self.clients_are_silent(*elsewhere, world));
            }
            Action::Deadlines => {
                self.deadlines_left -= 1;
                return Some(self.deadlines_pass(world));
            }
        }
        Some(Ok(()))
    }

    fn does(&mut self, at: usize, deed: &Deed, deed_print: u128, world: &mut World) -> Option<()> {
        let (actor, said) = world.actors.does(&self.actors[at], deed, deed_print)?;
        self.actors[at] = actor;
        said.into_iter().for_each(|packet| self.send(packet));
        Some(())
    }

    fn arrive(&mut self, packet: &Printed<Packet>, world: &mut World) -> Verdict {
        match &*packet.is {
            Packet::Call { name, endpoint: Endpoint::Sync, message, .. } => {
                let request = (name.clone(), Rc::clone(message));
                return self.transact(
                    world,
                    Work::Sync,
                    &[Printed { is: Rc::new(request), print: packet.print }],
                );
            }
            Packet::Call { name, message, .. } => {
                let request = (name.clone(), Rc::clone(message));
                self.admit(name, Printed { is: Rc::new(request), print: packet.print });
            }
            Packet::Answer { name, answer } => {
                if let Some(at) = self.actors.iter().position(|actor| actor.serial == name.from) {
                    self.does(at, &Deed::Hear(name.number, answer.clone()), packet.print, world);
                }
            }
            Packet::HangUp { .. } => {}
        }
        Ok(())
    }

    /// A request waits, and supersedes an older one of its process.
    fn admit(&mut self, name: &CallName, request: Printed<Request>) {
        let same = |other: &Printed<Request>| other.is.0.from == name.from;
        for old in self.parked.extract_if(.., |parked| same(parked)).collect::<Vec<_>>() {
            let refused = Packet::Answer { name: old.is.0.clone(), answer: Err(Refusal::Superseded) };
            self.send(Printed::new(refused));
        }
        let Some(at) = self.waiting.iter().position(same) else { return self.waiting.push(request) };
        let mut refused = name.clone();
        if self.waiting[at].is.0.number < name.number {
            refused = self.waiting.remove(at).is.0.clone();
            self.waiting.push(request);
        }
        self.send(Printed::new(Packet::Answer { name: refused, answer: Err(Refusal::Superseded) }));
    }

    /// One line for people.
    pub(super) fn tells(&self, action: &Action) -> String {
        match action {
            Action::Arrive(at) => format!("arrives: {}", network::told(&self.network[*at].is)),
            Action::ArriveAgain(at) => {
                format!("arrives, not for good: {}", network::told(&self.network[*at].is))
            }
            Action::Lose(at) => format!("lost: {}", network::told(&self.network[*at].is)),
            Action::Does(at, deed) => format!("worker-{}: {deed:?}", self.actors[*at].serial),
            Action::Round => format!("a round of {} requests", self.waiting.len()),
            Action::Deadlines => "claim deadlines pass".to_owned(),
            Action::Close(at) => format!("a parked call of process {} ends", self.parked[*at].is.0.from),
            Action::Silence { .. } => "clients without an open call are silent".to_owned(),
        }
    }
}
