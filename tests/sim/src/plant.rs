//! Bugs planted on purpose, at least one per promise: the simulation is worth what it finds.

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// A holder goes on with the highest limit that it ever resolved.
    StaleLimit,
    /// Ceilings of groups are forgotten.
    NoGroupCeilings,
    /// A transaction is committed whatever was committed since it read.
    NoFence,
    /// The deadline takes claimed permits too.
    ReclaimsClaimed,
    /// A client takes a grant for confirmed as soon as it hears of it.
    StartsUnconfirmed,
    /// A client takes up every block of every reply, however old.
    TakesUpOldBlocks,
    /// Reports are added to what was reported before.
    AddsReports,
    /// Releases of claims that were not honoured are believed.
    BelievesReleases,
    /// What is due is not reclaimed.
    NeverReclaims,
    /// A lost reply is not made up for.
    NoRedelivery,
    /// Who waited least is served first.
    YoungestFirst,
    /// A reply does not say why demand stays queued.
    Unexplained,
    /// A holder answers before the transaction is committed.
    TellsFirst,
}

impl Plant {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::StaleLimit,
        Self::NoGroupCeilings,
        Self::NoFence,
        Self::ReclaimsClaimed,
        Self::StartsUnconfirmed,
        Self::TakesUpOldBlocks,
        Self::AddsReports,
        Self::BelievesReleases,
        Self::NeverReclaims,
        Self::NoRedelivery,
        Self::YoungestFirst,
        Self::Unexplained,
        Self::TellsFirst,
    ];

    /// The promise that it breaks, and that the simulation must find broken.
    pub fn breaks(self) -> &'static str {
        match self {
            Self::StaleLimit | Self::NoGroupCeilings | Self::NoFence => "P1",
            Self::ReclaimsClaimed
            | Self::StartsUnconfirmed
            | Self::TakesUpOldBlocks
            | Self::BelievesReleases => "P2",
            Self::AddsReports => "P3",
            Self::NeverReclaims | Self::NoRedelivery => "P4",
            Self::YoungestFirst => "P5",
            Self::Unexplained => "P6",
            Self::TellsFirst => "P7",
        }
    }
}
