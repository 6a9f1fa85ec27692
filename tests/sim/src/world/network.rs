//! What is under way between processes and holders: any of it may arrive late, twice, in another order, or never.

use crate::random::Random;
use queue_client::Endpoint;
use queue_client::wire::{Message, Reply};
use std::rc::Rc;

/// More than this is never under way; what is too much is lost.
const UNDER_WAY_MAX: usize = 24;
/// Packets that come again when everybody has forgotten them.
const LATE_MAX: usize = 12;

/// One call of one process, as everybody refers to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallName {
    /// The process, by the number it has in this world.
    pub(crate) from: u32,
    /// The call's number in it.
    pub(crate) number: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum Packet {
    Call { name: CallName, holder: usize, endpoint: Endpoint, message: Rc<Message> },
    HangUp { name: CallName, holder: usize },
    Answer { name: CallName, answer: Result<Rc<Reply>, Refusal> },
}

/// An answer that is not a 200.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// 400.
    Invalid,
    /// 404 `semaphore_not_found`.
    NotFound,
    /// 409 `superseded`.
    Superseded,
    /// 409 `client_fenced`, with the lowest generation admitted.
    Fenced(u64),
    /// 503, or a connection that broke.
    Unavailable,
}

#[derive(Debug, Default)]
pub(crate) struct Network {
    packets: Vec<Packet>,
    late: Vec<Packet>,
}

impl Network {
    /// Sends a packet; says what was lost for it.
    pub(crate) fn send(&mut self, packet: Packet, random: &mut Random) -> Option<Packet> {
        self.packets.push(packet);
        let excess = self.packets.len() > UNDER_WAY_MAX;
        random.index(self.packets.len()).filter(|_| excess).map(|at| self.packets.remove(at))
    }

    pub(crate) fn any(&self, random: &mut Random) -> Option<usize> {
        random.index(self.packets.len())
    }

    pub(crate) fn get(&self, at: usize) -> Option<&Packet> {
        self.packets.get(at)
    }

    pub(crate) fn take(&mut self, at: usize) -> Packet {
        self.packets.remove(at)
    }

    /// A packet will come again, some day.
    pub(crate) fn keep_for_later(&mut self, packet: Packet, random: &mut Random) {
        match random.index(LATE_MAX).filter(|_| self.late.len() >= LATE_MAX) {
            Some(at) => self.late[at] = packet,
            None => self.late.push(packet),
        }
    }

    /// One of those.
    pub(crate) fn late(&self, random: &mut Random) -> Option<Packet> {
        self.late.get(random.index(self.late.len())?).cloned()
    }

    pub(crate) fn lose_all(&mut self) {
        self.packets.clear();
        self.late.clear();
    }

    /// The packet that was sent first.
    pub(crate) fn take_first(&mut self) -> Option<Packet> {
        (!self.packets.is_empty()).then(|| self.packets.remove(0))
    }
}

/// One line for people.
pub(crate) fn told(packet: &Packet) -> String {
    match packet {
        Packet::Call { name, holder, endpoint, message } => {
            let demand = message.demand.iter().map(|demand| {
                format!(" wants {} of '{}' for {}ms", demand.count, demand.group, demand.oldest_age_ms)
            });
            let reports = message.grants.iter().flatten();
            let reports = reports.map(|report| {
                format!(" {} claimed {} released {}", report.id, report.claimed, report.released)
            });
            let leases = message.leases.iter().flatten().map(|report| {
                let stopped = if report.stopped { " stopped" } else { "" };
                format!(" {} drawn {} released {}{stopped}", report.id, report.drawn, report.released)
            });
            let said: String = demand.chain(reports).chain(leases).collect();
            let from = &message.client_id;
            let parked = if message.wait_ms > 0 { " parked" } else { "" };
            let seen = message.seen;
            let all = if message.all { " all" } else { "" };
            let generation = message.generation;
            format!(
                "{from} of {generation} -> holder {holder}: {endpoint}{parked}{all} {} seen {seen}{said}",
                name.number
            )
        }
        Packet::HangUp { name, holder } => {
            format!("process {} -> holder {holder}: hangs up {}", name.from, name.number)
        }
        Packet::Answer { name, answer: Err(refusal) } => {
            format!("-> process {}: call {} {refusal:?}", name.from, name.number)
        }
        Packet::Answer { name, answer: Ok(reply) } => {
            let verdicts: String = reply.grants.iter().map(verdict).collect();
            let blocked: String = reply
                .blocked
                .iter()
                .map(|b| format!(" lacks {} of '{}': {:?}", b.count, b.group, b.reason))
                .collect();
            let leases: String = reply.leases.iter().map(lease_verdict).collect();
            let contended = if reply.contended { " contended" } else { "" };
            let groups: String =
                reply.contended_groups.iter().map(|group| format!(" contended '{group}'")).collect();
            let (from, number, round) = (name.from, name.number, reply.round);
            format!(
                "-> process {from}: call {number} round {round}{verdicts}{leases}{blocked}{contended}{groups}"
            )
        }
    }
}

fn lease_verdict(verdict: &queue_client::wire::LeaseVerdict) -> String {
    let counts = verdict.permits.map(|permits| {
        let (drawn, released) = (verdict.drawn.unwrap_or(0), verdict.released.unwrap_or(0));
        format!(" {permits}/{drawn}/{released} for {}ms", verdict.ttl_ms.unwrap_or(0))
    });
    format!(" lease {} {:?}{}", verdict.id, verdict.status, counts.unwrap_or_default())
}

fn verdict(verdict: &queue_client::wire::GrantVerdict) -> String {
    let counts = verdict.permits.map(|permits| {
        let (claimed, released) = (verdict.claimed.unwrap_or(0), verdict.released.unwrap_or(0));
        format!(" {permits}/{claimed}/{released}")
    });
    format!(" {} {:?}{}", verdict.id, verdict.status, counts.unwrap_or_default())
}
