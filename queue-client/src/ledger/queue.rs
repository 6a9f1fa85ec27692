//! Who waits in a group, and what covers them.
//!
//! Authoritative for the order of waiters (first in, first out within the group) and for the sums over the group's
//! blocks. Not authoritative for what is sent.

use std::collections::{BTreeMap, BTreeSet};

use super::{BlockId, grant::Grant, lease::Lease};

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Waiters by number, which rises, with the time each began to wait.
    pub(super) waiters: BTreeMap<u64, u64>,
    /// Permits of the group's grants that nobody uses yet, confirmed or not.
    covered: u64,
    /// The grants that have such permits, and those of them that have confirmed ones.
    covering: BTreeSet<BlockId>,
    spare: BTreeSet<BlockId>,
    /// Leases that are not stopped, by age; of those that can be drawn from, the one in the fund and the others.
    live: BTreeSet<(u64, BlockId)>,
    in_fund: Option<BlockId>,
    drawable: BTreeSet<(u64, BlockId)>,
    /// Undrawn permits of leases that are not in the fund.
    reserved: u64,
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

    /// Takes a lease into the sums.
    pub(super) fn add_lease(&mut self, id: &BlockId, lease: &Lease) {
        if !lease.is_live() {
            return;
        }
        self.live.insert((lease.round, id.clone()));
        if lease.fund().is_some() {
            self.in_fund = Some(id.clone());
        }
        self.reserved += lease.reserved();
        if lease.reserved() > 0 && !lease.is_lapsed() {
            self.drawable.insert((lease.round, id.clone()));
        }
    }

    /// Takes a lease out of the sums, as it was when it was added.
    pub(super) fn remove_lease(&mut self, id: &BlockId, lease: &Lease) {
        self.in_fund.take_if(|in_fund| in_fund == id);
        self.reserved -= lease.reserved();
        let aged = (lease.round, id.clone());
        self.live.remove(&aged);
        self.drawable.remove(&aged);
    }

    /// Waiters that no permit is on its way to. While somebody waits there is nothing to draw in the fund.
    pub(super) fn lack(&self) -> u64 {
        (self.waiters.len() as u64).saturating_sub(self.covered + self.reserved)
    }

    /// Since when the oldest of those has waited.
    pub(super) fn lacking_since(&self) -> Option<u64> {
        self.waiters.values().nth(usize::try_from(self.covered + self.reserved).ok()?).copied()
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

    /// Leases that are not stopped, oldest first.
    pub(super) fn live(&self) -> impl Iterator<Item = &BlockId> {
        self.live.iter().map(|(_, id)| id)
    }

    /// The lease whose permits are drawn without the ledger.
    pub(super) fn in_fund(&self) -> Option<&BlockId> {
        self.in_fund.as_ref()
    }

    /// The oldest lease with a permit that can be drawn by the ledger.
    pub(super) fn drawable(&self) -> Option<&BlockId> {
        self.drawable.first().map(|(_, id)| id)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiters.is_empty() && self.covering.is_empty() && self.live.is_empty()
    }
}
