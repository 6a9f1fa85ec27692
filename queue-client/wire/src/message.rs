//! What a client says: the body of `request` and of `sync`.

use crate::limits::{
    BLOCK_ID_MAX_BYTES, CLIENT_ID_MAX_BYTES, COUNT_MAX, GROUP_MAX_BYTES, OLDEST_AGE_MAX_MS,
    PROCESS_MAX_BYTES, SAFE_INTEGER_MAX, STATE_MAX_BYTES, VERSION, WAIT_MAX_MS,
};
use crate::strict;
use serde::{Deserialize, Serialize};

/// The body of a `request` or a `sync`. A sync has no demand; a holder ignores one that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Message {
    /// Protocol version: 1.
    #[serde(deserialize_with = "strict::integer::<_, SAFE_INTEGER_MAX>")]
    pub v: u64,
    /// The job-queue process that speaks: 1 to 256 bytes without NUL.
    #[serde(deserialize_with = "strict::text::<_, 1, CLIENT_ID_MAX_BYTES>")]
    pub client_id: String,
    /// Rises each time a process starts under the same `client_id`; 0: the `client_id` is new for each process.
    #[serde(default, deserialize_with = "strict::integer::<_, SAFE_INTEGER_MAX>")]
    pub generation: u64,
    /// Random per process start; required when `generation` is above 0.
    #[serde(
        default,
        deserialize_with = "strict::nullable_text::<_, 1, PROCESS_MAX_BYTES>",
        skip_serializing_if = "Option::is_none"
    )]
    pub process: Option<String>,
    /// Whether open blocks of earlier generations are taken over rather than settled.
    #[serde(default)]
    pub resume: bool,
    /// Number of this call within the process; a higher one supersedes the waiting one.
    #[serde(
        default,
        deserialize_with = "strict::some_integer::<_, SAFE_INTEGER_MAX>",
        skip_serializing_if = "Option::is_none"
    )]
    pub call: Option<u64>,
    /// The highest round heard in a reply; blocks of later rounds are delivered again.
    #[serde(default, deserialize_with = "strict::integer::<_, SAFE_INTEGER_MAX>")]
    pub seen: u64,
    /// This message reports every block of rounds up to `seen` that this process holds.
    #[serde(default)]
    pub all: bool,
    /// How long the call may be parked, ms.
    #[serde(default, deserialize_with = "strict::integer::<_, WAIT_MAX_MS>")]
    pub wait_ms: u64,
    /// The `state` of the last reply, for a parked sync.
    #[serde(
        default,
        deserialize_with = "strict::nullable_text::<_, 0, STATE_MAX_BYTES>",
        skip_serializing_if = "Option::is_none"
    )]
    pub known_state: Option<String>,
    /// What is queued, one entry per group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub demand: Vec<Demand>,
    /// Reports of grants.
    #[serde(default, deserialize_with = "strict::some_list", skip_serializing_if = "Option::is_none")]
    pub grants: Option<Vec<GrantReport>>,
    /// Reports of leases; a request without this field can't hold leases.
    #[serde(default, deserialize_with = "strict::some_list", skip_serializing_if = "Option::is_none")]
    pub leases: Option<Vec<LeaseReport>>,
}

impl Message {
    /// A message of `client_id` that says nothing yet.
    pub fn new(client_id: impl Into<String>) -> Self {
        Self {
            v: VERSION,
            client_id: client_id.into(),
            generation: 0,
            process: None,
            resume: false,
            call: None,
            seen: 0,
            all: false,
            wait_ms: 0,
            known_state: None,
            demand: Vec::new(),
            grants: None,
            leases: None,
        }
    }
}

/// Items queued in one group for which the client holds no unclaimed or undrawn permit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Demand {
    /// The group; absent means the empty group.
    #[serde(default, deserialize_with = "strict::text::<_, 0, GROUP_MAX_BYTES>")]
    pub group: String,
    /// How many items, in permits: 0 to 1,000,000.
    #[serde(deserialize_with = "strict::integer::<_, COUNT_MAX>")]
    pub count: u64,
    /// How long the oldest of them has waited, by the client's clock, ms: 0 to ten years.
    #[serde(default, deserialize_with = "strict::integer::<_, OLDEST_AGE_MAX_MS>")]
    pub oldest_age_ms: u64,
}

/// Cumulative counts of one grant; they only move forward.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GrantReport {
    /// The grant's id: 1 to 64 bytes.
    #[serde(deserialize_with = "strict::text::<_, 1, BLOCK_ID_MAX_BYTES>")]
    pub id: String,
    /// Permits used for an item so far.
    #[serde(default, deserialize_with = "strict::integer::<_, COUNT_MAX>")]
    pub claimed: u64,
    /// Of those, how many came back.
    #[serde(default, deserialize_with = "strict::integer::<_, COUNT_MAX>")]
    pub released: u64,
}

/// Cumulative counts of one lease; each report is a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeaseReport {
    /// The lease's id: 1 to 64 bytes.
    #[serde(deserialize_with = "strict::text::<_, 1, BLOCK_ID_MAX_BYTES>")]
    pub id: String,
    /// Permits drawn so far.
    #[serde(default, deserialize_with = "strict::integer::<_, COUNT_MAX>")]
    pub drawn: u64,
    /// Of those, how many came back.
    #[serde(default, deserialize_with = "strict::integer::<_, COUNT_MAX>")]
    pub released: u64,
    /// Nothing is drawn from this lease any more.
    #[serde(default)]
    pub stopped: bool,
}
