//! A client of another make: it claims one permit at a time, so that deadlines find grants that are claimed in part,
//! and claims that come too late. (The ledger claims every grant whole.) Written from the protocol, and as true to it.

use super::GROUPS;
use crate::random::Random;
use queue_client::wire::{Demand, GrantReport, GrantVerdict, Message, Reply, Status};
use std::collections::BTreeMap;

/// Most items that wait.
const WAITING_MAX: u64 = 4;

pub(super) struct Other {
    pub(super) serial: u32,
    name: String,
    blocks: BTreeMap<String, Marks>,
    /// Items that wait, by group.
    waiting: BTreeMap<&'static str, u64>,
    seen: u64,
    calls: u64,
}

/// What it knows of one grant.
#[derive(Debug, Clone)]
struct Marks {
    group: String,
    permits: u64,
    /// Claims that were ever sent, and those that a reply has confirmed.
    claimed: u64,
    confirmed: u64,
    /// Of the claims, how many are given back.
    released: u64,
    running: u64,
}

impl Marks {
    /// Confirmed permits that nobody uses; all that was ever given back is held against them.
    fn spare(&self) -> u64 {
        self.confirmed.saturating_sub(self.released + self.running)
    }

    /// Claims without an item.
    fn idle(&self) -> u64 {
        self.claimed - self.released - self.running
    }

    fn hear(&mut self, verdict: &GrantVerdict) {
        let honoured = verdict.claimed.unwrap_or(0).min(self.claimed);
        if verdict.status == Status::Expired && self.permits > 0 {
            let spare = honoured.saturating_sub(self.released + self.running).min(self.idle());
            self.released = self.claimed - self.running - spare;
            (self.confirmed, self.permits) = (self.claimed, 0);
        } else if self.permits > 0 {
            self.confirmed = self.confirmed.max(honoured);
        }
    }
}

impl Other {
    pub(super) fn new(serial: u32) -> Self {
        let name = format!("other-{serial}");
        Self { serial, name, blocks: BTreeMap::new(), waiting: BTreeMap::new(), seen: 0, calls: 0 }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn wants(&mut self, random: &mut Random) {
        let group = random.index(GROUPS.len()).map_or("", |at| GROUPS[at]);
        let waiting = self.waiting.entry(group).or_default();
        *waiting = (*waiting + 1).min(WAITING_MAX);
    }

    /// An item waits no longer; a claim that was meant for it is given back, confirmed or not.
    pub(super) fn cancels(&mut self, random: &mut Random) {
        let group = random.index(GROUPS.len()).map_or("", |at| GROUPS[at]);
        let waiting = self.waiting.entry(group).or_default();
        *waiting = waiting.saturating_sub(1);
        let idle = self.blocks.values_mut().find(|marks| marks.group == group && marks.idle() > *waiting);
        if let Some(marks) = idle {
            marks.released += 1;
        }
    }

    /// Items start on what is confirmed; says of which blocks.
    pub(super) fn start(&mut self) -> Vec<String> {
        let mut started = Vec::new();
        for (id, marks) in &mut self.blocks {
            let Some(waiting) = self.waiting.get_mut(marks.group.as_str()) else { continue };
            while *waiting > 0 && marks.spare() > 0 {
                *waiting -= 1;
                marks.running += 1;
                started.push(id.clone());
            }
        }
        started
    }

    /// An item ends; says on which block.
    pub(super) fn end(&mut self, random: &mut Random) -> Option<String> {
        let running: Vec<_> = self.blocks.iter().filter(|(_, marks)| marks.running > 0).collect();
        let id = running.get(random.index(running.len())?)?.0.clone();
        let marks = self.blocks.get_mut(&id)?;
        marks.running -= 1;
        marks.released += 1;
        Some(id)
    }

    /// A message that claims one more permit of each grant, where items wait for it.
    pub(super) fn says(&mut self, demands: bool) -> Message {
        self.calls += 1;
        let mut message = Message::new(self.name.as_str());
        message.process = Some(self.name.clone());
        message.call = Some(self.calls);
        message.seen = self.seen;
        let mut covered = BTreeMap::<&str, u64>::new();
        for (id, marks) in &mut self.blocks {
            let waiting = self.waiting.get(marks.group.as_str()).copied().unwrap_or(0);
            if marks.claimed < marks.permits && marks.idle() < waiting {
                marks.claimed += 1;
            }
            let open = marks.permits.saturating_sub(marks.claimed);
            *covered.entry(&marks.group).or_default() += open + marks.idle();
            let (claimed, released) = (marks.claimed, marks.released);
            message.grants.get_or_insert_default().push(GrantReport { id: id.clone(), claimed, released });
        }
        for (group, waiting) in self.waiting.iter().filter(|_| demands) {
            let count = waiting.saturating_sub(covered.get(group).copied().unwrap_or(0));
            message.demand.push(Demand { group: (*group).to_owned(), count, oldest_age_ms: 1_000 });
        }
        message
    }

    pub(super) fn hear(&mut self, reply: &Reply) {
        for verdict in &reply.grants {
            let gone = matches!(verdict.status, Status::Settled | Status::NotFound);
            if gone {
                self.blocks.remove(&verdict.id);
            } else if let Some(marks) = self.blocks.get_mut(&verdict.id) {
                marks.hear(verdict);
            } else if verdict.round.is_some_and(|round| round > self.seen) {
                let claimed = verdict.claimed.unwrap_or(0);
                let new = Marks {
                    group: verdict.group.clone().unwrap_or_default(),
                    permits: verdict.permits.unwrap_or(0),
                    claimed,
                    confirmed: claimed,
                    released: verdict.released.unwrap_or(0),
                    running: 0,
                };
                self.blocks.insert(verdict.id.clone(), new);
            }
        }
        self.seen = self.seen.max(reply.round);
    }

    /// It wants nothing more and gives back what it does not use.
    pub(super) fn winds_up(&mut self) {
        self.waiting.clear();
        for marks in self.blocks.values_mut() {
            marks.released = marks.claimed - marks.running;
        }
    }

    pub(super) fn knows(&self, client: &str, block: &str) -> bool {
        self.name == client && self.blocks.contains_key(block)
    }

    pub(super) fn has_nothing(&self) -> bool {
        self.blocks.is_empty()
    }
}
