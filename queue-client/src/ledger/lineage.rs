//! Which start of the process this is, what an earlier one left, and what is to outlive this one.
//!
//! Authoritative for the generation that messages say, and for the permits that the application has declared to be in
//! use: those of an earlier process (*declared*), and those that no `Permit` holds at the moment (*detached*). Not
//! authoritative for marks (`grant.rs`, `lease.rs`).
//!
//! Blocks of an earlier process are delivered again in the first reply, since nothing is seen before it. Each is taken
//! up with as many running items as were declared of it, before anything is said of it: so no report can free one. What
//! was not declared is spare, and goes to waiters or back. A declared permit that the first reply does not bring, or
//! brings too few of, runs on without being counted.

use std::collections::BTreeMap;

use super::{BlockId, Ledger};

#[derive(Debug, Default)]
pub(super) struct Lineage {
    pub(super) generation: u64,
    pub(super) resume: bool,
    /// Answers to calls up to this one say nothing: they were made under an earlier generation.
    deaf_to: u64,
    /// Items on blocks that no reply has brought, or not enough of.
    declared: BTreeMap<BlockId, u64>,
    /// The first reply has come, so what is declared still is not counted.
    reconciled: bool,
    /// By the name of the permit.
    detached: BTreeMap<String, BlockId>,
}

impl Ledger {
    /// Messages say this generation from now on, if it is above the one before. Only before the first 200: calls that
    /// are under way then are made again, and their answers say nothing, since the higher generation has settled or
    /// retired what they brought.
    pub fn speak_as(&mut self, generation: u64) {
        if generation <= self.lineage.generation {
            return;
        }
        debug_assert!(self.grants.is_empty() && self.leases.is_empty());
        self.lineage.generation = generation;
        self.lineage.deaf_to = self.last_call;
        let mut under_way = Vec::new();
        for lane in [&mut self.request, &mut self.sync, &mut self.parked] {
            under_way.extend(lane.clear());
        }
        if !under_way.is_empty() {
            self.answer_needed(self.last_call + 1);
            self.given_up.extend(under_way);
        }
    }

    /// Messages say from now on that this process goes on with what earlier ones held: what was
    /// [declared](Self::declare) stays in use, everything else goes back. Before the first call.
    pub fn resume(&mut self) {
        self.lineage.resume = true;
    }

    /// A call is made soon, though nobody waits, so that what the holder has of this client is heard of.
    pub fn reconcile(&mut self) {
        self.answer_needed(self.last_call + 1);
    }

    /// An item that an earlier process started runs on the permit named `permit` of `block`; it is detached. Before the
    /// first call; twice is once.
    pub fn declare(&mut self, permit: &str, block: &str) {
        let block = BlockId(block.into());
        if self.lineage.detached.insert(permit.to_owned(), block.clone()).is_none() {
            *self.lineage.declared.entry(block).or_default() += 1;
            self.running += 1;
        }
    }

    /// The item on a permit of `block` goes on without this process: under this name it can be attached again, here or,
    /// after [`declare`](Self::declare), in a later process.
    pub fn detach(&mut self, permit: &str, block: &BlockId) {
        self.lineage.detached.insert(permit.to_owned(), block.clone());
    }

    /// The block of a detached permit, which from now on is released like any other; none if this name is not detached.
    pub fn attach(&mut self, permit: &str) -> Option<BlockId> {
        self.lineage.detached.remove(permit)
    }

    /// Whether the holder counts the permits of `block` that are in use, as far as this process has heard.
    pub fn is_counted(&self, block: &BlockId) -> bool {
        let unheard = !self.lineage.reconciled && self.lineage.declared.contains_key(block);
        unheard || self.grants.contains_key(block) || self.leases.contains_key(block)
    }

    /// Permits that are detached.
    pub fn detached(&self) -> u64 {
        self.lineage.detached.len() as u64
    }

    /// Whether answers to this call are of no use any more.
    pub(super) fn is_deaf_to(&self, number: u64) -> bool {
        number <= self.lineage.deaf_to
    }

    /// How many items are declared to run on a block that a reply has just brought.
    pub(super) fn declared(&self, block: &BlockId) -> u64 {
        self.lineage.declared.get(block).copied().unwrap_or(0)
    }

    /// So many of the items that were declared have ended, or are counted with their block; false if there are none.
    pub(super) fn end_declared(&mut self, block: &BlockId, items: u64) -> bool {
        let Some(declared) = self.lineage.declared.get_mut(block) else { return false };
        *declared -= items;
        if *declared == 0 {
            self.lineage.declared.remove(block);
        }
        true
    }

    /// A reply has told everything that is counted. Returns how many declared items are not.
    pub(super) fn reconciled(&mut self) -> u64 {
        if std::mem::replace(&mut self.lineage.reconciled, true) {
            return 0;
        }
        self.lineage.declared.values().sum()
    }
}
