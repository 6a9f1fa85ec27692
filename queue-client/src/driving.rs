//! The task that drives a key: its start, and what happens when it ends before its work does.
//!
//! Why: a task ends with the runtime that it was started on, and an application may have many, one after the other: each
//! `#[tokio::test]` has its own. So "a driver runs" is a [`Driving`] inside the task, not a flag beside it: dropping the
//! task, wherever it waits, takes that back, and the next use of the client starts a new driver where it is used from. A
//! panic in the task (in a tracing layer, a transport, a meter of the application) starts it anew after a pause.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, MutexGuard};

use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::client::{Inner, QueueClient};
use crate::driver::{self, RETRY_MAX, backoff};
use crate::shared::{Shared, State};
use crate::warning;

/// No task can be started here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRuntime;

/// A driver runs, until this is dropped.
struct Driving {
    shared: Arc<Shared>,
    finished: bool,
}

impl Drop for Driving {
    fn drop(&mut self) {
        if !self.finished {
            self.shared.interrupted(|state| state.driven = false);
            self.shared.orphaned.notify_waiters();
        }
    }
}

impl Shared {
    /// Starts a driver if there is something to say and none runs; and wakes it.
    pub(crate) fn drive(self: &Arc<Self>, state: MutexGuard<'_, State>) -> Result<(), NoRuntime> {
        let started = self.start_driver(state);
        self.wake.notify_one();
        started
    }

    /// As [`drive`](Self::drive), where nobody can be told that no task can be started: the next use starts it.
    pub(crate) fn stir(self: &Arc<Self>) {
        if std::thread::panicking() {
            self.wake.notify_one();
        } else {
            let _ = self.drive(self.state());
        }
    }

    /// Starts a driver if there is something to say and none runs.
    pub(crate) fn start_driver(self: &Arc<Self>, mut state: MutexGuard<'_, State>) -> Result<(), NoRuntime> {
        if state.driven || state.is_done() || !self.client.is_original() {
            return Ok(());
        }
        state.driven = true;
        drop(state); // a runtime that has shut down drops the task at once, which takes the lock
        let driving = Driving { shared: self.clone(), finished: false };
        self.client.spawn(supervise(driving))?;
        let state = self.state();
        let dropped = !state.driven && !state.is_done();
        drop(state);
        if dropped {
            return Err(NoRuntime);
        }
        self.client.go_on_elsewhere();
        Ok(())
    }

    /// The calls of a driver that has ended will not be answered.
    fn interrupted(&self, also: impl FnOnce(&mut State)) {
        let mut state = self.state();
        state.ledger.interrupted();
        also(&mut state);
        state.hand_out();
        drop(state);
        self.progress.notify_waiters();
    }
}

async fn supervise(mut driving: Driving) {
    let mut pauses = backoff();
    while let Err(panic) = unwound(driver::drive(driving.shared.clone())).await {
        driving.shared.interrupted(|_| {});
        let (key, panic) = (driving.shared.key.as_str(), text(&*panic));
        warning::guarded(|| tracing::error!(key, panic, "a task of the client panicked: it starts anew"));
        sleep(pauses.next().unwrap_or(RETRY_MAX)).await;
    }
    driving.finished = true;
}

async fn unwound<T>(task: impl Future<Output = T>) -> Result<T, Box<dyn Any + Send>> {
    let mut task = pin!(task);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => std::task::Poll::Ready(Err(panic)),
    })
    .await
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a text")
}

impl Inner {
    /// Starts a task of the client's own.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<(), NoRuntime> {
        match &self.own_thread {
            Some(thread) => drop(thread.spawn(task)),
            None => drop(here()?.spawn(task)),
        }
        Ok(())
    }

    /// This is the process that made the client, not a fork of it.
    pub(crate) fn is_original(&self) -> bool {
        std::process::id() == self.process_id
    }

    /// What tasks of other runtimes left unfinished is finished by tasks of this one.
    fn go_on_elsewhere(self: &Arc<Self>) {
        let client = QueueClient(self.clone());
        client.recovered().iter().for_each(Shared::stir);
        client.take_over_in_background();
    }
}

/// The runtime of the caller, if tasks can wait there.
fn here() -> Result<Handle, NoRuntime> {
    let handle = Handle::try_current().map_err(|_| NoRuntime)?;
    // tokio has no other way to ask whether timers are enabled, and says itself how to enable them.
    let timers = catch_unwind(|| drop(sleep(std::time::Duration::ZERO)));
    timers.map(|()| handle).map_err(|_| NoRuntime)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::error::{AcquireError, DrainError, TakeOverError};
    use crate::{HttpTransport, QueueClient};

    /// O-13: a fork would speak in the name of the process that it is a fork of.
    #[tokio::test]
    async fn a_fork_of_the_process_gets_an_error_that_says_so() {
        let http = HttpTransport::new(&["http://127.0.0.1:1"], &crate::Credentials::default()).unwrap();
        let mut client = QueueClient::builder().transport(http).build().unwrap();
        Arc::get_mut(&mut client.0).unwrap().process_id += 1;
        let semaphore = client.semaphore("k");
        let error = semaphore.acquire("").await.unwrap_err();
        assert_eq!(error, AcquireError::Forked);
        assert!(error.to_string().ends_with("build a client after the fork"), "{error}");
        assert!(semaphore.try_acquire("").is_none());
        assert_eq!(client.drain().await, Err(DrainError::Forked));
        assert_eq!(client.take_over().await.unwrap_err(), TakeOverError::Forked);
    }
}
