//! A process with a job queue: the real ledger, a driver as simple as can be, and the items that run.

use super::network::{CallName, Refusal};
use pgsemaphore_allocation::Micros;
use queue_client::Endpoint;
use queue_client::ledger::{BlockId, Call, Identity, Ledger, Waiter};
use queue_client::wire::Reply;
use std::collections::BTreeMap;

/// A request and the one that supersedes it.
const REQUESTS_MAX: usize = 2;
/// Demand that stays blocked is not stated again sooner.
const ASK_AGAIN_MIN_MS: u64 = 250;

#[derive(Debug)]
pub(crate) struct Process {
    /// Its number in this world, and its `client_id`.
    pub(crate) serial: u32,
    pub(crate) name: String,
    pub(crate) ledger: Ledger,
    pub(crate) clock: Clock,
    pub(crate) frozen: bool,
    pub(crate) waiting: Vec<Waiter>,
    pub(crate) items: Vec<Item>,
    pub(crate) generation: u64,
    /// A holder answered it under its generation.
    admitted: bool,
    /// The last call made under an earlier generation, if it rose.
    raised_at: Option<u64>,
    /// A holder has shut it out, and admits this generation.
    pub(crate) shut_out: Option<u64>,
    under_way: BTreeMap<u64, Endpoint>,
}

/// Something that has a permit.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) block: BlockId,
    /// Whether it has started; before that the permit can still go to another.
    pub(crate) started: bool,
    /// The name of its permit, if it goes on without the process.
    pub(crate) detached: Option<String>,
}

/// A clock that runs at its own speed, and that anything may happen to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Clock {
    pub(crate) now: Micros,
    /// Microseconds per true millisecond.
    pub(crate) rate: i64,
}

impl Clock {
    pub(crate) fn advance(&mut self, by: Micros) {
        self.now = self.now.saturating_add(by.saturating_mul(self.rate) / 1000).max(0);
    }

    pub(crate) fn jump(&mut self, by: Micros) {
        self.now = self.now.saturating_add(by).max(0);
    }
}

impl Process {
    pub(crate) fn new(serial: u32, clock: Clock) -> Self {
        Self::of(serial, format!("worker-{serial}"), 0, clock)
    }

    /// A process of a client, under a generation.
    pub(crate) fn of(serial: u32, name: String, generation: u64, clock: Clock) -> Self {
        let identity = Identity { client_id: name.clone(), process: format!("p{serial}") };
        let mut ledger = Ledger::new(identity, 0);
        ledger.speak_as(generation);
        Self {
            serial,
            name,
            ledger,
            generation,
            admitted: false,
            raised_at: None,
            shut_out: None,
            clock,
            frozen: false,
            waiting: Vec::new(),
            items: Vec::new(),
            under_way: BTreeMap::new(),
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.now / 1000).unwrap_or(0)
    }

    /// It goes on with what its predecessors held, of which these items run.
    pub(crate) fn resume(&mut self, items: Vec<Item>) {
        self.ledger.resume();
        self.ledger.reconcile();
        for item in &items {
            let name = item.detached.as_deref().unwrap_or_default();
            self.ledger.declare(name, item.block.as_str());
        }
        self.items = items;
    }

    /// An item has ended.
    pub(crate) fn release(&mut self, item: &Item) {
        let attached = item.detached.as_ref().and_then(|name| self.ledger.attach(name));
        self.ledger.release(attached.as_ref().unwrap_or(&item.block));
    }

    /// It wants nothing more and gives back what it does not use.
    pub(crate) fn drain(&mut self) {
        self.ledger.drain();
        self.waiting.clear();
        self.forget_given_up();
    }

    fn forget_given_up(&mut self) {
        while let Some(number) = self.ledger.given_up() {
            self.under_way.remove(&number);
        }
    }

    /// Takes the permits that were handed out; says of which blocks they are.
    pub(crate) fn served(&mut self) -> Vec<BlockId> {
        self.forget_given_up();
        let mut blocks = Vec::new();
        for served in self.ledger.served() {
            self.waiting.retain(|waiter| *waiter != served.waiter);
            self.items.push(Item { block: served.block.clone(), started: false, detached: None });
            blocks.push(served.block);
        }
        blocks
    }

    /// The next call to send, and the request that is given up for it.
    pub(crate) fn speak(&mut self) -> Option<(Call, Option<CallName>)> {
        let call = self.ledger.next_call(self.now_ms())?;
        self.under_way.insert(call.number, call.endpoint);
        let mut requests = self.under_way.iter().filter(|(_, endpoint)| **endpoint == Endpoint::Request);
        let oldest = requests.next().map(|(number, _)| *number);
        let given_up = oldest.filter(|_| requests.count() >= REQUESTS_MAX);
        if let Some(number) = given_up {
            self.under_way.remove(&number);
            self.ledger.failed(number, 0);
        }
        Some((call, given_up.map(|number| CallName { from: self.serial, number })))
    }

    /// Calls that have not ended.
    pub(crate) fn under_way(&self) -> Vec<u64> {
        self.under_way.keys().copied().collect()
    }

    /// A call has taken too long.
    pub(crate) fn give_up(&mut self, number: u64, pause_ms: u64) {
        if self.under_way.remove(&number).is_some() {
            self.ledger.failed(number, self.now_ms().saturating_add(pause_ms));
        }
    }

    /// An answer, which may be to a call that was given up or answered before.
    pub(crate) fn hear(&mut self, number: u64, answer: Result<&Reply, Refusal>, jitter_ms: u64) {
        let endpoint = self.under_way.remove(&number);
        let now = self.now_ms();
        let refusal = match answer {
            Ok(reply) => {
                self.admitted |= self.raised_at.is_none_or(|last| number > last);
                let pause = reply.next_request_in_ms.max(ASK_AGAIN_MIN_MS).saturating_add(jitter_ms);
                self.ledger.replied(number, reply, now.saturating_add(pause));
                return;
            }
            Err(refusal) => refusal,
        };
        let Some(endpoint) = endpoint else { return };
        let retry_at = now.saturating_add(100 + jitter_ms);
        match (refusal, endpoint) {
            (Refusal::NotFound, Endpoint::Sync) => {
                self.ledger.forgotten(number);
            }
            (Refusal::NotFound | Refusal::Invalid, _) => {
                self.ledger.refused(number, retry_at);
                self.ledger.cancel_all();
                self.waiting.clear();
            }
            (Refusal::Fenced(lowest), _) => self.is_fenced(number, lowest),
            (Refusal::Superseded | Refusal::Unavailable, _) => self.ledger.failed(number, retry_at),
        }
    }

    /// One that was never heard goes on under the generation that it is told, once; any other is shut out.
    fn is_fenced(&mut self, number: u64, lowest: u64) {
        let may_rise = !self.admitted && self.raised_at.is_none() && lowest > self.generation;
        if !may_rise {
            self.shut_out = Some(lowest);
            return;
        }
        self.ledger.failed(number, 0);
        self.raised_at = Some(self.ledger.last_call());
        self.generation = lowest;
        self.ledger.speak_as(lowest);
        self.forget_given_up();
    }

    /// The application is told that it is shut out: nobody waits any longer.
    pub(crate) fn stop(&mut self) {
        self.ledger.fence();
        self.waiting.clear();
        self.under_way.clear();
    }
}
