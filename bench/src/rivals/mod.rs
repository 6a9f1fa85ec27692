//! What a user would bound concurrency with instead, and ours, behind one interface.
//!
//! Each is written as by somebody who knows it well: prepared statements, a connection of its own for each worker, one
//! round trip a try, and pauses that grow and jitter where it has to poll.

mod advisory;
mod counter;
mod ours;
mod redis;
mod semaphore;
mod slots;

pub use self::redis::{Redis, Sets};
pub use advisory::Advisory;
pub use counter::Counter;
pub use ours::{CLIENTS, Ours};
pub use semaphore::Semaphores;
pub use slots::Slots;

use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Workers of a load, each with one item at a time.
pub const WORKERS: usize = 32;

const PAUSE_MIN_US: u64 = 1_000;
const PAUSE_MAX_US: u64 = 8_000;

pub type Acting<'a> = BoxFuture<'a, ()>;

/// Where the budgets of some keys are kept.
pub trait Budget: Send + Sync {
    /// [`WORKERS`] workers, with connections of their own.
    fn workers(&self) -> BoxFuture<'_, Vec<Box<dyn Worker>>>;

    /// Round trips to where the budgets are kept, of all workers so far; 0 where they are not counted.
    fn trips(&self) -> u64;
}

/// Who runs one item after the other.
pub trait Worker: Send {
    /// Waits until one more item of the key may run.
    fn acquire(&mut self, key: i32) -> Acting<'_>;

    /// That item has ended.
    fn release(&mut self) -> Acting<'_>;

    /// Gives everything back.
    fn leave(self: Box<Self>) -> Acting<'static>;
}

/// Counts round trips.
#[derive(Clone, Default)]
pub struct Trips(Arc<AtomicU64>);

impl Trips {
    fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one who polls does after so many tries in vain: from 1 ms on, doubled up to 8 ms, of that half or more.
async fn pause(tries: u32) {
    let most = (PAUSE_MIN_US << tries.min(8)).min(PAUSE_MAX_US);
    tokio::time::sleep(Duration::from_micros(rand::random_range(most / 2..=most))).await;
}
