//! Which permit is given: of the oldest lease, else a confirmed one of a grant. And when a lease is given back.
//!
//! Authoritative for which lease is in its group's fund: the oldest that is live and trusted, and only while nobody of
//! the group waits and nobody else lacks its permits. So a waiter is never overtaken by a draw without a lock, and
//! where releases are wanted at once each passes through the ledger. Not authoritative for the marks (`lease.rs`).

use std::sync::Arc;

use queue_wire::{LeaseVerdict, Reply, Status};

use super::fund::{Fund, Returned, Ticket};
use super::lease::{Lease, Told};
use super::{BlockId, Happening, Ledger};

/// Unused funds are looked for when there are this many, and again at twice what is left.
const FUNDS_MIN: usize = 16;

/// A permit that was handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Drawn {
    pub(crate) block: BlockId,
    /// Of a lease: by this the permit goes back to its fund.
    pub(crate) ticket: Option<Ticket>,
}

/// Whose demand lacks permits, as the latest round knew it.
#[derive(Debug, Default)]
pub(super) struct Contention {
    round: u64,
    key: bool,
    groups: Vec<String>,
}

impl Contention {
    fn is_of(&self, group: &str) -> bool {
        self.key || self.groups.iter().any(|contended| contended == group)
    }
}

impl Ledger {
    /// Nobody waits any longer, and everything goes back to the holder as soon as no item needs it: nothing is given
    /// from now on. The ledger is settled when the holder has confirmed it.
    pub fn drain(&mut self) {
        self.draining = true;
        self.cancel_all();
        self.stop_all();
        if let Some(parked) = self.unpark() {
            self.given_up.push(parked);
        }
    }

    /// Where permits of `group`'s leases can be drawn without the ledger.
    pub(crate) fn fund(&mut self, group: &str) -> Arc<Fund> {
        if let Some(fund) = self.funds.get(group) {
            return fund.clone();
        }
        if self.funds.len() >= self.funds_max {
            self.funds.retain(|_, fund| Arc::strong_count(fund) > 1);
            self.funds_max = FUNDS_MIN.max(2 * self.funds.len());
        }
        let fund = Arc::new(Fund::new(group));
        self.funds.insert(group.to_owned(), fund.clone());
        fund
    }

    /// As [`Self::release`], by what the fund gave out.
    pub(crate) fn release_ticket(&mut self, ticket: Ticket) {
        if let Some(block) = self.tickets.get(&ticket).cloned() {
            self.release(&block);
        }
    }

    /// The lease that the fund gave a permit of.
    pub(crate) fn block_of(&self, ticket: Ticket) -> Option<BlockId> {
        self.tickets.get(&ticket).cloned()
    }

    /// The last permit of a lease has come back to its fund.
    pub(crate) fn spent(&mut self, ticket: Ticket) {
        if let Some(block) = self.tickets.get(&ticket).cloned() {
            self.update_lease(&block, |_| {});
        }
    }

    /// A permit that can be used at once.
    pub(super) fn draw(&mut self, group: &str) -> Option<Drawn> {
        if self.draining {
            return None;
        }
        let queue = self.queues.get(group)?;
        let in_fund = queue.in_fund().and_then(|id| Some((id.clone(), self.leases.get(id)?.fund()?.draw()?)));
        if let Some((block, ticket)) = in_fund {
            return Some(Drawn { block, ticket: Some(ticket) });
        }
        if let Some(block) = queue.drawable().cloned() {
            let ticket = self.leases.get(&block).map(|lease| lease.ticket);
            self.update_lease(&block, Lease::take);
            return Some(Drawn { block, ticket });
        }
        let block = queue.spare()?.clone();
        self.take(&block);
        Some(Drawn { block, ticket: None })
    }

    /// After a change to a group: what may be drawn without a lock, what goes back.
    pub(super) fn arrange(&mut self, group: &str) {
        let Some(queue) = self.queues.get(group) else { return };
        let (idle, in_fund) = (queue.waiters.is_empty(), queue.in_fund().cloned());
        if self.contention.is_of(group) {
            let live: Vec<BlockId> = queue.live().cloned().collect();
            for id in live {
                // With nothing queued an idle lease serves others better.
                self.update_lease(&id, if idle { Lease::stop } else { Lease::take_out });
            }
            return;
        }
        let Some(oldest) = queue.drawable().filter(|_| idle).cloned() else { return };
        if let Some(id) = in_fund {
            let fund_is_older = self.leases.get(&id).is_some_and(|lease| {
                lease.counts().undrawn > 0
                    && self.leases.get(&oldest).is_some_and(|oldest| lease.round <= oldest.round)
            });
            if fund_is_older {
                return;
            }
            self.update_lease(&id, Lease::take_out);
        }
        let fund = self.fund(group);
        self.update_lease(&oldest, |lease| lease.put_in(fund));
    }

    /// Leases that no answer has renewed in time are not drawn from any longer.
    pub(super) fn lapse(&mut self, now_ms: u64) {
        while let Some((at, id)) = self.trusted.first()
            && *at <= now_ms
        {
            let id = id.clone();
            self.update_lease(&id, Lease::lapse);
        }
    }

    pub(super) fn hear_contention(&mut self, reply: &Reply) {
        // An older reply knows less.
        if reply.round < self.contention.round {
            return;
        }
        self.contention.round = reply.round;
        self.known_state = Some(reply.state.clone()).filter(|state| !state.is_empty());
        if self.contention.key == reply.contended && self.contention.groups == reply.contended_groups {
            return;
        }
        self.contention.key = reply.contended;
        self.contention.groups.clone_from(&reply.contended_groups);
        let (key, groups) = (reply.contended, reply.contended_groups.clone());
        self.happened.push(Happening::Contended { key, groups });
        let live: Vec<BlockId> =
            self.leases.iter().filter(|(_, lease)| lease.is_live()).map(|(id, _)| id.clone()).collect();
        for id in live {
            self.update_lease(&id, |_| {});
            if let Some(group) = self.leases.get(&id).map(|lease| lease.group.clone()) {
                self.arrange(&group);
            }
        }
    }

    /// Takes in what a reply says of a lease. Returns how many running items had a permit of a lease that the holder
    /// doesn't count any more.
    pub(super) fn hear_lease(&mut self, verdict: &LeaseVerdict, told: Told) -> u64 {
        let id = BlockId(verdict.id.as_str().into());
        let Some(lease) = self.leases.get(&id) else {
            let new = verdict.round.is_some_and(|round| round > self.seen);
            let open = matches!(verdict.status, Status::Active | Status::Retired | Status::Other);
            if new && open {
                self.take_up(id, verdict, told);
            }
            return 0;
        };
        let group = lease.group.clone();
        if lease.is_live() && verdict.status == Status::Retired {
            let undrawn = lease.counts().undrawn;
            self.happened.push(Happening::Retired { group: group.clone(), undrawn });
        }
        let lost = match verdict.status {
            Status::Settled | Status::NotFound => lease.counts().running,
            _ => 0,
        };
        self.noting_demand(&group, |ledger| {
            match verdict.status {
                Status::Settled | Status::NotFound => ledger.lose(&id),
                Status::Retired => ledger.update_lease(&id, Lease::stop),
                Status::Active => ledger.update_lease(&id, |lease| lease.renew(verdict.ttl_ms, told)),
                Status::Expired | Status::Other => {}
            }
            let mut came_back = !ledger.leases.contains_key(&id);
            ledger.update_lease(&id, |lease| came_back = lease.hear(verdict, told));
            if came_back {
                ledger.ask_again_at = 0; // perhaps for the demand that is blocked
            }
            ledger.serve(&group);
        });
        lost
    }

    fn take_up(&mut self, id: BlockId, verdict: &LeaseVerdict, told: Told) {
        let mut ticket = Ticket::after(self.last_ticket);
        while self.tickets.contains_key(&ticket) {
            ticket = Ticket::after(Some(ticket));
        }
        let Some(mut lease) = Lease::taken_up(verdict, ticket, self.last_call, told) else { return };
        let adopted = lease.adopt(self.declared(&id));
        if self.end_declared(&id, adopted) {
            self.running -= adopted; // these are counted with the lease from now on
        }
        // One of a status that we don't know is given back.
        if verdict.status != Status::Active || self.draining || adopted > 0 {
            lease.stop();
        } else {
            let (group, permits) = (lease.group.clone(), lease.counts().undrawn);
            self.happened.push(Happening::Lent { group, permits });
        }
        self.last_ticket = Some(ticket);
        self.tickets.insert(ticket, id.clone());
        let group = lease.group.clone();
        self.set_lease(&id, Some(lease));
        self.serve(&group);
    }

    /// The holder doesn't count the lease any more; items may still run on it.
    pub(super) fn lose(&mut self, id: &BlockId) {
        self.update_lease(id, Lease::stop);
        let Some(lease) = self.leases.get(id) else { return };
        let (ticket, running) = (lease.ticket, lease.counts().running);
        self.set_lease(id, None);
        self.running += running;
        if running == 0 {
            self.tickets.remove(&ticket);
        } else {
            self.lost.insert(id.clone(), (ticket, running));
        }
    }

    /// The item of a permit of a lease has ended; false if `block` is none.
    pub(super) fn release_lease(&mut self, block: &BlockId) -> bool {
        if let Some((ticket, running)) = self.lost.get_mut(block) {
            *running -= 1;
            self.running -= 1;
            self.tally.released += 1;
            if *running == 0 {
                self.tickets.remove(ticket);
                self.lost.remove(block);
            }
            return true;
        }
        let Some(lease) = self.leases.get(block) else { return false };
        let returned = lease.fund().map_or(Returned::Elsewhere, |fund| fund.release(lease.ticket));
        self.update_lease(block, |lease| {
            if returned == Returned::Elsewhere {
                lease.release();
            }
        });
        true
    }

    pub(super) fn stop_all(&mut self) {
        let all: Vec<BlockId> = self.leases.keys().cloned().collect();
        all.iter().for_each(|id| self.update_lease(id, Lease::stop));
    }

    pub(super) fn update_lease(&mut self, id: &BlockId, change: impl FnOnce(&mut Lease)) {
        let Some(mut lease) = self.leases.get(id).cloned() else { return };
        change(&mut lease);
        if lease.counts().is_spent() {
            lease.stop(); // nothing can be drawn any more
        }
        lease.contended = self.contention.is_of(&lease.group);
        self.set_lease(id, Some(lease));
    }

    /// The one place where a lease changes, so that every sum and set follows it.
    fn set_lease(&mut self, id: &BlockId, lease: Option<Lease>) {
        let before = self.leases.remove(id);
        let Some(group) = lease.as_ref().or(before.as_ref()).map(|lease| lease.group.clone()) else { return };
        self.queue(&group, |queue| {
            if let Some(before) = &before {
                queue.remove_lease(id, before);
            }
            if let Some(lease) = &lease {
                queue.add_lease(id, lease);
            }
        });
        if let Some(before) = before.filter(Lease::is_live) {
            let reports = if before.is_lapsed() { &mut self.overdue } else { &mut self.beats };
            reports.remove(&(before.report_at(), id.clone()));
            self.trusted.remove(&(before.trusted_until(), id.clone()));
        }
        self.due_leases.remove(id);
        let Some(mut lease) = lease else { return };
        self.tally += lease.tally();
        if lease.is_live() {
            let reports = if lease.is_lapsed() { &mut self.overdue } else { &mut self.beats };
            reports.insert((lease.report_at(), id.clone()));
            if !lease.is_lapsed() {
                self.trusted.insert((lease.trusted_until(), id.clone()));
            }
        }
        if lease.due() {
            self.due_leases.insert(id.clone());
        }
        self.leases.insert(id.clone(), lease);
    }
}

#[cfg(test)]
impl Ledger {
    /// What has to hold after each step.
    pub(super) fn check(&self) {
        for (group, queue) in &self.queues {
            let in_fund = queue.in_fund().map(|id| &self.leases[id]);
            let free = in_fund.is_some_and(|lease| lease.counts().undrawn > 0);
            assert!(!free || queue.waiters.is_empty(), "a draw would overtake who waits in {group:?}");
            assert!(in_fund.is_none() || !self.contention.is_of(group), "{group:?} is contended");
        }
        for (id, lease) in &self.leases {
            assert!(
                lease.fund().is_none() || (lease.is_live() && !lease.is_lapsed()),
                "{id:?} is drawn from"
            );
            assert_eq!(self.tickets.get(&lease.ticket), Some(id));
        }
        assert_eq!(self.tickets.len(), self.leases.len() + self.lost.len());
        let in_funds = self.leases.values().filter(|lease| lease.fund().is_some()).count();
        let filled = self.funds.values().filter(|fund| !fund.is_empty()).count();
        assert_eq!(in_funds, filled);
    }
}
