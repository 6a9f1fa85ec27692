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
    /// Leases get more than their budget.
    LeasesAboveBudget,
    /// A retired lease is taken for stopped.
    FreesRetired,
    /// What a lease has not drawn comes back with each report.
    HeartbeatFrees,
    /// A client goes on drawing from a lease after it wrote that it stopped.
    DrawsAfterStopped,
    /// A permit of a lease is drawn again when it has come back.
    DrawsTwice,
    /// A client does not listen when a lease is retired.
    IgnoresRetired,
    /// A client draws from a lease that was retired before it heard of it.
    TakesUpRetired,
    /// A client takes up every lease of every reply, however old.
    TakesUpOldLeases,
    /// Releases of a lease are added to what was released before.
    AddsReleasesOfLeases,
    /// A client keeps idle leases, whoever lacks permits.
    IgnoresContended,
    /// A lease that is not reported is left alone.
    SilentForEver,
    /// A lost reply is not made up for where it brought a lease.
    NoRedeliveryOfLeases,
    /// Leases are retired that nobody needs back.
    RetiresAll,
    /// A holder does not say that others lack permits.
    ConcealsContended,
    /// Of a parked sync the state is taken for what it was when it came.
    StaleState,
    /// Whoever speaks for a client is heard.
    NoFencing,
    /// A second process of the same generation is heard.
    SameGeneration,
    /// A takeover without `resume` leaves what its predecessor held.
    TakeoverKeeps,
    /// Leases stay live when they are resumed.
    ResumedStayLive,
    /// A successor does not know what goes on, and gives it back.
    ReleasesResumed,
    /// `all` settles blocks that its client has not heard of.
    AllSettlesUnseen,
    /// Silence counts while nobody listens.
    SilenceInOutage,
    /// What a parked request reports is applied in each of its rounds.
    ReappliesParked,
    /// A parked request takes part in no other round.
    NeverWakes,
    /// A process that is shut out goes on drawing.
    GoesOnFenced,
    /// A call that is parked does not count as hearing from its client.
    ParkedUnheard,
    /// How far ahead a `seen` may be counts from the key's round, which `seen`s raise.
    MovingBound,
    /// A client says nothing while a call hangs.
    HeartbeatBehindHung,
    /// A client whose task has ended takes it for running.
    FlagOfDeadDriver,
}

impl Plant {
    /// All of them.
    pub const ALL: [Self; 40] = [
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
        Self::LeasesAboveBudget,
        Self::FreesRetired,
        Self::HeartbeatFrees,
        Self::DrawsAfterStopped,
        Self::DrawsTwice,
        Self::IgnoresRetired,
        Self::TakesUpRetired,
        Self::TakesUpOldLeases,
        Self::AddsReleasesOfLeases,
        Self::IgnoresContended,
        Self::SilentForEver,
        Self::NoRedeliveryOfLeases,
        Self::RetiresAll,
        Self::ConcealsContended,
        Self::StaleState,
        Self::NoFencing,
        Self::SameGeneration,
        Self::TakeoverKeeps,
        Self::ResumedStayLive,
        Self::ReleasesResumed,
        Self::AllSettlesUnseen,
        Self::SilenceInOutage,
        Self::ReappliesParked,
        Self::NeverWakes,
        Self::GoesOnFenced,
        Self::ParkedUnheard,
        Self::MovingBound,
    ];

    /// Those that only show where calls hang.
    pub const HANGING: [Self; 2] = [Self::HeartbeatBehindHung, Self::FlagOfDeadDriver];

    /// The promise that it breaks, and that the simulation must find broken.
    pub fn breaks(self) -> &'static str {
        match self {
            Self::StaleLimit | Self::NoGroupCeilings | Self::NoFence | Self::LeasesAboveBudget => "P1",
            Self::ReclaimsClaimed
            | Self::StartsUnconfirmed
            | Self::TakesUpOldBlocks
            | Self::BelievesReleases
            | Self::DrawsAfterStopped
            | Self::DrawsTwice
            | Self::IgnoresRetired
            | Self::TakesUpRetired
            | Self::TakesUpOldLeases
            | Self::NoFencing
            | Self::SameGeneration
            | Self::ResumedStayLive
            | Self::ReleasesResumed
            | Self::SilenceInOutage
            | Self::ParkedUnheard
            | Self::GoesOnFenced
            | Self::HeartbeatBehindHung
            | Self::FlagOfDeadDriver => "P2",
            Self::AddsReports
            | Self::FreesRetired
            | Self::HeartbeatFrees
            | Self::AddsReleasesOfLeases
            | Self::ReappliesParked => "P3",
            Self::NeverReclaims
            | Self::NoRedelivery
            | Self::SilentForEver
            | Self::NoRedeliveryOfLeases
            | Self::RetiresAll
            | Self::IgnoresContended
            | Self::TakeoverKeeps
            | Self::AllSettlesUnseen
            | Self::NeverWakes
            | Self::MovingBound => "P4",
            Self::YoungestFirst => "P5",
            Self::Unexplained | Self::ConcealsContended => "P6",
            Self::TellsFirst | Self::StaleState => "P7",
        }
    }
}
