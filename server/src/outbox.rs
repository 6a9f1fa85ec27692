//! Hints to other holders: gathered, and sent after COMMIT on a connection of their own.
//!
//! NOTIFY takes a lock of the whole cluster at COMMIT, so no transaction of a key does it, and one statement tells of
//! many keys. A hint that can't be sent is dropped: whom it concerns looks again within 5 s.

use crate::hints::News;
use crate::holder::Shared;
use pgsemaphore_allocation::SemaphoreKey;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Hints are sent no closer than this.
const PAUSE: Duration = Duration::from_millis(20);

/// Keys of which others are to be told.
#[derive(Default)]
pub(crate) struct Outbox {
    news: Mutex<HashMap<SemaphoreKey, News>>,
    filled: Notify,
}

impl Outbox {
    /// Has others told, soon.
    pub(crate) fn put(&self, key: &SemaphoreKey, news: News) {
        let mut waiting = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        match waiting.get_mut(key) {
            Some(waiting) => *waiting = news.max(*waiting),
            None => drop(waiting.insert(key.clone(), news)),
        }
        self.filled.notify_one();
    }

    /// The payloads that tell what was put, as the holder of this name.
    fn take(&self, holder: &str) -> Vec<String> {
        let news = std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner));
        news.into_iter().map(|(key, news)| news.payload(holder, &key)).collect()
    }
}

/// Sends what is put into the outbox until the holder stops.
pub(crate) async fn send_hints(shared: Arc<Shared>) {
    let send = async {
        loop {
            shared.outbox.filled.notified().await;
            if let Err(error) = shared.store.notify(&shared.outbox.take(&shared.name)).await {
                tracing::debug!(%error, "hints could not be sent");
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::select! {
        () = send => {}
        () = shared.stop.cancelled() => {}
    }
}
