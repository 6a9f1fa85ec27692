//! What a round decided: rows to write and answers to give.

use crate::answers::Outcome;
use crate::names::{ClientId, DbTime, Group, Slot};
use crate::state::{Block, Client, GroupUsage, Semaphore};
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
    /// One outcome per call, in the order of the calls.
    pub answers: Vec<Outcome>,
}

/// A change of a batch's list of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingWrite {
    /// Rows to list.
    pub slots: Vec<Slot>,
    /// Whether they are added to those listed or take their place.
    pub append: bool,
}
