//! Taking over from earlier processes of the same `client_id` on all keys at once.
//!
//! Authoritative for what follows from the answer: each key on which something was held is reconciled by a client that
//! resumes. Not authoritative for keys that this process uses: these are taken over by their first message anyway.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use queue_wire::{TakenOver, Takeover};
use tokio::time::sleep;

use crate::client::{Inner, QueueClient};
use crate::driver::{RETRY_MAX, backoff};
use crate::error::TakeOverError;
use crate::shared::Shared;
use crate::transport::CallError;
use crate::warning;

/// The takeover that a client does by itself.
#[derive(Default)]
pub(crate) struct Background {
    pub(crate) due: AtomicBool,
}

/// It is due again when its task ends before it does.
struct Running {
    client: Arc<Inner>,
    finished: bool,
}

impl Running {
    fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.client.takeover.due.store(!self.finished, Ordering::Relaxed);
    }
}

impl QueueClient {
    /// Takes over what earlier processes of this `client_id` hold, on all keys: what they held comes back, except, for a
    /// client that was built with [`Builder::resume`](crate::Builder::resume), what it declared to run; such a client
    /// does this by itself. Keys that this process uses need it not.
    ///
    /// Returns the keys where something was held, with how many permits, and those from which this process is shut out.
    /// Outages are waited through.
    ///
    /// # Errors
    ///
    /// What waiting does not cure; see [`TakeOverError`].
    ///
    /// # Cancel safety
    ///
    /// When it is dropped, some keys may have been taken over. Calling it again takes over the rest.
    pub async fn take_over(&self) -> Result<TakenOver, TakeOverError> {
        if !self.0.is_original() {
            return Err(TakeOverError::Forked);
        }
        let (mut pauses, mut told) = (backoff(), false);
        loop {
            let generation = self.0.generation.current();
            match self.try_take_over(generation).await {
                Ok(taken) if self.is_final(generation, &taken) => return Ok(self.go_on_with(taken)),
                Ok(_) => {}
                Err(CallError::Fenced { generation: named }) => {
                    if !self.0.generation.shut_out(generation, named) {
                        return Err(TakeOverError::Fenced { generation: named });
                    }
                }
                Err(CallError::Refused(problem) | CallError::NotFound(problem)) => {
                    return Err(TakeOverError::Refused(problem));
                }
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!(%error, "no holder answers a takeover: it is repeated until one does");
                    }
                    sleep(pauses.next().unwrap_or(RETRY_MAX)).await;
                }
            }
        }
    }

    /// Starts the takeover that is due, if one is. Where no task can be started it stays due.
    pub(crate) fn take_over_in_background(self) {
        let client = self.0.clone();
        if !client.takeover.due.swap(false, Ordering::Relaxed) {
            return;
        }
        let running = Running { client: client.clone(), finished: false };
        // A task that can't be started is dropped, and what it holds with it.
        let _ = client.spawn(async move {
            if let Err(error) = self.take_over().await {
                warning::guarded(|| {
                    tracing::warn!(%error, "what earlier processes hold of keys that are not used here stays counted");
                });
            }
            running.finish();
        });
    }

    async fn try_take_over(&self, generation: u64) -> Result<TakenOver, CallError> {
        let takeover = Takeover::new(generation, self.0.identity.process.as_str(), self.0.resumes);
        self.0.transport.take_over(self.client_id(), &takeover).await
    }

    /// Whether the answer holds; if not, the call is to be made again under a generation that has risen.
    fn is_final(&self, of: u64, taken: &TakenOver) -> bool {
        if !taken.keys.is_empty() {
            return self.0.generation.admit(of);
        }
        let lowest = taken.fenced.iter().map(|fenced| fenced.generation).max();
        lowest.is_none() || !self.0.generation.shut_out(of, lowest)
    }

    fn go_on_with(&self, taken: TakenOver) -> TakenOver {
        if self.0.resumes {
            let keys = taken.keys.iter().map(|taken| self.shared(taken.key.clone()));
            keys.for_each(|shared| Shared::reconcile(&shared));
        }
        taken
    }
}
