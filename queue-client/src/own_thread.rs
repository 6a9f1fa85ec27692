//! A thread for the tasks of one client, with a runtime of its own.
//!
//! Authoritative for how long it lives: as long as the client, or a task of it.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) struct OwnThread {
    handle: Handle,
    /// Closes with this value, wherever that is dropped; the thread ends then.
    _end: oneshot::Sender<()>,
}

impl OwnThread {
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        std::thread::Builder::new().name("queue-client".to_owned()).spawn(move || {
            // An error is the end of the sender.
            let _ = runtime.block_on(ended);
        })?;
        Ok(Self { handle, _end: end })
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.handle.spawn(task)
    }
}
