//! What a holder does without being asked: says that it is alive, finds keys that are due, and forgets what nobody uses.

use crate::actor::{Command, HORIZON};
use crate::clock;
use crate::holder::Shared;
use crate::store::{StoreError, Swept};
use crate::trouble;
use std::sync::Arc;
use std::time::Duration;

/// How often keys that are due are looked for; twice within an actor's horizon, so that none is missed.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often idle keys are looked for, at the least and at the most.
const SWEEP_EVERY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));

/// A heartbeat is due this often; who missed three counts as gone.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Says once a second that this holder runs, and hears who else does, until it leaves.
pub(crate) async fn beat(shared: Arc<Shared>) {
    let mut failing = false;
    loop {
        let at = clock::now();
        let beat = shared.store.beat(&shared.name, &shared.url).await;
        let failed = beat.is_err();
        match beat {
            Err(error) => trouble::tell(&"the heartbeat could not be written", &error),
            Ok(live) => {
                shared.homes.learn(live, at);
                if failing {
                    tracing::info!("the heartbeat is written again");
                }
            }
        }
        shared.store.metrics().database_up.set([], i64::from(!failed));
        failing = failed;
        shared.joined.cancel();
        tokio::select! {
            // From when it began: a slow database makes none come late by itself.
            () = tokio::time::sleep_until((at + HEARTBEAT).into()) => {}
            () = shared.leave.cancelled() => break,
        }
    }
    if let Err(error) = shared.store.leave(&shared.name).await {
        trouble::tell(&"this holder's row could not be deleted; it counts as gone in 3 s", &error);
    }
    shared.left.cancel();
}

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
            Err(error) => trouble::tell(&"keys that are due could not be looked for", &error),
        }
        if pause(&shared, LOOK_EVERY).await {
            return;
        }
    }
}

/// Deletes the rows of keys with nothing counted, and of clients that hold nothing, without a message for `after`: in
/// sweeps, which follow each other at once while there is more than one can do.
pub(crate) async fn forget_idle_keys(shared: Arc<Shared>, after: Duration) {
    let every = (after / 4).clamp(SWEEP_EVERY.0, SWEEP_EVERY.1);
    let mut next = every;
    while !pause(&shared, next).await {
        let keys = shared.store.forget_idle_keys(after).await;
        let clients = shared.store.forget_gone_clients(after).await;
        let more = is_more("idle keys", keys) | is_more("clients that are gone", clients);
        next = if more { Duration::ZERO } else { every };
    }
}

fn is_more(what: &'static str, swept: Result<Swept, StoreError>) -> bool {
    match swept {
        Ok(Swept { forgotten, more }) => {
            if forgotten > 0 {
                tracing::debug!(what, forgotten, "swept");
            }
            more
        }
        Err(error) => {
            trouble::tell(&format_args!("{what} could not be forgotten"), &error);
            false
        }
    }
}

/// Waits; true if the holder stops.
pub(crate) async fn pause(shared: &Shared, pause: Duration) -> bool {
    tokio::select! {
        () = tokio::time::sleep(pause) => false,
        () = shared.stop.cancelled() => true,
    }
}
