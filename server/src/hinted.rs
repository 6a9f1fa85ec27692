//! Keys of which hints came: what the hints say is looked up, for all of them in one statement.
//!
//! However many hints come, they cost one read each 20 ms, of keys that this holder has in memory. What a hint changes
//! beyond that is up to the key's actor, see `changes`.

use crate::actor::Command;
use crate::hints::News;
use crate::holder::Shared;
use crate::housekeeping::pause;
use pgsemaphore_allocation::SemaphoreKey;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Hints are looked up no closer than this.
const PAUSE: Duration = Duration::from_millis(20);

/// What hints said, until it is looked up.
#[derive(Default)]
pub(crate) struct Hinted {
    news: Mutex<HashMap<SemaphoreKey, News>>,
    filled: Notify,
}

impl Hinted {
    /// Has a key looked up, soon.
    pub(crate) fn put(&self, key: SemaphoreKey, news: News) {
        let mut waiting = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.entry(key).and_modify(|waiting| *waiting = news.max(*waiting)).or_insert(news);
        self.filled.notify_one();
    }

    fn take(&self) -> HashMap<SemaphoreKey, News> {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Looks up keys of which hints came, until the holder stops. Where that fails the hints are lost: parked calls are
/// looked at every 5 s.
pub(crate) async fn look_up(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            () = shared.hinted.filled.notified() => {}
            () = shared.stop.cancelled() => return,
        }
        let news = shared.hinted.take();
        match shared.store.versions(news.keys()).await {
            Ok(versions) => tell(&shared, &news, versions),
            Err(error) => tracing::debug!(%error, "hints could not be looked up"),
        }
        if pause(&shared, PAUSE).await {
            return;
        }
    }
}

fn tell(shared: &Shared, news: &HashMap<SemaphoreKey, News>, versions: Vec<(SemaphoreKey, i64)>) {
    for (key, version) in versions {
        if let Some(news) = news.get(&key) {
            shared.keys.tell(&key, Command::Hint(*news, version));
        }
    }
}
