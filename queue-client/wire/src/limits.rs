//! The ranges of protocol version 1, in one place. Lengths are bytes of UTF-8, times are milliseconds.

/// The protocol version that this crate speaks.
pub const VERSION: u64 = 1;
/// Longest semaphore key.
pub const KEY_MAX_BYTES: usize = 512;
/// Longest `client_id`.
pub const CLIENT_ID_MAX_BYTES: usize = 256;
/// Longest group; the empty group is a group.
pub const GROUP_MAX_BYTES: usize = 256;
/// Longest `process`.
pub const PROCESS_MAX_BYTES: usize = 64;
/// Longest id of a block.
pub const BLOCK_ID_MAX_BYTES: usize = 64;
/// Longest `state` / `known_state`.
pub const STATE_MAX_BYTES: usize = 64;
/// Largest count of permits in a demand or a report.
pub const COUNT_MAX: u64 = 1_000_000;
/// Largest `oldest_age_ms`: ten years of 365 days.
pub const OLDEST_AGE_MAX_MS: u64 = 10 * 365 * 86_400_000;
/// Longest parking, `wait_ms`.
pub const WAIT_MAX_MS: u64 = 60_000;
/// `generation`, `call`, `seen` and rounds stay below 2^53, exact in every JSON implementation.
pub const SAFE_INTEGER_MAX: u64 = (1 << 53) - 1;
/// Most demand entries in one message.
pub const DEMAND_MAX: usize = 1_000;
/// Most reports, of grants and leases together, in one message.
pub const REPORTS_MAX: usize = 10_000;
/// Largest body of a message.
pub const BODY_MAX_BYTES: usize = 4 * 1024 * 1024;
