//! tokio's semaphore, one for each key, in this one process: what the load makes of a budget that costs nothing.

use super::{Acting, Budget, WORKERS, Worker};
use crate::load::Load;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub struct Semaphores(Arc<[Arc<Semaphore>]>);

struct Holder {
    semaphores: Arc<[Arc<Semaphore>]>,
    held: Option<OwnedSemaphorePermit>,
}

impl Semaphores {
    pub fn new(load: &Load) -> Self {
        let permits = usize::try_from(load.limit).expect("a limit");
        Self((0..load.keys).map(|_| Arc::new(Semaphore::new(permits))).collect())
    }
}

impl Budget for Semaphores {
    fn workers(&self) -> BoxFuture<'_, Vec<Box<dyn Worker>>> {
        let worker = |_| Box::new(Holder { semaphores: self.0.clone(), held: None }) as Box<dyn Worker>;
        let workers = (0..WORKERS).map(worker).collect();
        Box::pin(async { workers })
    }

    fn trips(&self) -> u64 {
        0
    }
}

impl Worker for Holder {
    fn acquire(&mut self, key: i32) -> Acting<'_> {
        Box::pin(async move {
            let semaphore = &self.semaphores[usize::try_from(key).expect("a key")];
            self.held = Some(semaphore.clone().acquire_owned().await.expect("it is open"));
        })
    }

    fn release(&mut self) -> Acting<'_> {
        self.held = None;
        Box::pin(async {})
    }

    fn leave(self: Box<Self>) -> Acting<'static> {
        Box::pin(async {})
    }
}
