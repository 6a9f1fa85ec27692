//! Notes in the database that clients with an open call are heard, so that no holder takes them for silent.
//!
//! A transaction notes it too, of the calls that take part in it. But a call may wait longer for its first round than
//! its client may be silent, and a parked one causes none. What is noted here is late by at most [`LOOK_EVERY`] or twice
//! the resolution of `last_seen`, whichever is less, and half a second: far less than a client may be silent.

use crate::clock;
use crate::holder::Shared;
use crate::housekeeping::pause;
use crate::open_calls::{AT_FIRST, Voice};
use crate::trouble;
use pgsemaphore_allocation::SemaphoreKey;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Open calls of a key whose policy may have changed meanwhile are looked at again after this.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Clients that one statement notes.
const AT_ONCE: usize = 1000;

/// Notes who has a call open, until the holder stops.
pub(crate) async fn note_open_calls(shared: Arc<Shared>) {
    while !pause(&shared, AT_FIRST).await {
        for calls in shared.open_calls.due(clock::now()).chunks(AT_ONCE) {
            if let Err(error) = note(&shared, calls).await {
                trouble::tell(&"it could not be noted that clients with open calls are heard", &error);
            }
        }
    }
}

async fn note(shared: &Shared, calls: &[(SemaphoreKey, Voice)]) -> Result<(), crate::StoreError> {
    let resolutions: HashMap<SemaphoreKey, Duration> = shared.store.hear(calls).await?.into_iter().collect();
    let now = clock::now();
    for (key, voice) in calls {
        let resolution = resolutions.get(key).copied().unwrap_or(LOOK_EVERY);
        shared.open_calls.put_off(key, voice, now + resolution.clamp(AT_FIRST, LOOK_EVERY));
    }
    Ok(())
}
