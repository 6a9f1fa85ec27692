//! What a round decided: rows to write and answers to give.

use crate::answers::Outcome;
use crate::names::{ClientId, DbTime, Group, Permits, Slot};
use crate::state::{Block, Client, GroupUsage, Semaphore};
use crate::tally::Tally;
use std::collections::BTreeMap;

/// What kind of transaction a plan is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// One allocation.
    Round,
    /// Reports without demand.
    Sync,
    /// A deadline that passed.
    Timer,
}

/// The result of [`round`](crate::round), [`sync`](crate::sync) or [`timer`](crate::timer).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The moment it was made for.
    pub now: DbTime,
    /// The key's row as it shall be.
    pub semaphore: Semaphore,
    /// Groups whose counters changed.
    pub groups: BTreeMap<Group, GroupUsage>,
    /// Rows of blocks that changed; `None` frees the row.
    pub blocks: BTreeMap<Slot, Option<Block>>,
    /// Lists of batches that changed.
    pub pending: BTreeMap<i32, PendingWrite>,
    /// Clients that changed.
    pub clients: BTreeMap<ClientId, Client>,
    /// Clients whose permits came back, or changed hands, by a declaration and not by their reports.
    pub audit: Vec<Audit>,
    /// The same in numbers.
    pub tally: Tally,
    /// One outcome per call, in the order of the calls.
    pub answers: Vec<Outcome>,
}

/// A declaration that is kept for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// Whose permits.
    pub client: ClientId,
    /// What was declared.
    pub act: Act,
    /// The lowest generation admitted from now on.
    pub generation: u64,
    /// Permits of grants concerned.
    pub grants: Permits,
    /// Footprints of leases concerned.
    pub leases: Permits,
}

/// What was declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// A process of a higher generation spoke. `resume`: it goes on with the permits, else they came back.
    Takeover {
        /// Whether it goes on with them.
        resume: bool,
    },
    /// The client was silent for too long. Its permits came back.
    SettleSilent,
    /// The client said what it holds, and the blocks were not among that. Their permits came back.
    UnknownToClient,
}

/// A change of a batch's list of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingWrite {
    /// Rows to list.
    pub slots: Vec<Slot>,
    /// Whether they are added to those listed or take their place.
    pub append: bool,
}
