//! What a process says to take over from its predecessor on all keys at once, and the answer.

use crate::limits::{PROCESS_MAX_BYTES, SAFE_INTEGER_MAX, VERSION};
use crate::strict;
use serde::{Deserialize, Serialize};

/// The body of a `takeover`: what each message of this process says of it, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Takeover {
    /// Protocol version: 1.
    #[serde(deserialize_with = "strict::integer::<_, SAFE_INTEGER_MAX>")]
    pub v: u64,
    /// Above that of every earlier process of this `client_id`.
    #[serde(deserialize_with = "strict::integer::<_, SAFE_INTEGER_MAX>")]
    pub generation: u64,
    /// Random per process start: 1 to 64 bytes.
    #[serde(deserialize_with = "strict::text::<_, 1, PROCESS_MAX_BYTES>")]
    pub process: String,
    /// Whether open blocks of earlier generations are taken over rather than settled.
    #[serde(default)]
    pub resume: bool,
}

impl Takeover {
    /// A takeover by this process.
    pub fn new(generation: u64, process: impl Into<String>, resume: bool) -> Self {
        Self { v: VERSION, generation, process: process.into(), resume }
    }
}

/// The body of a 200 to a `takeover`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TakenOver {
    /// Protocol version: 1.
    pub v: u64,
    /// Keys on which an earlier process held something.
    #[serde(default)]
    pub keys: Vec<TakenOverKey>,
    /// Keys on which a later process has taken over, or the client was settled; they are left alone.
    #[serde(default)]
    pub fenced: Vec<FencedKey>,
}

/// What an earlier process held of one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TakenOverKey {
    /// The key.
    pub key: String,
    /// Permits of grants: settled, or with `resume` still counted.
    pub grants: u64,
    /// The same of leases.
    pub leases: u64,
}

/// A key from which the process is shut out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FencedKey {
    /// The key.
    pub key: String,
    /// The lowest generation that it admits.
    pub generation: u64,
}
