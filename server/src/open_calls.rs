//! Calls that are open at this holder. As long as a caller waits for its answer, its client is heard.
//!
//! Authoritative for which clients have a call open here. A call is open from its arrival until it is answered or its
//! caller hangs up, whether it waits for its first transaction or is parked.

use pgsemaphore_allocation::{ClientId, Incarnation, SemaphoreKey};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A call that is open for less than this is not noted outside of its own transaction: 0.5 s, a tenth of the shortest
/// silence after which a policy may declare a client dead.
pub(crate) const AT_FIRST: Duration = Duration::from_millis(500);

/// Who made an open call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Voice {
    pub(crate) client: ClientId,
    pub(crate) from: Incarnation,
}

/// Calls of one process that are open for one key.
struct Open {
    calls: usize,
    /// When it is to be noted that the client is heard.
    due: Instant,
}

/// The open calls of a holder.
#[derive(Default)]
pub(crate) struct OpenCalls {
    keys: Mutex<HashMap<SemaphoreKey, HashMap<Voice, Open>>>,
}

/// A call that is open for as long as this exists.
pub(crate) struct OpenCall {
    open: Arc<OpenCalls>,
    key: SemaphoreKey,
    voice: Voice,
}

impl OpenCalls {
    /// Opens a call of `voice` for `key` at `now`.
    pub(crate) fn open(self: &Arc<Self>, key: &SemaphoreKey, voice: Voice, now: Instant) -> OpenCall {
        let mut keys = self.lock();
        let of_key = keys.entry(key.clone()).or_default();
        of_key.entry(voice.clone()).or_insert(Open { calls: 0, due: now + AT_FIRST }).calls += 1;
        OpenCall { open: self.clone(), key: key.clone(), voice }
    }

    /// Who has a call open that is due by `now`.
    pub(crate) fn due(&self, now: Instant) -> Vec<(SemaphoreKey, Voice)> {
        let keys = self.lock();
        let due = |(key, of_key): (&SemaphoreKey, &HashMap<Voice, Open>)| {
            let due = of_key.iter().filter(|(_, open)| open.due <= now);
            due.map(|(voice, _)| (key.clone(), voice.clone())).collect::<Vec<_>>()
        };
        keys.iter().flat_map(due).collect()
    }

    /// Has the open calls of `voice` for `key` due at `due`.
    pub(crate) fn put_off(&self, key: &SemaphoreKey, voice: &Voice, due: Instant) {
        if let Some(open) = self.lock().get_mut(key).and_then(|of_key| of_key.get_mut(voice)) {
            open.due = due;
        }
    }

    fn close(&self, key: &SemaphoreKey, voice: &Voice) {
        let mut keys = self.lock();
        let Some(of_key) = keys.get_mut(key) else { return };
        if let Some(open) = of_key.get_mut(voice) {
            open.calls -= 1;
            if open.calls == 0 {
                of_key.remove(voice);
            }
        }
        if of_key.is_empty() {
            keys.remove(key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SemaphoreKey, HashMap<Voice, Open>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.open.close(&self.key, &self.voice);
    }
}

#[cfg(test)]
mod tests {
    use super::{AT_FIRST, OpenCalls, Voice};
    use pgsemaphore_allocation::{ClientId, Incarnation, SemaphoreKey};
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn a_client_is_due_while_one_of_its_calls_is_open() {
        let (open, key) = (Arc::<OpenCalls>::default(), SemaphoreKey::new("k"));
        let voice = Voice { client: ClientId::new("c"), from: Incarnation::default() };
        let now = crate::clock::now();
        let calls = [(); 2].map(|()| open.open(&key, voice.clone(), now));
        assert_eq!(open.due(now), []);
        let due = now + AT_FIRST;
        let [one, other] = calls;
        drop(one);
        assert_eq!(open.due(due), [(key.clone(), voice.clone())]);
        open.put_off(&key, &voice, due + Duration::from_secs(5));
        assert_eq!(open.due(due), []);
        drop(other);
        assert_eq!(open.due(due + Duration::from_secs(5)), []);
        assert!(open.lock().is_empty());
    }
}
