//! Who waits in a group, and what covers them.
//!
//! Authoritative for the order of waiters (first in, first out within the group) and for the sums over the group's
//! grants. Not authoritative for what is sent.

use std::collections::{BTreeMap, BTreeSet};

use super::{BlockId, grant::Grant};

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Queue {
    /// Waiters by number, which rises, with the time each began to wait.
    pub(super) waiters: BTreeMap<u64, u64>,
    /// Permits of the group's grants that nobody uses yet, confirmed or not.
    covered: u64,
    /// The grants that have such permits, and those of them that have confirmed ones.
    covering: BTreeSet<BlockId>,
    spare: BTreeSet<BlockId>,
}

impl Queue {
    /// Takes a grant into the sums.
    pub(super) fn add(&mut self, id: &BlockId, grant: &Grant) {
        if grant.covered() > 0 {
            self.covered += grant.covered();
            self.covering.insert(id.clone());
        }
        if grant.spare() > 0 {
            self.spare.insert(id.clone());
        }
    }

    /// Takes a grant out of the sums, with the marks it was added with.
    pub(super) fn remove(&mut self, id: &BlockId, grant: &Grant) {
        self.covered -= grant.covered();
        self.covering.remove(id);
        self.spare.remove(id);
    }

    /// Waiters that no permit is on its way to.
    pub(super) fn lack(&self) -> u64 {
        (self.waiters.len() as u64).saturating_sub(self.covered)
    }

    /// Since when the oldest of those has waited.
    pub(super) fn lacking_since(&self) -> Option<u64> {
        self.waiters.values().nth(usize::try_from(self.covered).ok()?).copied()
    }

    /// Permits that no waiter needs.
    pub(super) fn excess(&self) -> u64 {
        self.covered.saturating_sub(self.waiters.len() as u64)
    }

    /// A grant with a confirmed permit that nobody uses.
    pub(super) fn spare(&self) -> Option<&BlockId> {
        self.spare.first()
    }

    /// A grant with a permit that nobody uses.
    pub(super) fn covering(&self) -> Option<&BlockId> {
        self.covering.last()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiters.is_empty() && self.covering.is_empty()
    }
}
