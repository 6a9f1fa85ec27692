//! The right to run one item, and what becomes of it: dropped, detached, or not counted any more.
//!
//! Authoritative for which part of the ledger hears of a permit's end. Not authoritative for whether it exists.

use crate::admission::{Group, Handle};
use crate::detached::DetachedPermit;
use crate::ledger::fund::{Returned, Ticket};
use crate::ledger::{BlockId, Drawn, Ledger};

/// The right to run one item, until it is dropped.
///
/// Dropping it, by a panic too, releases it: no blocking, the report goes out in the background. Let it live as long as
/// the item does anything that the budget is there to bound.
#[must_use = "a permit that is dropped is released at once"]
pub struct Permit {
    group: Group,
    source: Source,
}

/// What a permit goes back to.
#[derive(Debug)]
pub(crate) enum Source {
    Block(BlockId),
    Lease(Ticket),
    /// It does not go back: it is detached.
    Nowhere,
}

impl Source {
    pub(crate) fn new(block: BlockId, ticket: Option<Ticket>) -> Self {
        ticket.map_or(Self::Block(block), Self::Lease)
    }
}

impl From<Drawn> for Source {
    fn from(drawn: Drawn) -> Self {
        Self::new(drawn.block, drawn.ticket)
    }
}

impl Permit {
    pub(crate) fn new(group: Group, source: Source) -> Self {
        Self { group, source }
    }

    /// The semaphore's key.
    pub fn key(&self) -> &str {
        self.group.key()
    }

    /// The item's group.
    pub fn group(&self) -> &str {
        self.group.name()
    }

    /// Whether the holder counts this permit, as far as this process has heard. It ceases to where a successor took
    /// over, an operator settled this client, or the holder's database was restored from an older copy; and a permit
    /// that was [resumed](crate::QueueClient::resume) may turn out not to be counted. What runs on such a permit is
    /// beyond the budget: end it if that can be done, and drop the permit.
    pub fn is_counted(&self) -> bool {
        let state = self.group.handle().shared.state();
        self.block(&state.ledger).is_some_and(|block| state.ledger.is_counted(&block))
    }

    /// Waits until the permit is [not counted](Self::is_counted) any more, for a `select!` beside the item's work.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn uncounted(&self) {
        let shared = &self.group.handle().shared;
        loop {
            let (lost, orphaned) = (shared.lost.notified(), shared.orphaned.notified());
            tokio::pin!(lost, orphaned);
            lost.as_mut().enable();
            orphaned.as_mut().enable();
            if !self.is_counted() {
                return;
            }
            let _ = shared.start_driver(shared.state()); // where none can be started, nothing is heard
            tokio::select! {
                () = lost => {}
                () = orphaned => {}
            }
        }
    }

    /// Lets the permit outlive the process: it stays counted, and nothing releases it until it is
    /// [resumed](crate::QueueClient::resume), here or in a later process.
    ///
    /// Store the reference before the work that it stands for begins. The client needs a
    /// [`client_id`](crate::Builder::client_id) of its own and must be built with
    /// [`Builder::resume`](crate::Builder::resume) after the restart, or the permit is released then.
    #[must_use = "the permit stays counted until this is resumed"]
    pub fn detach(mut self) -> DetachedPermit {
        let shared = &self.group.handle().shared;
        let permit = format!("{:016x}", rand::random::<u64>());
        let mut state = shared.state();
        let block = self.block(&state.ledger);
        if let Some(block) = &block {
            state.ledger.detach(&permit, block);
        }
        drop(state);
        let detached = DetachedPermit {
            key: shared.key.clone(),
            client_id: shared.client.identity.client_id.clone(),
            group: self.group().to_owned(),
            block: block.map(|block| block.as_str().to_owned()).unwrap_or_default(),
            permit,
        };
        shared.progress.notify_waiters(); // a drain may wait for this
        self.source = Source::Nowhere;
        detached
    }

    fn block(&self, ledger: &Ledger) -> Option<BlockId> {
        match &self.source {
            Source::Block(block) => Some(block.clone()),
            Source::Lease(ticket) => ledger.block_of(*ticket),
            Source::Nowhere => None,
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Handle { shared, fund } = self.group.handle();
        match &self.source {
            Source::Nowhere => return,
            Source::Block(_) if !shared.client.is_original() => return,
            Source::Block(block) => shared.state().ledger.release(block),
            Source::Lease(ticket) => match fund.release(*ticket) {
                Returned::Counted => return,
                Returned::Last => shared.state().ledger.spent(*ticket),
                Returned::Elsewhere => shared.state().ledger.release_ticket(*ticket),
            },
        }
        shared.stir();
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permit")
            .field("key", &self.key())
            .field("group", &self.group())
            .finish_non_exhaustive()
    }
}
