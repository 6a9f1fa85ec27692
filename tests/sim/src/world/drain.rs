//! The end of a world: no more faults. Whoever waits is served, and everything comes back (P4).

use super::World;
use super::people::{whole, whole_lease};
use crate::audit::{Verdict, ceilings, violated};
use pgsemaphore_allocation::{BLOCKED_LIFETIME, Block, ClientId, DbTime, Kind, Permits, Work};
use queue_client::Endpoint;
use queue_client::wire::Message;

/// Longer than any claim deadline, by any clock here that goes at all.
const LONG: i64 = 3_600_000_000;
/// Turns of half a second within which everybody has to be served.
const TURNS_MAX: usize = 200;
/// And within which idle leases come back.
const FEW_TURNS: usize = 20;

impl World {
    pub(super) fn drain(&mut self) -> Verdict {
        self.trace.say(|| "the faults end".to_owned());
        self.end_faults();
        self.nobody_is_there_for_long();
        self.begin(0, Work::Timer, Vec::new())?;
        self.commit(0, 0)?;
        let unclaimed = |block: &&Block| block.kind == Kind::Grant && block.used < block.permits;
        if let Some(block) = self.rows().blocks.values().find(unclaimed) {
            return violated(
                "P4",
                format!("{block:?} has unclaimed permits an hour after all messages ended"),
            );
        }
        self.bury_all()?;
        if self.restores {
            // Calls fail when a database is away, so clients say all that they have.
            self.turn(false)?;
        }
        self.turn_until(TURNS_MAX, "everybody is served", |world| {
            world.items_end();
            world.processes.iter().all(|process| process.waiting.is_empty() && process.shut_out.is_none())
        })?;
        self.turn_until(TURNS_MAX, "the dead have nothing left", |world| {
            world.items_end();
            world.rows().blocks.values().all(|block| world.is_of_the_living(block))
        })?;
        self.want_in_turn()?;
        self.change_minds()?;
        for process in &mut self.processes {
            process.drain();
        }
        self.items_end();
        self.turn_until(TURNS_MAX, "nobody has anything left to say", |world| {
            let settled = world.processes.iter().all(|process| process.ledger.is_settled());
            settled
                && world.is_empty_without_help()
                && world.others.iter().all(super::other::Other::has_nothing)
        })?;
        self.nobody_is_blocked()?;
        let rows = self.rows();
        let left = rows.semaphore.grants + rows.semaphore.leases;
        if left != 0 || !rows.blocks.is_empty() || rows.semaphore.next_deadline().is_some() {
            return violated("P4", format!("{left} permits are left: {:?}", rows.blocks));
        }
        Ok(())
    }

    /// One after the other wants all permits at once, when the others have nothing queued. Their leases are given back
    /// for it: no ttl ends so soon.
    fn want_in_turn(&mut self) -> Verdict {
        let serials: Vec<u32> = self.processes.iter().map(|process| process.serial).collect();
        for serial in serials {
            self.items_end();
            let Some(at) = self.processes.iter().position(|process| process.serial == serial) else {
                continue;
            };
            let group = self.any_group();
            let ceiling = self.limits.groups.get(&group).copied().unwrap_or(Permits::MAX);
            let count = ceilings(&self.limits.policy).grants.min(ceiling);
            let process = &mut self.processes[at];
            let now = process.now_ms();
            process.waiting.extend((0..count).map(|_| process.ledger.enqueue(group.as_str(), now)));
            self.hand_out(at)?;
            self.turn_until(FEW_TURNS, "idle leases are given back", |world| {
                let mut own = world.processes.iter().filter(|process| process.serial == serial);
                own.all(|process| process.waiting.is_empty())
            })?;
        }
        Ok(())
    }

    /// Everybody wants more than there is, is perhaps told so, and then wants nothing.
    fn change_minds(&mut self) -> Verdict {
        for at in 0..self.processes.len() {
            let process = &mut self.processes[at];
            let now = process.now_ms();
            process.waiting.extend((0..10).map(|_| process.ledger.enqueue("", now)));
            self.hand_out(at)?;
        }
        let told = self.random.percent(50);
        self.turn(told)?;
        for process in &mut self.processes {
            process.waiting.drain(..).for_each(|waiter| process.ledger.cancel(&waiter));
        }
        Ok(())
    }

    /// What the store says of demand that is no more (P6).
    fn nobody_is_blocked(&self) -> Verdict {
        let rows = self.rows();
        for process in &self.processes {
            let client = rows.clients.get(&ClientId::new(process.name.as_str()));
            let counts = |at: DbTime| at + BLOCKED_LIFETIME > self.now();
            let fresh = client.filter(|client| client.blocked_at.is_some_and(counts));
            if let Some(client) = fresh.filter(|client| !client.blocked.is_empty()) {
                return violated("P6", format!("{} wants nothing, and is listed: {client:?}", process.name));
            }
        }
        Ok(())
    }

    fn is_of_the_living(&self, block: &Block) -> bool {
        let name = block.client.as_str();
        self.processes.iter().any(|process| process.name == name)
            || self.others.iter().any(|other| other.name() == name)
    }

    /// Whatever the dead have left comes back by itself where a policy says so.
    fn is_empty_without_help(&self) -> bool {
        self.limits.policy.settle_after.is_none() || self.rows().blocks.is_empty()
    }

    /// All holders are away for an hour, which kills nobody.
    fn nobody_is_there_for_long(&mut self) {
        self.holders.iter_mut().for_each(|holder| holder.frozen = true);
        self.pass(LONG);
        self.holders.iter_mut().for_each(|holder| holder.frozen = false);
        self.heartbeat();
    }

    /// Everybody is awake, whatever was under way is lost, and there are permits.
    fn end_faults(&mut self) {
        self.fair = true;
        self.network.lose_all();
        for holder in &mut self.holders {
            holder.crash();
        }
        for process in &mut self.processes {
            process.frozen = false;
            // Whoever is there is heard once: of a successor, or of a client that says what it has, nothing else comes back.
            process.ledger.reconcile();
            process.clock.rate = 1000;
            process.under_way().into_iter().for_each(|number| process.give_up(number, 0));
        }
        self.clock.rate = 1000;
        let policy = &mut self.limits.policy;
        policy.limit = policy.limit.max(Some(1));
        policy.grant_timeout = 10_000_000;
        policy.lease_ttl = LONG;
        self.limits.groups.values_mut().for_each(|limit| *limit = 1.max(*limit));
        self.store.set_limits(&self.key, Some(self.limits.clone()));
    }

    /// What no process holds that lives: the dead's, the stranger's, and blocks that a restore brought back after their
    /// owners had settled them.
    fn bury_all(&mut self) -> Verdict {
        let rows = self.rows();
        for block in rows.blocks.values() {
            let owner = self.processes.iter().find(|process| process.name == block.client.as_str());
            let id = block.id.to_string();
            let held =
                owner.is_some_and(|owner| owner.ledger.running_by_block().any(|(own, _)| own.as_str() == id));
            let is_worker = owner.is_some() || self.dead.iter().any(|name| name == block.client.as_str());
            let settles = self.limits.policy.settle_after.is_some();
            let held = held
                || (is_worker && settles)
                || self.others.iter().any(|other| other.knows(block.client.as_str(), &id));
            if held || owner.is_some() {
                continue;
            }
            let message = match self.epitaph(block.client.as_str()).filter(|_| is_worker) {
                Some(message) => message,
                None => self.all_of(block),
            };
            self.audit.says(u32::MAX, &message);
            let name = super::network::CallName { from: u32::MAX, number: 0 };
            let waiting = super::holder::Waiting::new(name, Endpoint::Sync, message.into(), self.time);
            self.begin(0, Work::Sync, vec![waiting])?;
            self.commit(0, 0)?;
        }
        self.network.lose_all();
        Ok(())
    }

    /// What a client says of a block that it does not know.
    fn all_of(&self, block: &Block) -> Message {
        let rows = self.rows();
        let mut message = Message::new(block.client.as_str());
        message.process =
            rows.clients.get(&block.client).and_then(|client| client.incarnation.clone()?.process);
        match block.kind {
            Kind::Grant => message.grants = Some(vec![whole(block)]),
            Kind::Lease => message.leases = Some(vec![whole_lease(block)]),
        }
        message.seen = rows.semaphore.round;
        message
    }

    fn turn_until(&mut self, turns: usize, what: &str, done: impl Fn(&mut Self) -> bool) -> Verdict {
        for _ in 0..turns {
            if done(self) {
                return Ok(());
            }
            self.turn(true)?;
        }
        let ledgers: Vec<_> = self.processes.iter().map(|process| &process.ledger).collect();
        violated("P4", format!("it never happens that {what}: {ledgers:?} {:?}", self.rows()))
    }

    fn items_of_the_stopped_end(&mut self) {
        for at in 0..self.processes.len() {
            while self.processes[at].shut_out.is_some() && !self.processes[at].items.is_empty() {
                self.release(at, 0);
            }
        }
    }

    fn items_end(&mut self) {
        for at in 0..self.processes.len() {
            while !self.processes[at].items.is_empty() {
                self.release(at, 0);
            }
        }
    }

    /// Half a second in which everybody speaks, and everything arrives and is answered, or (not `told`) the
    /// answers are lost.
    fn turn(&mut self, told: bool) -> Verdict {
        self.pass(500_000);
        for at in 0..self.processes.len() {
            let process = &mut self.processes[at];
            debug_assert!(!process.frozen);
            while self.speak(at) {}
        }
        for at in 0..self.others.len() {
            self.other_ends(at);
            self.others[at].winds_up();
            self.other_speaks(at, false);
        }
        self.deliver_all()?;
        for holder in 0..self.holders.len() {
            for work in [Work::Round, Work::Sync, Work::Timer] {
                if let Some(batch) = self.holders[holder].take(work, true, self.plant) {
                    self.begin(holder, work, batch)?;
                    if !self.holders[holder].jobs.is_empty() {
                        self.commit(holder, 0)?;
                    }
                }
                self.holders[holder].look_again();
            }
            self.conclude(holder);
        }
        if !told {
            self.network.lose_all();
            for process in &mut self.processes {
                process.under_way().into_iter().for_each(|number| process.give_up(number, 0));
            }
            self.holders.iter_mut().for_each(|holder| drop(holder.crash()));
        }
        self.deliver_all()?;
        self.items_of_the_stopped_end();
        self.replace_the_stopped();
        Ok(())
    }

    fn deliver_all(&mut self) -> Verdict {
        while let Some(packet) = self.network.take_first() {
            self.deliver(packet)?;
            self.step += 1;
        }
        Ok(())
    }
}
