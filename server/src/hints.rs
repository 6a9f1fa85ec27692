//! Hints from other holders and from psql, by NOTIFY. Hints only: what they speed up happens without them too, later.
//! Everybody with a login can send one, so none is believed: what changed is read from the tables, see `policy_changes`
//! and `hinted`.
//!
//! A payload on the channel is one of
//!
//! - `policies`: some policy or group limit changed;
//! - `freed HOLDER KEY`: permits of the key came back that somebody lacks;
//! - `changed HOLDER KEY`: so they may have, and the state of clients that were not answered may differ: blocks that
//!   were taken from them, or what is contended.
//!
//! `HOLDER` is the name of the holder that tells, which doesn't need its own hints; `-` for none. `KEY` is the rest, as it
//! is. A hint is sent after COMMIT, or in its transaction. Payloads that are none of these are ignored.
//!
//! Behind a pooler nobody can listen. What hints tell is found by looking, every 5 s.

use crate::holder::Shared;
use pgsemaphore_allocation::SemaphoreKey;
use sqlx::postgres::{PgListener, PgPoolOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// The channel on which changes are told.
const CHANNEL: &str = "pgsemaphore";
/// Payload: some policy or group limit.
const POLICIES: &str = "policies";
/// Pause between attempts to listen, at most; at least half of it.
const RETRY: Duration = Duration::from_secs(2);
/// How often it is tried whether anybody could be heard, and how long that may take: who only listens is not told that
/// the other side has vanished.
const TRY_EVERY: Duration = Duration::from_secs(10);
const TRY_TIMEOUT: Duration = Duration::from_secs(5);

/// What holders tell each other of a key; the latter includes the former.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum News {
    /// Permits came back.
    Freed,
    /// The state of clients may differ.
    Changed,
}

impl News {
    /// The payload that tells this of a key.
    pub(crate) fn payload(self, holder: &str, key: &SemaphoreKey) -> String {
        let word = match self {
            Self::Freed => "freed",
            Self::Changed => "changed",
        };
        format!("{word} {holder} {key}")
    }

    /// What a payload tells, by whom, and of which key.
    fn read(payload: &str) -> Option<(Self, &str, SemaphoreKey)> {
        let (word, rest) = payload.split_once(' ')?;
        let (holder, key) = rest.split_once(' ')?;
        let news = match word {
            "freed" => Self::Freed,
            "changed" => Self::Changed,
            _ => return None,
        };
        Some((news, holder, SemaphoreKey::new(key)))
    }
}

/// What this process has been told of changes of policies.
#[derive(Debug, Default)]
pub(crate) struct Epoch {
    own: AtomicU64,
    hints: watch::Sender<()>,
}

impl Epoch {
    /// How many changes were made through this holder.
    pub(crate) fn own(&self) -> u64 {
        self.own.load(Ordering::Relaxed)
    }

    /// A policy was changed through this holder.
    pub(crate) fn advance(&self) {
        self.own.fetch_add(1, Ordering::Relaxed);
        self.hint();
    }

    /// Policies may have changed.
    pub(crate) fn hint(&self) {
        self.hints.send_replace(());
    }

    /// Hears that policies may have changed, from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.hints.subscribe()
    }
}

/// Listens until the holder stops, on a connection of its own.
pub(crate) async fn listen(shared: Arc<Shared>) {
    if shared.store.is_deaf() {
        tracing::warn!(
            "behind a pooler nothing is heard from psql and other holders: changes are looked for every 5 s"
        );
        return;
    }
    loop {
        tokio::select! {
            Err(error) = listen_once(&shared) => tracing::debug!(%error, "not listening for hints"),
            () = shared.stop.cancelled() => return,
        }
        shared.policies.hint();
        tokio::select! {
            () = tokio::time::sleep(RETRY.mul_f64(rand::random_range(0.5..1.0))) => {}
            () = shared.stop.cancelled() => return,
        }
    }
}

async fn listen_once(shared: &Shared) -> Result<std::convert::Infallible, sqlx::Error> {
    let pool = PgPoolOptions::new().max_connections(1).connect_with(shared.store.options().clone()).await?;
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen(CHANNEL).await?;
    shared.policies.hint();
    loop {
        match tokio::time::timeout(TRY_EVERY, listener.try_recv()).await {
            Ok(hint) => match hint? {
                Some(hint) => heed(shared, hint.payload()),
                None => shared.policies.hint(),
            },
            Err(_) => try_out(&mut listener).await?,
        }
    }
}

async fn try_out(listener: &mut PgListener) -> Result<(), sqlx::Error> {
    let late = |_| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
    tokio::time::timeout(TRY_TIMEOUT, sqlx::raw_sql("SELECT").execute(listener)).await.map_err(late)??;
    Ok(())
}

fn heed(shared: &Shared, payload: &str) {
    if payload == POLICIES {
        return shared.policies.hint();
    }
    if let Some((news, holder, key)) = News::read(payload)
        && holder != shared.name
        && shared.keys.contain(&key)
    {
        shared.hinted.put(key, news);
    }
}

#[cfg(test)]
mod tests {
    use super::News;
    use pgsemaphore_allocation::SemaphoreKey;

    #[test]
    fn what_is_told_is_read_whatever_the_key_is() {
        for key in ["k", " ", "freed - k", "a b\n", "ключ"] {
            for news in [News::Freed, News::Changed] {
                let key = SemaphoreKey::new(key);
                let payload = news.payload("-", &key);
                assert_eq!(News::read(&payload), Some((news, "-", key)));
            }
        }
    }

    #[test]
    fn other_payloads_tell_nothing() {
        for payload in ["", "policies", "freed", "freed -", "freedom - k"] {
            assert_eq!(News::read(payload), None, "{payload}");
        }
    }
}
