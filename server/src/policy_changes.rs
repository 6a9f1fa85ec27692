//! What changes of policies mean for keys in memory, and for keys whose silent clients are judged.
//!
//! Anybody can say by NOTIFY that policies changed. So it costs one read of the policies, at most once a second, and only
//! where they did change it is read which policy wins for which key. Each key's actor is told, and looks again if that is
//! another policy than it knows.

use crate::actor::Command;
use crate::clock;
use crate::holder::Shared;
use crate::housekeeping::pause;
use crate::store::StoreError;
use crate::trouble;
use std::sync::Arc;
use std::time::Duration;

/// Policies are read no more often than this, and at most half as much later, so that holders don't all do it at once.
const READ_AT_MOST_EVERY: Duration = Duration::from_secs(1);
/// How often they are read without a hint.
const READ_EVERY: Duration = Duration::from_secs(5);
/// Keys whose policies are read in one statement, at least; and in how many statements those of all keys are read.
const AT_ONCE: usize = 100;
const STATEMENTS: usize = 20;
/// Pause between these statements: keys whose policy changed don't all look at once.
const BETWEEN: Duration = Duration::from_millis(50);

/// Reads the policies at the start, after each hint, and now and then, until the holder stops.
pub(crate) async fn watch(shared: Arc<Shared>) {
    let mut hints = shared.policies.subscribe();
    let mut known = None;
    loop {
        hints.mark_unchanged();
        match heed(&shared, known.as_ref()).await {
            Ok(found) => known = Some(found),
            Err(error) => trouble::tell(&"changes of policies could not be read", &error),
        }
        if pause(&shared, READ_AT_MOST_EVERY.mul_f64(rand::random_range(1.0..1.5))).await {
            return;
        }
        tokio::select! {
            Ok(()) = hints.changed() => {}
            () = tokio::time::sleep(READ_EVERY) => {}
            () = shared.stop.cancelled() => return,
        }
    }
}

/// Has keys look again whose policy changed since the policies were as `known` says. Gives how they are now.
async fn heed(shared: &Arc<Shared>, known: Option<&String>) -> Result<String, StoreError> {
    let found = shared.store.policies_stamp().await?;
    if known == Some(&found) {
        return Ok(found);
    }
    judge_silence_anew(shared).await?;
    let keys = shared.keys.all();
    for keys in keys.chunks(AT_ONCE.max(keys.len().div_ceil(STATEMENTS))) {
        for (key, stamp) in shared.store.winners(keys).await? {
            shared.keys.tell(&key, Command::Policy(stamp));
        }
        if keys.len() >= AT_ONCE && pause(shared, BETWEEN).await {
            break;
        }
    }
    Ok(found)
}

/// Wakes the actors of keys in use whose policy says something new about silent clients: their rows have to know when to
/// look.
async fn judge_silence_anew(shared: &Arc<Shared>) -> Result<(), StoreError> {
    let now = clock::now();
    let keys = shared.store.keys_to_judge().await?;
    keys.iter().for_each(|key| shared.keys.send(shared, key, Command::Due(now)));
    Ok(())
}
