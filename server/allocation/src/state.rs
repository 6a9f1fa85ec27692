//! What a transaction read of one key: the input of a round.

use crate::blocked::BlockedEntry;
use crate::names::{BlockId, ClientId, DbTime, Group, Micros, Permits, Slot};
use std::collections::BTreeMap;

/// Everything of one key that a round, a batch of syncs or a timer looks at.
///
/// `blocks` holds at least: the blocks that the calls report, those of the batches that are due at `now`, and every
/// open block of a calling client made in a round after that call's `seen`. `groups` holds the groups of those blocks
/// and of the demand. `clients` holds every calling client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The transaction's one moment, read by the database when it held the key's row.
    pub now: DbTime,
    /// The key's row.
    pub semaphore: Semaphore,
    /// The policy that wins for the key.
    pub policy: Option<Policy>,
    /// Usage and ceiling per group.
    pub groups: BTreeMap<Group, GroupUsage>,
    /// Clients of the calls.
    pub clients: BTreeMap<ClientId, Client>,
    /// Open blocks by row.
    pub blocks: BTreeMap<Slot, Block>,
    /// Rows listed in the batches that are due at `now`.
    pub due: BTreeMap<i32, Vec<Slot>>,
    /// Until when demand of clients outside this round counts as blocked by the limit.
    pub contended_elsewhere_until: Option<DbTime>,
}

/// The key's row: counters and where to find things.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Semaphore {
    /// Number of the latest round, 0 before the first.
    pub round: u64,
    /// When the latest round was.
    pub last_round_at: Option<DbTime>,
    /// The limit as last resolved.
    pub permit_limit: Option<Permits>,
    /// Permits minus released of all open grants.
    pub grants: Permits,
    /// Footprint of all open leases.
    pub leases: Permits,
    /// Until when demand counts as blocked by the limit.
    pub contended_until: Option<DbTime>,
    /// Groups of grants with unclaimed permits, by their earliest deadline.
    pub batches: Vec<Batch>,
    /// Rows below `next_slot` that are free.
    pub free_slots: Vec<Slot>,
    /// How many free rows below `next_slot` are not in `free_slots`.
    pub unlisted_slots: i32,
    /// Rows from here to `slot_cap` were never used.
    pub next_slot: Slot,
    /// Rows that exist.
    pub slot_cap: Slot,
}

impl Semaphore {
    /// When a grant with unclaimed permits is next due.
    pub fn next_deadline(&self) -> Option<DbTime> {
        self.batches.iter().map(|batch| batch.deadline).min()
    }

    /// How many blocks can be made without more rows.
    pub fn available_slots(&self) -> usize {
        self.free_slots.len() + usize::try_from(self.slot_cap - self.next_slot).unwrap_or(0)
    }
}

/// Grants with unclaimed permits that are found together when the earliest of them is due.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Batch {
    /// The row that lists them.
    pub n: i32,
    /// The earliest claim deadline among them.
    pub deadline: DbTime,
    /// How many of them still have unclaimed permits.
    pub open: i32,
}

/// The parts of a policy that a round looks at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Policy {
    /// The shared limit; `None` where it can't be resolved.
    pub limit: Option<Permits>,
    /// Unclaimed permits come back after this.
    pub grant_timeout: Micros,
    /// Rounds start no closer than this.
    pub round_period: Micros,
}

/// Counters and ceiling of one group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct GroupUsage {
    /// Permits minus released of its open grants.
    pub grants: Permits,
    /// Footprint of its open leases.
    pub leases: Permits,
    /// Its own ceiling.
    pub limit: Option<Permits>,
}

/// A client as the key knows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Client {
    /// Its last committed message, kept to about 20 s.
    pub last_seen: DbTime,
    /// The round that made its latest block, 0 if none.
    pub last_block: u64,
    /// What of its demand stays queued.
    pub blocked: Vec<BlockedEntry>,
    /// The round that wrote `blocked`.
    pub blocked_at: Option<DbTime>,
}

/// An open grant or lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Block {
    /// Its name.
    pub id: BlockId,
    /// What it is.
    pub kind: Kind,
    /// Whose it is.
    pub client: ClientId,
    /// Its group.
    pub group: Group,
    /// Permits it has; of an expired grant only those that were claimed.
    pub permits: Permits,
    /// Claimed (grant) or drawn (lease) so far.
    pub used: Permits,
    /// Of those, how many came back.
    pub released: Permits,
    /// What it is now.
    pub status: Status,
    /// When its unclaimed permits come back.
    pub deadline: DbTime,
    /// The batch that finds it then, while it has unclaimed permits.
    pub batch: Option<i32>,
    /// When it was made.
    pub created_at: DbTime,
}

impl Block {
    /// What of the block counts against the limit.
    pub fn counted(&self) -> Permits {
        self.permits - self.released
    }

    /// Permits that can still be claimed.
    pub fn unclaimed(&self) -> Permits {
        match self.kind {
            Kind::Grant => self.permits - self.used,
            Kind::Lease => 0,
        }
    }
}

/// What a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Each permit must be claimed before the deadline.
    Grant,
    /// Permits are drawn locally.
    Lease,
}

/// What an open block is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// In use.
    Active,
    /// A grant whose unclaimed permits were reclaimed.
    Expired,
    /// A lease from which nothing may be drawn any more.
    Retired,
}
