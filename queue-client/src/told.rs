//! What happens is told in three ways: to listeners, by metrics, and in the application's log.
//!
//! Authoritative for what is logged at which level. What goes on for long is logged when it begins and when it ends.

use std::sync::atomic::Ordering;

use queue_wire::Reason;

use crate::blocked::{Blocked, Cause};
use crate::client::Inner;
use crate::events::Event;
use crate::warning::{self, guarded};

impl Inner {
    pub(crate) fn tell(&self, event: Event) {
        guarded(|| log(&event));
        guarded(|| self.metrics.event(&event));
        guarded(|| self.feed.tell(|| event));
    }
}

impl Inner {
    /// Somebody waits for long.
    pub(crate) fn long_wait(&self, key: &str, blocked: &Blocked) {
        let Blocked { group, waiting, cause, since } = blocked;
        let since = since.elapsed();
        let usual = matches!(cause, Cause::Asked | Cause::Refused(Reason::Limit | Reason::GroupLimit));
        guarded(|| match usual {
            true => tracing::info!(key, group, waiting, reason = %cause, ?since, "permits are waited for"),
            false => tracing::warn!(key, group, waiting, reason = %cause, ?since, "permits are waited for"),
        });
    }

    /// No holder answers, from now on.
    pub(crate) fn no_holder_answers(&self, key: &str, error: &str) {
        guarded(|| tracing::warn!(key, error, "no holder answers: calls are repeated until one does"));
        if self.aloud && !self.said.swap(true, Ordering::Relaxed) {
            warning::on_standard_error(&format!(
                "no holder answers, calls are repeated until one does: {error}"
            ));
        }
    }
}

fn log(event: &Event) {
    match event {
        Event::Granted { key, group, permits } => tracing::debug!(key = &**key, group, permits, "granted"),
        Event::Leased { key, group, permits } => tracing::debug!(key = &**key, group, permits, "leased"),
        Event::LeaseRetired { key, group, undrawn } => {
            tracing::debug!(key = &**key, group, undrawn, "the holder wants a lease back");
        }
        Event::Blocked { key, group, count, reason } => {
            tracing::debug!(key = &**key, group, count, ?reason, "no permit");
        }
        Event::Contended { key, contended, groups } => {
            tracing::debug!(key = &**key, contended, ?groups, "others lack permits, or do not any more");
        }
        Event::Fenced { key, generation } => {
            tracing::error!(
                key = &**key,
                generation,
                "this process is shut out: what runs on the semaphore is not counted"
            );
        }
        Event::Uncounted { key, items } => {
            tracing::warn!(key = &**key, items, "the holder no longer counts items that still run");
        }
        Event::Reachable { key, after } => tracing::info!(key = &**key, ?after, "a holder answers again"),
        Event::HeartbeatLate { key, late_by } => {
            tracing::warn!(key = &**key, ?late_by, "a heartbeat is late: something blocks the runtime");
        }
        // The first of many is logged: see `driver.rs`. The last is told to one listener.
        Event::Unreachable { .. } | Event::Missed { .. } => {}
    }
}
