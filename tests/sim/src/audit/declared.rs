//! Who speaks for a client, who is declared dead, and what comes back by that: the exception from P2, and P4's notes.

use super::budget::footprint;
use super::{Audit, Committed, Told, Verdict, violated};
use crate::store::Rows;
use crate::world::network::Refusal;
use pgsemaphore_allocation::{Act, Block, ClientId, DbTime, Kind, Permits, Status};
use queue_client::wire::Message;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(super) struct Declarations {
    speakers: BTreeMap<String, Speaker>,
    processes: BTreeMap<u32, Started>,
    /// Processes that were declared dead, and those that have heard of it.
    dead: BTreeSet<u32>,
    shut_out: BTreeSet<u32>,
    /// When a client was last heard, and moments until which holders were away.
    heard_at: BTreeMap<String, DbTime>,
    unheard_at: BTreeSet<DbTime>,
    /// Every process lives and speaks in time.
    everybody_lives: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Speaker {
    generation: u64,
    process: Option<String>,
    /// Lower generations are not heard.
    lowest: u64,
}

#[derive(Debug)]
struct Started {
    client: String,
    /// What it said last; `None` before its first message.
    generation: Option<u64>,
}

impl Declarations {
    pub(super) fn says(&mut self, from: u32, message: &Message) {
        if let Some(process) = self.processes.get_mut(&from) {
            process.generation = Some(message.generation);
        }
    }

    pub(super) fn is_dead(&self, process: u32) -> bool {
        self.dead.contains(&process)
    }

    /// An older copy knows who spoke then.
    pub(super) fn restored(&mut self, rows: &Rows) {
        self.speakers.clear();
        for (id, client) in &rows.clients {
            let Some(own) = &client.incarnation else { continue };
            let (generation, process) = (own.generation, own.process.clone());
            let speaker = Speaker { generation, process, lowest: client.lowest_generation };
            self.speakers.insert(id.as_str().to_owned(), speaker);
        }
    }

    /// Processes of a client that said a generation below `lowest`.
    fn below(&self, client: &str, lowest: u64) -> Vec<u32> {
        let below = |started: &Started| started.generation.is_some_and(|generation| generation < lowest);
        let own = self.processes.iter().filter(|(_, started)| started.client == client && below(started));
        own.map(|(serial, _)| *serial).collect()
    }
}

impl Audit {
    pub(crate) fn starts(&mut self, process: u32, client: &str) {
        let started = Started { client: client.to_owned(), generation: None };
        self.declarations.processes.insert(process, started);
    }

    /// Nobody may be declared dead by silence.
    pub(crate) fn everybody_lives(&mut self) {
        self.declarations.everybody_lives = true;
    }

    /// A process hears that others speak for its client.
    pub(crate) fn shut_out(&mut self, process: u32) {
        self.die(&[process]);
        self.declarations.shut_out.insert(process);
    }

    pub(crate) fn is_shut_out(&self, process: u32) -> bool {
        self.declarations.shut_out.contains(&process)
    }

    /// Holders keep calls of these clients open, so they hear them.
    pub(crate) fn open_calls(&mut self, clients: &BTreeSet<ClientId>, now: DbTime) {
        let heard = clients.iter().map(|client| (client.as_str().to_owned(), now));
        self.declarations.heard_at.extend(heard);
    }

    /// Holders were away, up to this moment. What seems later is of before the clock was set back.
    pub(crate) fn nobody_listens(&mut self, now: DbTime) {
        self.declarations.unheard_at.retain(|at| *at < now);
        self.declarations.unheard_at.insert(now);
    }

    /// Whatever these still use is not judged.
    fn die(&mut self, processes: &[u32]) {
        for by in self.held.values_mut() {
            by.retain(|process, _| !processes.contains(process));
        }
        self.held.retain(|_, by| !by.is_empty());
        self.declarations.dead.extend(processes);
    }

    pub(super) fn who_is_declared_dead_is_so(
        &mut self,
        committed: &Committed,
        before: &Rows,
        after: &Rows,
    ) -> Verdict {
        for entry in committed.declared.iter().filter(|entry| entry.act == Act::SettleSilent) {
            self.was_silent(committed, entry.client.as_str(), before)?;
        }
        let clients: BTreeSet<&str> =
            committed.calls.iter().map(|call| call.message.client_id.as_str()).collect();
        for client in clients {
            let own = committed.calls.iter().filter(|call| call.message.client_id == client);
            self.one_process_is_heard(committed, client, own, before, after)?;
        }
        is_noted(committed, before, after)
    }

    /// A client is declared dead that nobody has heard for as long as the policy says, though somebody listened.
    fn was_silent(&mut self, committed: &Committed, client: &str, before: &Rows) -> Verdict {
        let after = committed.limits.and_then(|limits| limits.policy.settle_after);
        let heard = self.declarations.heard_at.get(client).copied();
        // A transaction that was frozen knows nothing of what was since it read.
        let unheard = self.declarations.unheard_at.range(..=committed.now).next_back().copied();
        let since = heard.max(unheard);
        if self.declarations.everybody_lives {
            return violated("P2", format!("{client} lives and is declared dead, heard {heard:?}"));
        }
        let silent = after.zip(since).is_some_and(|(after, since)| committed.now - since >= after);
        let speaks = committed.calls.iter().any(|call| call.message.client_id == client && call.is_heard());
        if !silent || speaks {
            return violated("P2", format!("{client} is declared dead, and was heard {heard:?}, {since:?}"));
        }
        if let Some(speaker) = self.declarations.speakers.get_mut(client) {
            speaker.lowest = speaker.lowest.max(speaker.generation + 1);
            let dead = self.declarations.below(client, self.declarations.speakers[client].lowest);
            self.die(&dead);
        }
        self.excuse_successors(client, before);
        Ok(())
    }

    /// A successor that was not heard yet has what it was to go on with.
    fn excuse_successors(&mut self, client: &str, before: &Rows) {
        let own = before.blocks.values().filter(|block| block.client.as_str() == client);
        for id in own.map(|block| block.id.to_string()) {
            let held = self.held_of(&id);
            let excused = self.excused.entry(id).or_default();
            *excused = held.max(*excused);
        }
    }

    /// All calls that are heard are of one process: the one that spoke before, or one of a higher generation.
    fn one_process_is_heard<'a>(
        &mut self,
        committed: &Committed,
        client: &str,
        calls: impl Iterator<Item = &'a Told<'a>> + Clone,
        before: &Rows,
        after: &Rows,
    ) -> Verdict {
        let old = self.declarations.speakers.get(client).cloned();
        let mut speaker = old.clone();
        for message in calls.clone().filter(|call| call.is_heard()).map(|call| call.message) {
            let says = (message.generation, &message.process);
            let same = speaker.as_ref().is_some_and(|own| says == (own.generation, &own.process));
            let lowest = speaker.as_ref().map_or(0, |own| own.lowest);
            let higher = speaker.as_ref().is_none_or(|own| own.generation < message.generation);
            let second = speaker != old;
            if message.generation < lowest || !(same || (higher && !second)) {
                return violated("P2", format!("{says:?} of {client} is heard, {speaker:?} speaks"));
            }
            if !same {
                let (generation, process) = (message.generation, message.process.clone());
                let lowest = if old.is_some() { generation } else { lowest };
                speaker = Some(Speaker { generation, process, lowest });
            }
            self.declarations.heard_at.insert(client.to_owned(), committed.now);
        }
        let Some(speaker) = speaker else { return Ok(()) };
        let shut_out = |call: &&Told| matches!(call.refusal, Some(Refusal::Fenced(_)));
        for message in calls.clone().filter(shut_out).map(|call| call.message) {
            let is_speaker = (message.generation, &message.process) == (speaker.generation, &speaker.process);
            if is_speaker && message.generation >= speaker.lowest {
                return violated("P4", format!("{client} is shut out, and speaks: {speaker:?}"));
            }
        }
        let (generation, changed) = (speaker.generation, old.as_ref() != Some(&speaker));
        self.declarations.speakers.insert(client.to_owned(), speaker);
        if old.is_none() || !changed {
            return Ok(());
        }
        let resumes = calls.clone().find(|call| call.message.generation == generation);
        let resumes = resumes.is_some_and(|call| call.message.resume);
        self.takes_over(client, generation, resumes, before, after)
    }

    /// With `resume` leases are drawn from by nobody, without it nothing is left.
    fn takes_over(
        &mut self,
        client: &str,
        generation: u64,
        resumes: bool,
        before: &Rows,
        after: &Rows,
    ) -> Verdict {
        let dead = self.declarations.below(client, generation);
        self.die(&dead);
        if !resumes {
            self.excuse_successors(client, before);
        }
        for old in before.blocks.values().filter(|block| block.client.as_str() == client) {
            let new = after.blocks.get(&old.id.slot).filter(|new| new.id == old.id);
            if let Some(new) = new.filter(|_| !resumes) {
                return violated("P4", format!("{client} took over without {new:?}, which still counts"));
            }
            if old.kind == Kind::Lease {
                self.ended.insert((client.to_owned(), old.id.to_string()));
            }
            let live = |new: &&Block| new.kind == Kind::Lease && new.status == Status::Active;
            if let Some(new) = new.filter(live) {
                return violated("P2", format!("{client} took over, and {new:?} is live"));
            }
        }
        Ok(())
    }
}

/// Whether a block may come back without its owner's word.
pub(super) fn is_written_off(committed: &Committed, old: &Block) -> bool {
    let mut declared = committed.declared.iter().filter(|entry| entry.client == old.client);
    declared.any(|entry| match entry.act {
        Act::Takeover { resume } => !resume,
        Act::SettleSilent => true,
        Act::UnknownToClient => {
            let own = committed.calls.iter().filter(|call| call.message.client_id == old.client.as_str());
            own.filter(|call| call.is_heard() && !call.applied).any(|call| leaves_out(call.message, old))
        }
    })
}

/// Whether a lease changes hands.
pub(super) fn is_resumed(committed: &Committed, lease: &Block) -> bool {
    let resumed = Act::Takeover { resume: true };
    committed.declared.iter().any(|entry| entry.client == lease.client && entry.act == resumed)
}

/// Whether a message says all that its client has, without this block of a round that it has heard of.
fn leaves_out(message: &Message, block: &Block) -> bool {
    message.all && block.id.round <= message.seen && !names(message, block)
}

fn names(message: &Message, block: &Block) -> bool {
    let id = block.id.to_string();
    let grants = message.grants.iter().flatten().map(|report| &report.id);
    let mut named = grants.chain(message.leases.iter().flatten().map(|report| &report.id));
    named.any(|named| *named == id)
}

/// What is noted is what came back, or changed hands.
fn is_noted(committed: &Committed, before: &Rows, after: &Rows) -> Verdict {
    for entry in committed.declared {
        let own = before.blocks.values().filter(|block| block.client == entry.client);
        let gone = |block: &&Block| after.blocks.get(&block.id.slot).is_none_or(|new| new.id != block.id);
        let calls: Vec<&Message> = committed
            .calls
            .iter()
            .filter(|call| call.message.client_id == entry.client.as_str() && call.is_heard())
            .map(|call| call.message)
            .collect();
        let concerned: Permits = match entry.act {
            Act::Takeover { .. } | Act::SettleSilent => own.map(footprint).sum(),
            Act::UnknownToClient => {
                let left_out = |block: &&Block| calls.iter().any(|message| leaves_out(message, block));
                own.filter(gone).filter(left_out).map(footprint).sum()
            }
        };
        let noted = entry.grants + entry.leases;
        // Another message of the same client may have reported some of it before.
        let less = entry.act == Act::UnknownToClient && calls.len() > 1 && noted <= concerned;
        if noted != concerned && !less {
            return violated("P4", format!("{entry:?}, and {concerned} permits were concerned"));
        }
    }
    Ok(())
}
