//! What a transaction read of one key: the input of a round.

use crate::blocked::BlockedEntry;
use crate::names::{BlockId, ClientId, DbTime, Group, Micros, Permits, Slot};
use std::collections::{BTreeMap, BTreeSet};

/// Everything of one key that a round, a batch of syncs or a timer looks at.
///
/// `blocks` holds at least: the blocks that the calls report, those of the batches that are due at `now`, and every
/// open block of a calling client made in a round after that call's `seen`, every open lease of a calling client, and
/// all open leases of the key where [`must_read_leases`](crate::must_read_leases) says so. `groups` holds the groups of
/// those blocks, of the demand, and of the calling and silent clients' `blocked` entries, whose marks may end. `clients` holds
/// every calling client and the owners of those blocks. Of clients that
/// [`must_read_all_blocks`](crate::must_read_all_blocks) names, `blocks` holds all that are open.
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
    /// Clients of the calls and of the blocks.
    pub clients: BTreeMap<ClientId, Client>,
    /// Open blocks by row.
    pub blocks: BTreeMap<Slot, Block>,
    /// Rows listed in the batches that are due at `now`.
    pub due: BTreeMap<i32, Vec<Slot>>,
    /// Whether `blocks` holds all open leases of the key.
    pub all_leases: bool,
    /// Until when demand of clients that neither speak nor are in `silence` counts as blocked: by the limit, and by
    /// ceilings of groups.
    pub contended_elsewhere: Contended,
    /// Who may not be admitted in which group, of the demand of this round and of the calling clients' live leases.
    pub not_permitted: BTreeSet<(ClientId, Group)>,
    /// Clients with a call that is open at this holder, beside the calls of the transaction: they are heard now.
    pub open_calls: BTreeSet<ClientId>,
    /// Who was silent for too long, where [`silent_since`](crate::silent_since) asks for it.
    pub silence: Option<Silence>,
}

/// Clients that hold something and may have to be declared dead. All of their open blocks are in the state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Silence {
    /// Those last heard no later than asked for.
    pub clients: BTreeSet<ClientId>,
    /// When the one that was heard next after them was last heard.
    pub next_heard: Option<DbTime>,
    /// Since when clients could be heard without a break; `None` if they can't be heard now.
    pub serving_since: Option<DbTime>,
}

impl State {
    /// A state of which only the key's row and the policy are read so far.
    pub fn new(now: DbTime, semaphore: Semaphore, policy: Option<Policy>) -> Self {
        Self {
            now,
            semaphore,
            policy,
            groups: BTreeMap::new(),
            clients: BTreeMap::new(),
            blocks: BTreeMap::new(),
            due: BTreeMap::new(),
            all_leases: false,
            contended_elsewhere: Contended::default(),
            not_permitted: BTreeSet::new(),
            open_calls: BTreeSet::new(),
            silence: None,
        }
    }
}

/// Until when demand counts as blocked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Contended {
    /// By the shared limit.
    pub key: Option<DbTime>,
    /// By ceilings of groups; those of `groups` only.
    pub groups: BTreeMap<Group, DbTime>,
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
    /// How many leases are active.
    pub live_leases: i64,
    /// No active lease is unreported for its ttl before this.
    pub leases_due: Option<DbTime>,
    /// The stamp of the policy by which all leases were last judged.
    pub leases_judged_by: i64,
    /// Until when demand counts as blocked by the limit.
    pub contended_until: Option<DbTime>,
    /// After how long a silent client is declared dead, as the policy was when last looked at.
    pub settle_after: Option<Micros>,
    /// Since when it is so.
    pub settle_after_since: Option<DbTime>,
    /// No client is silent for that long before this.
    pub silence_due: Option<DbTime>,
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
    /// When a grant with unclaimed permits, or a client that is silent, is next due.
    pub fn next_deadline(&self) -> Option<DbTime> {
        self.batches.iter().map(|batch| batch.deadline).chain(self.silence_due).min()
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
    /// Nothing is admitted and nothing retired.
    pub paused: bool,
    /// Groups of which the same is true.
    pub paused_groups: BTreeSet<Group>,
    /// Unclaimed permits come back after this.
    pub grant_timeout: Micros,
    /// Rounds start no closer than this.
    pub round_period: Micros,
    /// What leases may use.
    pub provisioning: Provisioning,
    /// Largest lease.
    pub permits_per_lease: Permits,
    /// A lease unreported for this long is retired.
    pub lease_ttl: Micros,
    /// Whether groups with a ceiling of their own may hold leases.
    pub leases_within_group_limit: bool,
    /// A client that is silent for this long is declared dead.
    pub settle_after: Option<Micros>,
    /// Differs between any two versions of a policy and between policies.
    pub stamp: i64,
}

impl Policy {
    /// Whether nothing is admitted to the group, and none of its leases retired.
    pub fn pauses(&self, group: &Group) -> bool {
        self.paused || self.paused_groups.contains(group)
    }

    /// Within this a client that holds anything must be heard again: a third of what makes it count as dead.
    pub fn report_within(&self) -> Option<Micros> {
        self.settle_after.map(|after| after / 3)
    }
}

/// Where the permits of leases come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Provisioning {
    /// Nowhere: there are no leases.
    None,
    /// What grants leave of the limit.
    Strict,
    /// A reserve inside the limit, of which grants always keep one permit.
    Under {
        /// The reserve.
        reserve: Permits,
    },
    /// A budget above the limit.
    Over {
        /// The budget.
        extra: Extra,
    },
}

/// A budget above the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extra {
    /// In permits.
    Permits(Permits),
    /// As a fraction of the limit, in millionths; rounded down.
    Millionths(i64),
}

/// Counters and ceiling of one group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct GroupUsage {
    /// Permits minus released of its open grants.
    pub grants: Permits,
    /// Footprint of its open leases.
    pub leases: Permits,
    /// How many of its leases are active.
    pub live_leases: i64,
    /// Its own ceiling.
    pub limit: Option<Permits>,
    /// Whether it has one that can't be resolved.
    pub unresolved: bool,
    /// Until when demand counts as blocked by that ceiling.
    pub contended_until: Option<DbTime>,
}

/// A client as the key knows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Client {
    /// Its last committed message, or the last moment at which a call of it was open: late by at most what
    /// [`last_seen_resolution`](crate::last_seen_resolution) says. Holders write it for open calls outside of these
    /// transactions too, and it never goes back: the later of two values is kept.
    pub last_seen: DbTime,
    /// The process that speaks for it, `None` before its first message.
    pub incarnation: Option<Incarnation>,
    /// Lower generations were declared dead.
    pub lowest_generation: u64,
    /// When a process of the client was last declared dead.
    pub fenced_at: Option<DbTime>,
    /// The round that made its latest block, 0 if none.
    pub last_block: u64,
    /// What of its demand stays queued.
    pub blocked: Vec<BlockedEntry>,
    /// The round that wrote `blocked`.
    pub blocked_at: Option<DbTime>,
    /// Rows of its open leases.
    pub leases: Vec<Slot>,
    /// Sum of the fingerprints of its open blocks, each of id and status.
    pub open_blocks: u64,
}

/// A process that speaks for a client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Incarnation {
    /// Rises each time a process starts under the same client id; 0 where ids are new for each process.
    pub generation: u64,
    /// Random per start. The one first heard under its generation holds.
    pub process: Option<String>,
    /// Whether it took over what earlier generations held. The first one heard in a generation holds.
    pub resumes: bool,
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
    /// Nothing is drawn from the lease any more, says its client.
    pub stopped: bool,
    /// A lease unreported for this long is retired.
    pub ttl: Micros,
    /// The last report of a lease, or its making.
    pub reported_at: DbTime,
}

impl Block {
    /// What of the block counts against the budget. A lease counts whole until its client says that it stopped: it may
    /// have drawn after its last report.
    pub fn counted(&self) -> Permits {
        let held = if self.stopped { self.used } else { self.permits };
        held - self.released
    }

    /// Whether permits may be drawn from it.
    pub fn is_live_lease(&self) -> bool {
        self.kind == Kind::Lease && self.status == Status::Active
    }

    /// Permits of a lease that were not drawn, as last reported.
    pub fn undrawn(&self) -> Permits {
        if self.stopped { 0 } else { self.permits - self.used }
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
