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
    under_way: BTreeMap<u64, Endpoint>,
}

/// Something that has a permit.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) block: BlockId,
    /// Whether it has started; before that the permit can still go to another.
    pub(crate) started: bool,
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
        let name = format!("worker-{serial}");
        let identity = Identity { client_id: name.clone(), process: format!("p{serial}") };
        Self {
            serial,
            name,
            ledger: Ledger::new(identity, 0),
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
            self.items.push(Item { block: served.block.clone(), started: false });
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
                let pause = reply.next_request_in_ms.max(ASK_AGAIN_MIN_MS).saturating_add(jitter_ms);
                self.ledger.replied(number, reply, now.saturating_add(pause));
                return;
            }
            Err(refusal) => refusal,
        };
        let Some(endpoint) = endpoint else { return };
        let retry_at = now.saturating_add(100 + jitter_ms);
        match (refusal, endpoint) {
            (Refusal::NotFound, Endpoint::Sync) => self.ledger.forgotten(number),
            (Refusal::NotFound | Refusal::Invalid, _) => {
                self.ledger.refused(number, retry_at);
                self.ledger.cancel_all();
                self.waiting.clear();
            }
            (Refusal::Superseded | Refusal::Unavailable, _) => self.ledger.failed(number, retry_at),
        }
    }
}
