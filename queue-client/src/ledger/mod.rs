//! What one process holds of one semaphore, and when it has something to say: a pure state machine.
//!
//! Authoritative for blocks, their marks, who waits, and which permits may be used. It has no I/O, no clock, no
//! randomness: events go in with the time in milliseconds of any one monotonic clock, and calls to send and waiters that
//! are served come out, the same for the same events. Every answer may be lost, late, repeated or out of order.
//!
//! Events: [`enqueue`](Ledger::enqueue), [`cancel`](Ledger::cancel), [`try_draw`](Ledger::try_draw),
//! [`release`](Ledger::release), [`put_back`](Ledger::put_back), [`detach`](Ledger::detach), and for every call that was
//! sent one of [`replied`](Ledger::replied), [`failed`](Ledger::failed), [`refused`](Ledger::refused).
//! After any of them, ask [`served`](Ledger::served) for waiters that got a permit and [`next_call`](Ledger::next_call),
//! until it has none, for what to send; with no event, ask again at [`wake_at`](Ledger::wake_at).
//!
//! One thing happens beside the events: permits of a lease are drawn and released in a `Fund`, by any thread. The ledger
//! decides which lease is in a fund and takes its counts from there, so that it is the same whether a draw was an event
//! or not.

/// What a fund is made of, by which a checker of all interleavings replaces it.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};
}
mod draw;
pub(crate) mod fund;
mod grant;
mod happening;
mod hear;
mod lease;
#[cfg(test)]
mod lease_tests;
mod left;
mod lineage;
#[cfg(test)]
mod lineage_tests;
#[cfg(test)]
mod model;
mod patience;
mod queue;
mod speak;
#[cfg(test)]
mod speech_tests;
mod tally;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use draw::Contention;
pub(crate) use draw::Drawn;
use fund::{Fund, Ticket};
use grant::Grant;
pub use happening::Happening;
use lease::Lease;
use lineage::Lineage;
use patience::HEARTBEAT_MAX_MS;
pub use patience::{PATIENCE_MAX_MS, PATIENCE_MIN_MS};
use queue::Queue;
use speak::Lane;
pub use speak::{Call, PARK_MS, REQUEST_PARK_MS, SUPERSEDE_AFTER_MS};
pub use tally::Tally;

/// Who speaks: the same for every key of a process.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The job-queue process: new for each start, unless [generations](Ledger::speak_as) rise.
    pub client_id: String,
    /// Random per process start; calls supersede each other within it.
    pub process: String,
}

/// The holder's name for a block.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockId(Arc<str>);

impl BlockId {
    /// The id as it travels.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A place in a group's queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiter {
    group: String,
    number: u64,
}

/// A waiter whose turn has come, and the block its permit is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Who.
    pub waiter: Waiter,
    /// The block; the permit goes back to it by [`Ledger::release`] or [`Ledger::put_back`].
    pub block: BlockId,
    /// Of a lease: by this the permit goes back to its fund.
    pub(crate) ticket: Option<Ticket>,
}

/// The ledger of one key. See the [module](self) for how it is driven.
#[derive(Debug)]
pub struct Ledger {
    identity: Identity,
    lineage: Lineage,
    grants: BTreeMap<BlockId, Grant>,
    leases: BTreeMap<BlockId, Lease>,
    queues: BTreeMap<String, Queue>,
    served: Vec<Served>,
    last_waiter: u64,
    /// Permits of grants with an item, and those of blocks that the holder doesn't count any more.
    running: u64,

    /// By group; those that nobody uses stay for a while.
    funds: BTreeMap<String, Arc<Fund>>,
    funds_max: usize,
    /// Leases of which permits may be about, and those of them that the holder doesn't count, with what still runs.
    tickets: BTreeMap<Ticket, BlockId>,
    last_ticket: Option<Ticket>,
    lost: BTreeMap<BlockId, (Ticket, u64)>,

    /// Blocks with something to report, groups with more demand than permits, groups with more permits than demand.
    due: BTreeSet<BlockId>,
    due_leases: BTreeSet<BlockId>,
    /// Grants with unconfirmed claims, by how long the holder waits for them.
    claims: BTreeSet<(u64, BlockId)>,
    lacking: BTreeSet<String>,
    excess: BTreeSet<String>,
    /// Live leases, by when they have to be reported: those that are trusted, and those that are not any longer.
    beats: BTreeSet<(u64, BlockId)>,
    overdue: BTreeSet<(u64, BlockId)>,
    /// And by how long they are trusted.
    trusted: BTreeSet<(u64, BlockId)>,
    contention: Contention,
    /// The `state` of the latest reply.
    known_state: Option<String>,

    /// The highest round heard.
    seen: u64,
    last_call: u64,
    request: Lane,
    sync: Lane,
    parked: Lane,
    given_up: Vec<u64>,
    /// Demand has changed since the last request.
    news: bool,
    /// The holder may still list demand of this client.
    stated: bool,
    /// Blocked demand, without news, asks again at this time.
    ask_again_at: u64,
    /// A call ended without an answer: one of this number or later has to be answered.
    unanswered: Option<u64>,
    /// The next sync reports every block, so that what the holder has beyond that is settled.
    tell_all: bool,
    /// And does not wait until there is something else to say.
    tell_all_now: bool,
    /// The sync under way reports every block.
    tells_all: bool,
    /// When a client that holds something has to be heard again.
    heartbeat_at: Option<u64>,
    /// How often it has to be heard.
    report_within: u64,
    /// Which part of more demand than a request may state is stated next.
    demand_turn: usize,
    /// Of the latest reply.
    happened: Vec<Happening>,
    tally: Tally,
    draining: bool,
    fenced: bool,
}

impl Ledger {
    /// An empty ledger whose calls are numbered from `last_call` + 1.
    pub fn new(identity: Identity, last_call: u64) -> Self {
        Self {
            identity,
            lineage: Lineage::default(),
            grants: BTreeMap::new(),
            leases: BTreeMap::new(),
            queues: BTreeMap::new(),
            served: Vec::new(),
            last_waiter: 0,
            running: 0,
            funds: BTreeMap::new(),
            funds_max: 0,
            tickets: BTreeMap::new(),
            last_ticket: None,
            lost: BTreeMap::new(),
            due: BTreeSet::new(),
            due_leases: BTreeSet::new(),
            claims: BTreeSet::new(),
            lacking: BTreeSet::new(),
            excess: BTreeSet::new(),
            beats: BTreeSet::new(),
            overdue: BTreeSet::new(),
            trusted: BTreeSet::new(),
            contention: Contention::default(),
            known_state: None,
            seen: 0,
            last_call,
            request: Lane::default(),
            sync: Lane::default(),
            parked: Lane::default(),
            given_up: Vec::new(),
            news: false,
            stated: false,
            ask_again_at: 0,
            unanswered: None,
            tell_all: false,
            tell_all_now: false,
            tells_all: false,
            heartbeat_at: None,
            report_within: HEARTBEAT_MAX_MS,
            demand_turn: 0,
            happened: Vec::new(),
            tally: Tally::default(),
            draining: false,
            fenced: false,
        }
    }

    /// An item of `group` waits from now on, behind those that wait already.
    pub fn enqueue(&mut self, group: &str, now_ms: u64) -> Waiter {
        self.lapse(now_ms);
        self.last_waiter += 1;
        let waiter = Waiter { group: group.to_owned(), number: self.last_waiter };
        self.noting_demand(group, |ledger| {
            ledger.queue(group, |queue| queue.waiters.insert(waiter.number, now_ms));
            ledger.serve(group);
        });
        waiter
    }

    /// A waiter that was not served waits no longer.
    pub fn cancel(&mut self, waiter: &Waiter) {
        let lacked = self.lack(&waiter.group);
        self.queue(&waiter.group, |queue| queue.waiters.remove(&waiter.number));
        self.arrange(&waiter.group);
        self.news |= self.lack(&waiter.group) != lacked;
    }

    /// Nobody waits any longer.
    pub fn cancel_all(&mut self) {
        self.news |= !self.lacking.is_empty();
        let groups: Vec<String> = self.queues.keys().cloned().collect();
        for group in groups {
            self.queue(&group, |queue| queue.waiters.clear());
            self.arrange(&group);
        }
    }

    /// A permit of a lease, else a confirmed one of a grant, that nobody waits for, if there is one.
    pub fn try_draw(&mut self, group: &str) -> Option<BlockId> {
        Some(self.try_serve(group)?.block)
    }

    /// The item that ran on a permit of `block` has ended.
    pub fn release(&mut self, block: &BlockId) {
        if self.end_declared(block, 1) {
            self.running -= 1;
        } else if self.release_lease(block) {
            return;
        } else {
            self.running -= 1;
            self.update(block, Grant::release);
        }
        self.tally.released += 1;
    }

    /// A permit of `block` was handed out and not used. Of a grant it goes to the group's next waiter, or to the holder;
    /// of a lease it has been drawn, once for all, and is released.
    pub fn put_back(&mut self, block: &BlockId) {
        if self.release_lease(block) {
            return;
        }
        self.running -= 1;
        self.update(block, Grant::put_back);
        if let Some(group) = self.grants.get(block).map(|grant| grant.group.clone()) {
            self.serve(&group);
        }
    }

    /// The waiters served since the last time, in the order they were served.
    pub fn served(&mut self) -> Vec<Served> {
        std::mem::take(&mut self.served)
    }

    /// The holder has shut this process out: nothing more is said, drawn or waited for, and nothing is counted.
    pub fn fence(&mut self) {
        self.fenced = true;
        self.cancel_all();
        self.forget();
        for lane in [&mut self.request, &mut self.sync, &mut self.parked] {
            lane.in_flight = None;
        }
        self.stated = false;
    }

    /// Nobody waits, nothing runs, nothing of this client counts, and the holder needs to hear nothing.
    pub fn is_settled(&self) -> bool {
        self.running() == 0 && self.is_drained()
    }

    /// The same, but for permits that are detached, which go on counting.
    pub fn is_drained(&self) -> bool {
        let said = self.unanswered.is_none() && !self.stated && !self.has_to_tell_all();
        let lanes = [&self.request, &self.sync, &self.parked];
        let idle = lanes.iter().all(|lane| lane.in_flight.is_none());
        let mut grants = self.grants.values();
        let mut leases = self.leases.values();
        let only_running = grants.all(|grant| grant.running() > 0 && !grant.due())
            && leases.all(|lease| lease.counts().running > 0 && !lease.is_live() && !lease.due());
        only_running && self.running() == self.detached() && self.queues.is_empty() && said && idle
    }

    /// Items that run on permits of this ledger, and permits on their way to a waiter.
    pub fn running(&self) -> u64 {
        self.running + self.leases.values().map(|lease| lease.counts().running).sum::<u64>()
    }

    /// The same for each open block.
    pub fn running_by_block(&self) -> impl Iterator<Item = (&BlockId, u64)> {
        let grants = self.grants.iter().map(|(id, grant)| (id, grant.running()));
        grants.chain(self.leases.iter().map(|(id, lease)| (id, lease.counts().running)))
    }

    /// The number of the last call.
    pub fn last_call(&self) -> u64 {
        self.last_call
    }

    /// Returns how many declared items are not counted.
    fn forget(&mut self) -> u64 {
        self.unanswered = None;
        (self.tell_all, self.tell_all_now) = (false, false);
        let lost = self.reconciled();
        let gone: Vec<BlockId> = self.grants.keys().cloned().collect();
        gone.into_iter().for_each(|id| self.set(id, None));
        let gone: Vec<BlockId> = self.leases.keys().cloned().collect();
        gone.iter().for_each(|id| self.lose(id));
        lost
    }

    fn put(&mut self, id: BlockId, grant: Grant) {
        let group = grant.group.clone();
        self.set(id, Some(grant));
        self.serve(&group);
    }

    /// Hands permits that nobody uses to the group's waiters.
    fn serve(&mut self, group: &str) {
        while let Some(queue) = self.queues.get(group)
            && let Some((&number, _)) = queue.waiters.first_key_value()
            && let Some(Drawn { block, ticket }) = self.draw(group)
        {
            self.queue(group, |queue| queue.waiters.remove(&number));
            self.served.push(Served { waiter: Waiter { group: group.to_owned(), number }, block, ticket });
        }
        self.arrange(group);
    }

    /// As [`Self::try_draw`], with what the permit goes back by.
    pub(crate) fn try_serve(&mut self, group: &str) -> Option<Drawn> {
        let drawn = self.draw(group)?;
        self.arrange(group);
        Some(drawn)
    }

    /// More demand than before `change` is news.
    fn noting_demand(&mut self, group: &str, change: impl FnOnce(&mut Self)) {
        let lacked = self.lack(group);
        change(self);
        self.news |= self.lack(group) > lacked;
    }

    fn lack(&self, group: &str) -> u64 {
        self.queues.get(group).map_or(0, Queue::lack)
    }

    fn take(&mut self, block: &BlockId) {
        self.running += 1;
        self.update(block, Grant::take);
    }

    fn update(&mut self, id: &BlockId, change: impl FnOnce(&mut Grant)) {
        if let Some(mut grant) = self.grants.get(id).cloned() {
            change(&mut grant);
            self.set(id.clone(), Some(grant));
        }
    }

    /// The one place where a block changes, so that every sum and set follows it.
    fn set(&mut self, id: BlockId, grant: Option<Grant>) {
        let before = self.grants.remove(&id);
        let Some(group) = grant.as_ref().or(before.as_ref()).map(|grant| grant.group.clone()) else { return };
        self.note_claim(&id, before.as_ref(), grant.as_ref());
        self.queue(&group, |queue| {
            if let Some(before) = &before {
                queue.remove(&id, before);
            }
            if let Some(grant) = &grant {
                queue.add(&id, grant);
            }
        });
        if grant.as_ref().is_some_and(Grant::due) {
            self.due.insert(id.clone());
        } else {
            self.due.remove(&id);
        }
        if let Some(grant) = grant {
            self.grants.insert(id, grant);
        }
    }

    /// The one place where a queue changes.
    fn queue<T>(&mut self, group: &str, change: impl FnOnce(&mut Queue) -> T) -> T {
        let queue = self.queues.entry(group.to_owned()).or_default();
        let result = change(queue);
        let (lack, excess, idle) = (queue.lack(), queue.excess(), queue.is_idle());
        keep(&mut self.lacking, group, lack > 0);
        keep(&mut self.excess, group, excess > 0);
        if idle {
            self.queues.remove(group);
        }
        result
    }
}

fn keep(set: &mut BTreeSet<String>, name: &str, wanted: bool) {
    if !wanted {
        set.remove(name);
    } else if !set.contains(name) {
        set.insert(name.to_owned());
    }
}
