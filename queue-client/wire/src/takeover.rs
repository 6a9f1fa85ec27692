//! A client's new process, on all keys at once: the body of `takeover` and its answer.

use crate::limits::{PROCESS_MAX_BYTES, SAFE_INTEGER_MAX, VERSION};
use crate::strict;
use serde::{Deserialize, Serialize};

/// Says that earlier processes of the client start nothing more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Takeover {
    /// Protocol version: 1.
    #[serde(deserialize_with = "strict::integer::<_, SAFE_INTEGER_MAX>")]
    pub v: u64,
    /// Above that of every earlier process of the client.
    #[serde(deserialize_with = "strict::integer::<_, SAFE_INTEGER_MAX>")]
    pub generation: u64,
    /// Random per process start: 1 to 64 bytes.
    #[serde(deserialize_with = "strict::text::<_, 1, PROCESS_MAX_BYTES>")]
    pub process: String,
    /// Whether it goes on with what the earlier processes hold; else all of that comes back.
    #[serde(default)]
    pub resume: bool,
}

impl Takeover {
    /// A takeover by `process`.
    pub fn new(generation: u64, process: impl Into<String>, resume: bool) -> Self {
        Self { v: VERSION, generation, process: process.into(), resume }
    }
}

/// What the client held, on each key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TakeoverReply {
    /// Protocol version: 1.
    pub v: u64,
    /// Keys that are this process's now.
    pub keys: Vec<TakenOver>,
    /// Keys on which a process of a higher generation, or another one of the same, speaks for the client.
    pub fenced: Vec<FencedKey>,
}

/// Permits of one key that came back or, with `resume`, go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TakenOver {
    /// The key.
    pub key: String,
    /// Permits of grants.
    pub grants: u64,
    /// Footprints of leases.
    pub leases: u64,
}

/// A key that was left alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FencedKey {
    /// The key.
    pub key: String,
    /// The lowest generation admitted there.
    pub generation: u64,
}
