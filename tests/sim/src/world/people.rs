//! What applications and operators do.

use super::network::CallName;
use super::process::Process;
use super::{GROUPS, World};
use crate::audit::{Verdict, Violation};
use crate::plant::Plant;
use crate::random::Random;
use pgsemaphore_allocation::{Block, ClientId, Extra, Kind, Micros, Policy, Provisioning};
use queue_client::Endpoint;
use queue_client::wire::{Demand, GrantReport, LeaseReport, Message};

/// Most items that wait in one process.
const WAITING_MAX: usize = 5;
/// Nobody's number: answers to it are not heard.
const NOBODY: u32 = u32::MAX;

impl World {
    pub(super) fn queue(&mut self) -> Result<bool, Violation> {
        let group = self.any_group();
        let Some(at) = self.any_process() else { return Ok(false) };
        let process = &mut self.processes[at];
        if process.waiting.len() >= WAITING_MAX || process.shut_out.is_some() {
            return Ok(false);
        }
        let now = process.now_ms();
        let waiter = process.ledger.enqueue(group.as_str(), now);
        process.waiting.push(waiter);
        let name = process.name.clone();
        self.trace.say(|| format!("{name}: an item of '{group}' waits"));
        self.hand_out(at)?;
        Ok(true)
    }

    pub(super) fn cancel(&mut self) -> bool {
        let Some(at) = self.any_process() else { return false };
        let process = &mut self.processes[at];
        let Some(which) = self.random.index(process.waiting.len()) else { return false };
        let waiter = process.waiting.remove(which);
        process.ledger.cancel(&waiter);
        let name = process.name.clone();
        self.trace.say(|| format!("{name}: an item waits no longer"));
        true
    }

    /// The ledger's permits become the application's.
    pub(super) fn hand_out(&mut self, at: usize) -> Verdict {
        for block in self.processes[at].served() {
            let Process { serial, name, .. } = &self.processes[at];
            self.trace.say(|| format!("{name}: has a permit of {}", block.as_str()));
            self.audit.takes(*serial, name, block.as_str())?;
        }
        Ok(())
    }

    /// An item that does not wait takes a spare permit, wherever there is one.
    pub(super) fn draw_spare(&mut self) -> Result<bool, Violation> {
        let count = self.processes.len();
        let Some(first) = self.random.index(count) else { return Ok(false) };
        let places = (first..first + count).flat_map(|at| GROUPS.map(|group| (at % count, group)));
        for (at, group) in places {
            let process = &mut self.processes[at];
            if process.frozen {
                continue;
            }
            let Some(block) = process.ledger.try_draw(group) else { continue };
            process.items.push(super::process::Item { block: block.clone(), started: true, detached: None });
            let Process { serial, name, .. } = &self.processes[at];
            self.trace.say(|| format!("{name}: draws a spare permit of {}", block.as_str()));
            self.audit.takes(*serial, name, block.as_str())?;
            return Ok(true);
        }
        Ok(false)
    }

    pub(super) fn start_item(&mut self) -> bool {
        let Some(at) = self.any_process() else { return false };
        let fresh = self.processes[at].items.iter_mut().find(|item| !item.started);
        fresh.map(|item| item.started = true).is_some()
    }

    pub(super) fn end_item(&mut self) -> bool {
        let Some(at) = self.any_process() else { return false };
        let Some(which) = self.random.index(self.processes[at].items.len()) else { return false };
        self.release(at, which);
        true
    }

    pub(super) fn release(&mut self, at: usize, which: usize) {
        let process = &mut self.processes[at];
        let item = process.items.remove(which);
        process.release(&item);
        let serial = process.serial;
        if self.plant != Some(Plant::DrawsTwice) || !self.audit.is_lease(item.block.as_str()) {
            self.audit.lets_go(serial, item.block.as_str(), false);
        }
        let name = self.processes[at].name.clone();
        self.trace.say(|| format!("{name}: an item on {} ends", item.block.as_str()));
    }

    /// A permit whose item was cancelled just then goes to another.
    pub(super) fn put_back(&mut self) -> Result<bool, Violation> {
        let Some(at) = self.any_process() else { return Ok(false) };
        let process = &mut self.processes[at];
        let Some(which) = process.items.iter().position(|item| !item.started) else { return Ok(false) };
        let item = process.items.remove(which);
        process.ledger.put_back(&item.block);
        let serial = process.serial;
        self.audit.lets_go(serial, item.block.as_str(), true);
        let name = self.processes[at].name.clone();
        self.trace.say(|| format!("{name}: a permit of {} is not needed", item.block.as_str()));
        self.hand_out(at)?;
        Ok(true)
    }

    pub(super) fn give_up(&mut self) -> bool {
        let pause = self.random.below(2_000);
        let Some(at) = self.any_process() else { return false };
        let under_way = self.processes[at].under_way();
        let Some(which) = self.random.index(under_way.len()) else { return false };
        let number = under_way[which];
        self.processes[at].give_up(number, pause);
        let (from, name) = (self.processes[at].serial, self.processes[at].name.clone());
        self.trace.say(|| format!("{name}: gives up call {number}"));
        for holder in 0..self.holders.len() {
            self.send(super::network::Packet::HangUp { name: CallName { from, number }, holder });
        }
        true
    }

    /// The policy changes, or goes, or comes back.
    pub(super) fn change_limits(&mut self) {
        let policy = &mut self.limits.policy;
        match self.random.below(30) {
            28.. => {
                let settles = policy.settle_after.is_some() && self.random.percent(90);
                policy.settle_after = settles.then(|| patience(&mut self.random));
            }
            20..23 => provision(policy, &mut self.random),
            23 => policy.permits_per_lease = self.random.between(1, 5),
            24..26 => policy.lease_ttl = self.random.between(1, 20_000) * 1000,
            26..28 => policy.leases_within_group_limit = self.random.percent(50),
            0 => policy.limit = None,
            1 => policy.limit = Some(0),
            2..5 => policy.grant_timeout = self.random.between(1, 15_000) * 1000,
            5..9 => {
                let group = self.any_group();
                let limit = self.random.between(0, 3);
                self.limits.groups.insert(group, limit);
            }
            9..12 => self.limits.groups.clear(),
            _ => policy.limit = Some(self.random.between(1, 6)),
        }
        let limits = (!self.random.percent(3)).then(|| self.limits.clone());
        self.trace.say(|| format!("limits: {limits:?}"));
        self.store.set_limits(&self.key, limits);
    }

    /// A client of another make says anything, also of others' blocks.
    pub(super) fn stranger(&mut self) -> bool {
        let mut message = Message::new("stranger");
        let blocks: Vec<Block> = self.rows().blocks.into_values().collect();
        let honest = self.random.percent(60);
        for block in &blocks {
            let own = block.client.as_str() == message.client_id;
            if own && honest {
                say_whole(&mut message, block);
            } else if !honest && self.random.percent(40) {
                let (used, released) = (self.random.below(6), self.random.below(6));
                let id = block.id.to_string();
                if self.random.percent(50) {
                    let stopped = self.random.percent(30);
                    let report = LeaseReport { id, drawn: used, released, stopped };
                    message.leases.get_or_insert_default().push(report);
                } else {
                    let report = GrantReport { id, claimed: used, released };
                    message.grants.get_or_insert_default().push(report);
                }
            }
        }
        let wants = self.random.percent(40);
        if wants {
            if self.random.percent(50) {
                message.leases.get_or_insert_default();
            }
            let group = self.random.index(GROUPS.len()).map_or("", |at| GROUPS[at]).to_owned();
            let (count, oldest_age_ms) = (self.random.below(4), self.random.below(5_000));
            message.demand.push(Demand { group, count, oldest_age_ms });
        }
        self.forge_seen(&mut message);
        let endpoint = if wants { Endpoint::Request } else { Endpoint::Sync };
        self.nobody_says(endpoint, message);
        true
    }

    /// It says that it has seen rounds that never were. After a restore a number of a round could come again then.
    fn forge_seen(&mut self, message: &mut Message) {
        if self.restores || !self.random.percent(20) {
            return;
        }
        let ahead = self.random.between(0, 30 * 3600) * 1_000_000;
        let from = if self.random.percent(50) { self.clock.now } else { self.round() };
        message.seen = u64::try_from(from + ahead).unwrap_or(0);
        self.count("a round is forged");
    }

    fn round(&self) -> Micros {
        i64::try_from(self.rows().semaphore.round).unwrap_or(0)
    }

    /// Somebody who knows that a process is dead gives back what it had.
    pub(super) fn bury_the_dead(&mut self) -> bool {
        let Some(at) = self.random.index(self.dead.len()) else { return false };
        let message = self.epitaph(&self.dead[at]);
        if message.is_none() || self.limits.policy.settle_after.is_some() {
            return false;
        }
        message.into_iter().for_each(|message| self.nobody_says(Endpoint::Sync, message));
        true
    }

    /// Takes over in the name of one that is dead, if it has anything.
    pub(super) fn epitaph(&self, name: &str) -> Option<Message> {
        let rows = self.rows();
        rows.blocks.values().find(|block| block.client.as_str() == name)?;
        let mut message = Message::new(name);
        message.generation = rows.clients.get(&ClientId::new(name))?.lowest_admitted();
        message.process = Some("undertaker".to_owned());
        Some(message)
    }

    fn nobody_says(&mut self, endpoint: Endpoint, message: Message) {
        let holder = self.any_address();
        self.send_call(CallName { from: NOBODY, number: 0 }, holder, endpoint, message);
    }

    /// A client of another make does something.
    pub(super) fn other(&mut self) -> Result<bool, Violation> {
        let Some(at) = self.random.index(self.others.len()) else { return Ok(false) };
        let other = &mut self.others[at];
        match self.random.below(8) {
            0 => other.wants(&mut self.random),
            1 if self.random.percent(30) => other.cancels(&mut self.random),
            2 | 3 => self.other_ends(at),
            what => self.other_speaks(at, what > 5),
        }
        self.other_starts(at)?;
        Ok(true)
    }

    pub(super) fn other_speaks(&mut self, at: usize, demands: bool) {
        let message = self.others[at].says(demands);
        let endpoint = if demands { Endpoint::Request } else { Endpoint::Sync };
        let name = CallName { from: self.others[at].serial, number: message.call.unwrap_or(0) };
        let holder = self.any_address();
        self.send_call(name, holder, endpoint, message);
    }

    pub(super) fn other_ends(&mut self, at: usize) {
        if let Some(block) = self.others[at].end(&mut self.random) {
            self.trace.say(|| format!("another: an item on {block} ends"));
            let serial = self.others[at].serial;
            self.audit.lets_go(serial, &block, false);
        }
    }

    pub(super) fn other_starts(&mut self, at: usize) -> Verdict {
        for block in self.others[at].start() {
            self.trace.say(|| format!("another: an item starts on {block}"));
            let serial = self.others[at].serial;
            self.audit.takes(serial, "", &block)?;
        }
        Ok(())
    }
}

/// After how long a silent client is dead.
pub(super) fn patience(random: &mut Random) -> Micros {
    random.between(5_000, 30_000) * 1000
}

/// Everything of a block is claimed and released.
pub(super) fn whole(block: &Block) -> GrantReport {
    let permits = u64::try_from(block.permits).unwrap_or(0);
    GrantReport { id: block.id.to_string(), claimed: permits, released: permits }
}

/// Everything of a lease came back.
pub(super) fn whole_lease(block: &Block) -> LeaseReport {
    let permits = u64::try_from(block.permits).unwrap_or(0);
    LeaseReport { id: block.id.to_string(), drawn: permits, released: permits, stopped: true }
}

fn say_whole(message: &mut Message, block: &Block) {
    match block.kind {
        Kind::Grant => message.grants.get_or_insert_default().push(whole(block)),
        Kind::Lease => message.leases.get_or_insert_default().push(whole_lease(block)),
    }
}

/// Any mode of leases, and what goes with it.
pub(super) fn provision(policy: &mut Policy, random: &mut Random) {
    policy.provisioning = match random.below(6) {
        0 => Provisioning::None,
        1 => Provisioning::Over { extra: Extra::Millionths(random.between(0, 2_000_000)) },
        2 => Provisioning::Over { extra: Extra::Permits(random.between(0, 5)) },
        3 => Provisioning::Under { reserve: random.between(0, 5) },
        _ => Provisioning::Strict,
    };
    policy.permits_per_lease = random.between(1, 5);
    policy.lease_ttl = random.between(1, 20_000) * 1000;
    policy.leases_within_group_limit = random.percent(50);
}
