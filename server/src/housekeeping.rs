//! What a holder does without being asked: finds keys that are due, and forgets keys that nobody uses.

use crate::actor::{Command, HORIZON};
use crate::clock;
use crate::holder::Shared;
use std::sync::Arc;
use std::time::Duration;

/// How often keys that are due are looked for; twice within an actor's horizon, so that none is missed.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often idle keys are looked for, at the least and at the most.
const SWEEP_EVERY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));

/// Wakes the actors of keys that are due, those that no holder has in memory included. At once after a start.
pub(crate) async fn watch_deadlines(shared: Arc<Shared>) {
    loop {
        match shared.store.due_keys(HORIZON).await {
            Ok(due) => {
                let now = clock::now();
                for due in due {
                    shared.keys.send(&shared, &due.key, Command::Due(now + due.due_in));
                }
            }
            Err(error) => tracing::warn!(%error, "keys that are due could not be looked for"),
        }
        if pause(&shared, LOOK_EVERY).await {
            return;
        }
    }
}

/// Deletes the rows of keys with nothing counted and no message for `after`.
pub(crate) async fn forget_idle_keys(shared: Arc<Shared>, after: Duration) {
    let every = (after / 4).clamp(SWEEP_EVERY.0, SWEEP_EVERY.1);
    while !pause(&shared, every).await {
        match shared.store.forget_idle_keys(after).await {
            Ok(0) => {}
            Ok(keys) => tracing::debug!(keys, "forgot idle keys"),
            Err(error) => tracing::warn!(%error, "idle keys could not be forgotten"),
        }
    }
}

/// Waits; true if the holder stops.
async fn pause(shared: &Shared, pause: Duration) -> bool {
    tokio::select! {
        () = tokio::time::sleep(pause) => false,
        () = shared.stop.cancelled() => true,
    }
}
