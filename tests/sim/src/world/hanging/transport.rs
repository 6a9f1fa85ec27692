//! How calls get from processes to holders, as the HTTP transport sends them, and what holds them up.

use super::{Hanging, SECOND, What};
use crate::audit::Verdict;
use crate::plant::Plant;
use crate::world::network::{CallName, Packet};
use crate::world::transactions;
use pgsemaphore_allocation::Micros;
use queue_client::Endpoint;
use queue_client::addresses::{Addresses, Begun, Ended};
use std::collections::BTreeMap;

/// Without a sign of life for so long a call ends.
const SIGN_OF_LIFE: Micros = 5 * SECOND;
/// So long the cheap call is waited for by which an address shows that it lives.
const PROBE: Micros = 3 * SECOND;
/// A sync takes at most so long.
const SYNC_TIMEOUT: Micros = 10 * SECOND;
/// An application whose runtime ended uses the client again after this.
const GOES_ON_AFTER: Micros = SECOND / 2;

/// What holds up a call at a holder that works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hang {
    NeverArrives,
    ArrivesLate(Micros),
    AnswerLate(Micros),
    AnswerLost,
}

/// One process's side of its calls.
pub(super) struct Line {
    addresses: Addresses,
    calls: BTreeMap<u64, Open>,
    /// The latest call of each kind, at a holder that works, hung.
    hung: BTreeMap<Kind, bool>,
    /// Addresses that are asked whether they live, and until when.
    probes: Vec<(Micros, usize)>,
    /// Since when no task of the client runs.
    stopped_at: Option<Micros>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Request,
    Sync,
    Parked,
}

struct Open {
    begun: Begun,
    kind: Kind,
    sent_at: Micros,
    hang: Option<Hang>,
}

impl Hanging {
    /// A process sends what its ledger wants to say, one call.
    pub(super) fn speak(&mut self, at: usize) -> bool {
        let count = self.world.holders.len();
        let (serial, now) = (self.world.processes[at].serial, self.world.time);
        let line = self.lines.entry(serial).or_insert_with(|| Line {
            addresses: Addresses::new(count),
            calls: BTreeMap::new(),
            hung: BTreeMap::new(),
            probes: Vec::new(),
            stopped_at: None,
        });
        let waits = line.calls.values().any(|call| call.kind == Kind::Sync);
        let behind = self.world.plant == Some(Plant::HeartbeatBehindHung) && waits;
        if line.stopped_at.is_some() || behind {
            return false;
        }
        let Some((mut call, given_up)) = self.world.processes[at].speak() else { return false };
        transactions::misspeak(&mut call.message, self.world.plant);
        let kind = match (call.endpoint, call.message.wait_ms) {
            (Endpoint::Request, _) => Kind::Request,
            (Endpoint::Sync, 0) => Kind::Sync,
            (Endpoint::Sync, _) => Kind::Parked,
        };
        let now_ms = millis(now);
        if let Some(gone) = given_up.and_then(|name| line.calls.remove(&name.number).map(|call| (name, call)))
        {
            line.addresses.end(gone.1.begun.call, Ended::GivenUp, now_ms);
            self.world.send(Packet::HangUp { name: gone.0, holder: gone.1.begun.at });
        }
        let about = (kind == Kind::Sync).then_some("key");
        let begun = line.addresses.begin(about, &[], now_ms);
        if let Some(at) = line.addresses.to_probe(now_ms) {
            let answers = self.trouble.as_ref().is_none_or(|trouble| trouble.holder != at);
            line.probes.push((if answers { now } else { now + PROBE }, at));
        }
        let works = self.trouble.as_ref().is_none_or(|trouble| trouble.holder != begun.at);
        let may_hang = works && !line.hung.get(&kind).copied().unwrap_or(false);
        let hang = if may_hang { self.hangs() } else { None };
        if hang.is_some() {
            self.world.count("a call hangs");
        }
        let Some(line) = self.lines.get_mut(&serial) else { return false };
        if works {
            line.hung.insert(kind, hang.is_some());
        }
        line.calls.insert(call.number, Open { begun, kind, sent_at: now, hang });
        self.world.step += 1;
        let name = CallName { from: serial, number: call.number };
        self.world.send_call(name, begun.at, call.endpoint, call.message);
        true
    }

    /// Everything under way arrives that is not held up.
    pub(super) fn carry(&mut self) -> Verdict {
        let now = self.world.time;
        let (due, held) = std::mem::take(&mut self.held).into_iter().partition(|(until, _)| *until <= now);
        self.held = held;
        let due: Vec<(Micros, Packet)> = due;
        for (_, packet) in due {
            self.arrive(packet)?;
        }
        while let Some(packet) = self.world.network.take_first() {
            match self.held_until(&packet) {
                Some(Micros::MAX) => self.world.trace.say(|| "never arrives".to_owned()),
                Some(until) => self.held.push((until, packet)),
                None => self.arrive(packet)?,
            }
        }
        Ok(())
    }

    fn held_until(&self, packet: &Packet) -> Option<Micros> {
        let (name, holder, is_answer) = match packet {
            Packet::Call { name, holder, .. } | Packet::HangUp { name, holder } => {
                (name, Some(*holder), false)
            }
            Packet::Answer { name, .. } => (name, None, true),
        };
        let call = self.lines.get(&name.from).and_then(|line| line.calls.get(&name.number));
        let holder = holder.or(call.map(|call| call.begun.at));
        if let Some(trouble) = self.trouble.as_ref().filter(|trouble| Some(trouble.holder) == holder) {
            let holds = match trouble.what {
                What::Frozen | What::CallsCut => !is_answer,
                What::AnswersCut => is_answer,
            };
            if holds {
                return Some(trouble.until);
            }
        }
        match (call?.hang?, is_answer) {
            (Hang::NeverArrives, false) | (Hang::AnswerLost, true) => Some(Micros::MAX),
            (Hang::ArrivesLate(late), false) | (Hang::AnswerLate(late), true) => Some(self.world.time + late),
            _ => None,
        }
    }

    fn arrive(&mut self, packet: Packet) -> Verdict {
        if let Packet::Answer { name, .. } = &packet
            && let Some(line) = self.lines.get_mut(&name.from)
            && let Some(call) = line.calls.remove(&name.number)
        {
            line.addresses.end(call.begun.call, Ended::Answered, millis(self.world.time));
        }
        self.world.step += 1;
        self.world.deliver(packet)
    }

    /// The transport ends calls where nothing lives; the client forgets those that it has given up.
    pub(super) fn end_silent_calls(&mut self) {
        let now = self.world.time;
        let trouble = self.trouble.as_ref().map(|trouble| (trouble.holder, trouble.since));
        for process in &mut self.world.processes {
            let Some(line) = self.lines.get_mut(&process.serial) else { continue };
            let in_trouble = |at: usize| trouble.is_some_and(|(holder, _)| holder == at);
            for (_, at) in line.probes.extract_if(.., |(until, _)| *until <= now) {
                if in_trouble(at) {
                    line.addresses.is_silent(at, millis(now));
                } else {
                    line.addresses.lives(at, millis(now));
                }
            }
            let wanted = process.under_way();
            let silent_since = |call: &Open| match trouble {
                Some((holder, since)) if holder == call.begun.at => Some(since.max(call.sent_at)),
                _ => call.hang.map(|_| call.sent_at),
            };
            let over = |call: &Open| {
                silent_since(call).is_some_and(|since| now - since >= SIGN_OF_LIFE)
                    || (call.kind == Kind::Sync && now - call.sent_at >= SYNC_TIMEOUT)
            };
            for (number, call) in
                line.calls.extract_if(.., |number, call| over(call) || !wanted.contains(number))
            {
                let ended = if wanted.contains(&number) { Ended::Failed } else { Ended::GivenUp };
                line.addresses.end(call.begun.call, ended, millis(now));
                process.give_up(number, 100);
            }
        }
    }

    /// A runtime ends, and with it the task that speaks for a process, and its calls.
    pub(super) fn runtime_ends(&mut self) {
        let Some(at) = self.world.any_process() else { return };
        let process = &mut self.world.processes[at];
        let Some(line) = self.lines.get_mut(&process.serial) else { return };
        line.stopped_at = Some(self.world.time);
        process.under_way().into_iter().for_each(|number| process.give_up(number, 0));
        self.world.count("a runtime ends");
    }

    /// Whoever uses the client has a task that speaks again.
    pub(super) fn applications_go_on(&mut self) {
        if self.world.plant == Some(Plant::FlagOfDeadDriver) {
            return;
        }
        let now = self.world.time;
        for line in self.lines.values_mut() {
            line.stopped_at.take_if(|since| now - *since >= GOES_ON_AFTER);
        }
    }
}

fn millis(at: Micros) -> u64 {
    u64::try_from(at / 1000).unwrap_or(0)
}
