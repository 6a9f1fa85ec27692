//! What each mode of provisioning leaves to grants and to leases, from the table in the specification.

use pgsemaphore_allocation::{Block, Extra, Kind, Permits, Policy, Provisioning};

/// Most that may count: of both kinds together, of grants, of leases.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ceilings {
    pub(crate) both: Permits,
    pub(crate) grants: Permits,
    pub(crate) leases: Permits,
}

/// What counts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    pub(super) grants: Permits,
    pub(super) leases: Permits,
}

/// A limit that can't be resolved allows nothing.
pub(crate) fn ceilings(policy: &Policy) -> Ceilings {
    let limit = policy.limit.unwrap_or(0);
    match policy.provisioning {
        Provisioning::None => Ceilings { both: limit, grants: limit, leases: 0 },
        Provisioning::Strict => Ceilings { both: limit, grants: limit, leases: limit },
        Provisioning::Under { reserve } => {
            let reserve = reserve.min(limit - 1).max(0);
            Ceilings { both: limit, grants: limit - reserve, leases: reserve }
        }
        Provisioning::Over { extra } => {
            let extra = match extra {
                Extra::Permits(permits) if limit > 0 => permits,
                Extra::Permits(_) => 0,
                Extra::Millionths(millionths) => limit * millionths / 1_000_000,
            };
            Ceilings { both: Permits::MAX, grants: limit, leases: extra }
        }
    }
}

impl Ceilings {
    pub(super) fn left_for_grants(self, usage: Usage) -> Permits {
        (self.grants - usage.grants).min(self.both - usage.grants - usage.leases).max(0)
    }

    pub(super) fn left_for_leases(self, usage: Usage) -> Permits {
        (self.leases - usage.leases).min(self.both - usage.grants - usage.leases).max(0)
    }

    /// By how much leases are over their budget.
    pub(super) fn excess_of_leases(self, usage: Usage) -> Permits {
        (usage.leases - self.leases).max(usage.grants.saturating_add(usage.leases) - self.both).max(0)
    }
}

impl Usage {
    pub(super) fn of<'a>(blocks: impl Iterator<Item = &'a Block>) -> Self {
        let mut usage = Self::default();
        blocks.for_each(|block| usage.add(block.kind, footprint(block)));
        usage
    }

    pub(super) fn add(&mut self, kind: Kind, permits: Permits) {
        match kind {
            Kind::Grant => self.grants += permits,
            Kind::Lease => self.leases += permits,
        }
    }

    pub(super) fn both(self) -> Permits {
        self.grants + self.leases
    }
}

/// What of a block counts: of a lease that its client stopped what was drawn, of all others the whole.
pub(crate) fn footprint(block: &Block) -> Permits {
    let stopped = block.kind == Kind::Lease && block.stopped;
    (if stopped { block.used } else { block.permits }) - block.released
}
