//! What a holder answers to a request or a sync.

use serde::{Deserialize, Serialize};

/// The body of a 200 to `request` and `sync`. All times are what is left at the moment of the reply, ms.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reply {
    /// Protocol version: 1.
    pub v: u64,
    /// The key's latest round, 0 before the first. The client's next `seen` is the highest it got.
    pub round: u64,
    /// A verdict for each reported grant, and every open grant made in a round after `seen`.
    #[serde(default)]
    pub grants: Vec<GrantVerdict>,
    /// A verdict for each reported lease, and every open lease made in a round after `seen`.
    #[serde(default)]
    pub leases: Vec<LeaseVerdict>,
    /// Why demand stays queued; empty in the reply to a sync.
    #[serde(default)]
    pub blocked: Vec<Blocked>,
    /// Somebody's demand lacks permits of the shared limit: give idle leases back.
    #[serde(default)]
    pub contended: bool,
    /// The same for groups in which this client holds a lease.
    #[serde(default)]
    pub contended_groups: Vec<String>,
    /// Opaque; goes into the next parked sync as `known_state`.
    #[serde(default)]
    pub state: String,
    /// From the call's arrival at the holder to the round's `now`.
    #[serde(default)]
    pub held_ms: u64,
    /// By when a client that holds anything must have synced again; absent when silent clients are never settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_within_ms: Option<u64>,
    /// Time until the key's next round may start; 0 in the reply to a sync.
    #[serde(default)]
    pub next_request_in_ms: u64,
}

/// The state of one grant. For a block that the holder doesn't know only `id` and `status` are there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GrantVerdict {
    /// The grant's id, opaque.
    pub id: String,
    /// What the grant is now.
    pub status: Status,
    /// The round that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<u64>,
    /// Its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Permits it has; when `expired`, only those that were claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permits: Option<u64>,
    /// Permits claimed so far, as the holder has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<u64>,
    /// Permits released so far, as the holder has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<u64>,
    /// Time left to claim what is unclaimed; 0 once nothing can be claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_within_ms: Option<u64>,
}

/// The state of one lease. For a block that the holder doesn't know only `id` and `status` are there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeaseVerdict {
    /// The lease's id, opaque.
    pub id: String,
    /// What the lease is now.
    pub status: Status,
    /// The round that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<u64>,
    /// Its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Permits it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permits: Option<u64>,
    /// Permits drawn so far, as the holder has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drawn: Option<u64>,
    /// Permits released so far, as the holder has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<u64>,
    /// What is left of its ttl; 0 for `retired`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
}

/// What a block is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// In use.
    Active,
    /// Unclaimed permits of a grant were reclaimed; only the claimed ones exist.
    Expired,
    /// Nothing may be drawn from the lease any more; report `stopped`.
    Retired,
    /// Everything came back; nothing of the block counts.
    Settled,
    /// A grant that never existed, belongs to someone else, or was reclaimed whole.
    NotFound,
    /// A status of a newer holder.
    #[serde(other)]
    Other,
}

/// Demand of one group that stays queued, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Blocked {
    /// The group.
    pub group: String,
    /// How many items lack a permit.
    pub count: u64,
    /// Why.
    pub reason: Reason,
}

/// Why demand stays queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// An operator paused the key or the group.
    Paused,
    /// The policy's `can_grant_function` did not say yes.
    NotPermitted,
    /// The limit (or the group's) could not be resolved.
    LimitResolutionError,
    /// The group's own ceiling is reached.
    GroupLimit,
    /// The shared limit is reached.
    Limit,
    /// A reason of a newer holder.
    #[serde(other)]
    Other,
}
