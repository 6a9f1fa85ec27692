//! What a plan does, in numbers, for who watches a holder. Decides nothing.

use crate::names::Permits;
use crate::state::{Block, Kind};

/// How many permits changed hands in one transaction, and how many leases ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Permits of new grants.
    pub granted: Permits,
    /// Permits of grants that were claimed.
    pub claimed: Permits,
    /// Permits of grants and leases that their clients reported as released.
    pub released: Permits,
    /// Permits that came back without a report: unclaimed ones of grants, and all of a block that was declared lost.
    pub reclaimed: Permits,
    /// New leases.
    pub leases: i64,
    /// Their permits.
    pub leased: Permits,
    /// Leases that ended, by [`Retired`].
    retired: [i64; Retired::ALL.len()],
}

/// Why nothing may be drawn from a lease any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retired {
    /// Unreported for its ttl.
    Silent,
    /// The policy provides none any more, or not to this client or group.
    NotEligible,
    /// Leases use more than the key, or the group, has for them.
    OverBudget,
    /// A successor speaks for the client.
    TakenOver,
    /// The client stopped it.
    GivenBack,
}

impl Retired {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 5] =
        [Self::Silent, Self::NotEligible, Self::OverBudget, Self::TakenOver, Self::GivenBack];
}

impl Tally {
    /// How many leases ended for this reason.
    pub fn retired(&self, because: Retired) -> i64 {
        self.retired[because as usize]
    }

    pub(crate) fn retire(&mut self, because: Retired) {
        self.retired[because as usize] += 1;
    }

    pub(crate) fn make(&mut self, block: &Block) {
        match block.kind {
            Kind::Grant => self.granted += block.permits,
            Kind::Lease => {
                self.leases += 1;
                self.leased += block.permits;
            }
        }
    }

    pub(crate) fn change(&mut self, before: &Block, after: &Block) {
        self.released += after.released - before.released;
        if before.kind == Kind::Grant {
            self.claimed += after.used - before.used;
            self.reclaimed += before.permits - after.permits;
        }
    }

    pub(crate) fn write_off(&mut self, block: &Block) {
        self.reclaimed += block.counted();
    }
}
