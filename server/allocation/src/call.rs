//! What a client said, as a round sees it.

use crate::names::{ClientId, Group, Micros, Permits};

/// One request, or one sync (which has no demand).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Who speaks.
    pub client: ClientId,
    /// The highest round it has heard of.
    pub seen: u64,
    /// From the call's arrival to the state's `now`.
    pub waited: Micros,
    /// What is queued, each group once.
    pub demand: Vec<Demand>,
    /// Reports of grants, as they came.
    pub grants: Vec<GrantReport>,
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
