//! Whether whoever waits is served while there are permits.

use super::{Hanging, SECOND};
use crate::audit::{Verdict, violated};
use pgsemaphore_allocation::Micros;

/// So long an item may wait though a permit is free.
const SERVED_WITHIN: Micros = 15 * SECOND;

impl Hanging {
    pub(super) fn nobody_waits_in_vain(&mut self) -> Verdict {
        let (rows, now) = (self.world.rows(), self.world.time);
        let used = rows.semaphore.grants + rows.semaphore.leases;
        let limit = self.world.limits.policy.limit.unwrap_or(0);
        let waits = self.world.processes.iter().any(|process| !process.waiting.is_empty());
        if used >= limit || !waits {
            self.idle_since = None;
            return Ok(());
        }
        let since = *self.idle_since.get_or_insert(now);
        if now - since < SERVED_WITHIN {
            return Ok(());
        }
        violated("P4", format!("{used} of {limit} permits are in use, and somebody waits for 15 s"))
    }
}
