//! What a client said, as a round sees it.

use crate::names::{ClientId, Group, Micros, Permits};
use crate::state::Incarnation;

/// One request or one sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Who speaks.
    pub client: ClientId,
    /// Which of its processes, and whether that one takes over what earlier ones held.
    pub from: Incarnation,
    /// The highest round it has heard of.
    pub seen: u64,
    /// Whether the reports name every block of rounds up to `seen` that this process holds.
    pub all: bool,
    /// From the call's arrival to the state's `now`.
    pub waited: Micros,
    /// Whether it is a request. A sync, also in a round, is heard and answered, and has no demand; what its client lacks
    /// stays as it was last said.
    pub asks: bool,
    /// What is queued, each group once.
    pub demand: Vec<Demand>,
    /// Reports of grants, as they came.
    pub grants: Vec<GrantReport>,
    /// Reports of leases, as they came.
    pub leases: Vec<LeaseReport>,
    /// Whether the client can hold leases.
    pub takes_leases: bool,
    /// Whether the reports were applied by an earlier transaction: a parked call is looked at again.
    pub applied: bool,
}

impl Call {
    /// The ids of the blocks it reports, as the client spelt them.
    pub fn reported(&self) -> impl Iterator<Item = &str> {
        let grants = self.grants.iter().map(|report| report.id.as_str());
        grants.chain(self.leases.iter().map(|report| report.id.as_str()))
    }
}

/// Items queued in one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// The group.
    pub group: Group,
    /// How many items.
    pub count: Permits,
    /// How long the oldest had waited when the call was sent.
    pub oldest_age: Micros,
}

/// Cumulative counts of one grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantReport {
    /// The id as the client spelt it; it need not name a block.
    pub id: String,
    /// Permits claimed so far.
    pub claimed: Permits,
    /// Of those, how many came back.
    pub released: Permits,
}

/// Cumulative counts of one lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseReport {
    /// The id as the client spelt it; it need not name a block.
    pub id: String,
    /// Permits drawn so far.
    pub drawn: Permits,
    /// Of those, how many came back.
    pub released: Permits,
    /// Nothing is drawn from it any more.
    pub stopped: bool,
}
