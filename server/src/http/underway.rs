//! Requests that wait at other holders, as far as they may have to give way to newer ones.
//!
//! A home supersedes requests that wait at it by itself. A request that was passed on before its key's home moved waits
//! at another holder than the newer one of its process, and nobody but the holder that passed both on knows both.

use crate::speaker::Speaker;
use pgsemaphore_allocation::{ClientId, SemaphoreKey};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;

/// The requests that wait at other holders.
#[derive(Debug, Default)]
pub(super) struct UnderWay(Mutex<HashMap<(SemaphoreKey, ClientId), Vec<Waits>>>);

#[derive(Debug)]
struct Waits {
    speaker: Speaker,
    home: String,
    gives_way: CancellationToken,
}

/// A request that waits at another holder, until this is dropped.
pub(super) struct Place<'a> {
    all: &'a UnderWay,
    of: (SemaphoreKey, ClientId),
    gives_way: CancellationToken,
}

impl UnderWay {
    /// Notes that a request waits at that home.
    pub(super) fn begin(&self, key: &SemaphoreKey, speaker: &Speaker, home: &str) -> Place<'_> {
        let of = (key.clone(), speaker.client.clone());
        let gives_way = CancellationToken::new();
        let waits = Waits { speaker: speaker.clone(), home: home.to_owned(), gives_way: gives_way.clone() };
        self.all().entry(of.clone()).or_default().push(waits);
        Place { all: self, of, gives_way }
    }

    /// Older requests of the process that makes this one give way, but for those that wait at the same home.
    pub(super) fn give_way(&self, key: &SemaphoreKey, new: &Speaker, home: Option<&str>) {
        let of = (key.clone(), new.client.clone());
        for waits in self.all().get(&of).into_iter().flatten() {
            if home != Some(waits.home.as_str()) && waits.speaker.gives_way_to(new) {
                waits.gives_way.cancel();
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<(SemaphoreKey, ClientId), Vec<Waits>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Ready when the request has to give way.
    pub(super) async fn gives_way(&self) {
        self.gives_way.cancelled().await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // By this it is found; others that have to give way are about to go too.
        self.gives_way.cancel();
        let mut all = self.all.all();
        if let Some(waiting) = all.get_mut(&self.of) {
            waiting.retain(|waits| !waits.gives_way.is_cancelled());
            if waiting.is_empty() {
                all.remove(&self.of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::UnderWay;
    use crate::speaker::Speaker;
    use futures_util::poll;
    use pgsemaphore_allocation::SemaphoreKey;
    use queue_wire::Message;

    fn speaker(client: &str, call: u64) -> Speaker {
        Speaker::of(&Message { call: Some(call), ..Message::new(client) })
    }

    #[tokio::test]
    async fn an_older_request_gives_way_unless_its_home_sees_to_it() {
        let (all, key) = (UnderWay::default(), SemaphoreKey::new("k"));
        let place = all.begin(&key, &speaker("w", 5), "a");
        let mut gives_way = Box::pin(place.gives_way());
        all.give_way(&key, &speaker("w", 6), Some("a"));
        all.give_way(&key, &speaker("w", 5), Some("b"));
        all.give_way(&key, &speaker("w", 4), None);
        all.give_way(&key, &speaker("other", 6), None);
        all.give_way(&SemaphoreKey::new("other"), &speaker("w", 6), None);
        assert!(poll!(&mut gives_way).is_pending());
        all.give_way(&key, &speaker("w", 6), Some("b"));
        gives_way.await;
    }

    #[tokio::test]
    async fn a_request_is_forgotten_with_its_place() {
        let (all, key) = (UnderWay::default(), SemaphoreKey::new("k"));
        let first = all.begin(&key, &speaker("w", 1), "a");
        let second = all.begin(&key, &speaker("w", 2), "a");
        drop(first);
        assert_eq!(all.all().values().map(Vec::len).sum::<usize>(), 1);
        drop(second);
        assert!(all.all().is_empty());
    }
}
