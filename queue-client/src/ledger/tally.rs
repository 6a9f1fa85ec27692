//! What items took and gave back, for whoever counts it: it decides nothing.

use std::ops::AddAssign;

use super::Ledger;

/// Permits that changed hands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Permits of leases that items took.
    pub drawn: u64,
    /// Permits that items gave back, of grants and of leases.
    pub released: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, more: Self) {
        self.drawn += more.drawn;
        self.released += more.released;
    }
}

impl Ledger {
    /// What changed hands since the last time. What is drawn from a lease and given back without the ledger is in it once
    /// the lease is reported: at half its ttl, or sooner.
    pub fn tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }

    /// Permits of leases that no item uses.
    pub fn idle(&self) -> u64 {
        let live = self.leases.values().filter(|lease| lease.is_live());
        live.map(|lease| lease.counts().undrawn).sum()
    }
}
