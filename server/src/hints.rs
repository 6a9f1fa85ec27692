//! Hints from other holders and from psql, by NOTIFY. Hints only: what they speed up happens without them too, later.

use crate::holder::Shared;
use sqlx::postgres::{PgListener, PgPoolOptions};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The channel on which changes are told. The payload says what changed.
const CHANNEL: &str = "pgsemaphore";
/// Payload: some policy or group limit.
const POLICIES: &str = "policies";
/// Pause between attempts to listen.
const RETRY: Duration = Duration::from_secs(1);

/// Counts the changes of policies that this process has been told of.
#[derive(Debug, Default)]
pub(crate) struct Epoch(watch::Sender<u64>);

impl Epoch {
    pub(crate) fn current(&self) -> u64 {
        *self.0.borrow()
    }

    pub(crate) fn advance(&self) {
        self.0.send_modify(|changes| *changes += 1);
    }

    /// Hears of changes from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// Listens until the holder stops, on a connection of its own.
pub(crate) async fn listen(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            Err(error) = listen_once(&shared) => tracing::debug!(%error, "not listening for hints"),
            () = shared.stop.cancelled() => return,
        }
        shared.policies.advance();
        tokio::select! {
            () = tokio::time::sleep(RETRY) => {}
            () = shared.stop.cancelled() => return,
        }
    }
}

async fn listen_once(shared: &Shared) -> Result<std::convert::Infallible, sqlx::Error> {
    let pool = PgPoolOptions::new().max_connections(1).connect_with(shared.store.options().clone()).await?;
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen(CHANNEL).await?;
    shared.policies.advance();
    loop {
        match listener.try_recv().await? {
            Some(hint) if hint.payload() == POLICIES => shared.policies.advance(),
            Some(_) => {}
            None => shared.policies.advance(),
        }
    }
}
