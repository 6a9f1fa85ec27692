//! A load: workers that acquire, run an item, and release, as fast as they are let; and a count of its own of what runs.

use crate::report::{median, ms};
use crate::rivals::{Acting, Budget, CLIENTS, WORKERS, Worker};
use futures_util::future::join_all;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Barrier;

/// From when all are at work until they are measured.
const WARM_UP: Duration = Duration::from_millis(200);
const SLICE: Duration = Duration::from_secs(1);

const WARMING: u8 = 0;
const MEASURED: u8 = 1;
const ENDED: u8 = 2;

/// So many keys, of which each item has a random one, and the limit of each.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub keys: i32,
    pub limit: i32,
}

/// What one worker does with a permit.
pub trait Item: Send {
    fn run(&mut self) -> Acting<'_>;
}

/// An item that waits: about 1.4 ms, since the timer has a resolution of 1 ms.
pub struct Hold;

impl Item for Hold {
    fn run(&mut self) -> Acting<'_> {
        Box::pin(tokio::time::sleep(Duration::from_millis(1)))
    }
}

/// Items that wait, one for each worker.
pub fn holds() -> Vec<Box<dyn Item>> {
    (0..WORKERS).map(|_| Box::new(Hold) as Box<dyn Item>).collect()
}

/// What a slice of a load showed.
#[derive(Debug, Clone, Copy)]
pub struct Slice {
    /// Admissions a second.
    pub rate: f64,
    /// How long an admission took, ms.
    pub p50: f64,
    pub p99: f64,
    /// Round trips for each admission.
    pub trips: f64,
    /// Items that started while as many as the limit ran.
    pub violations: u64,
}

/// Several slices of one load, each value their median.
pub fn summary(slices: &[Slice]) -> Slice {
    let middle = |value: fn(&Slice) -> f64| median(slices.iter().map(value));
    Slice {
        rate: middle(|slice| slice.rate),
        p50: middle(|slice| slice.p50),
        p99: middle(|slice| slice.p99),
        trips: middle(|slice| slice.trips),
        violations: slices.iter().map(|slice| slice.violations).sum(),
    }
}

/// The median ratio of rates, each of two slices that followed each other.
pub fn ratio(slices: &[Slice], to: &[Slice]) -> f64 {
    median(slices.iter().zip(to).map(|(slice, to)| slice.rate / to.rate))
}

struct Shared {
    load: Load,
    phase: AtomicU8,
    running: Vec<AtomicI64>,
    violations: AtomicU64,
    ready: Barrier,
}

/// Runs the load on a budget for a slice of time, with workers of its own, and gives everything back.
pub async fn slice(budget: &dyn Budget, load: Load, items: Vec<Box<dyn Item>>) -> Slice {
    let shared = Arc::new(Shared {
        load,
        phase: AtomicU8::new(WARMING),
        running: (0..load.keys).map(|_| AtomicI64::new(0)).collect(),
        violations: AtomicU64::new(0),
        ready: Barrier::new(WORKERS + 1),
    });
    let workers = budget.workers().await.into_iter().zip(items).enumerate();
    let tasks: Vec<_> = workers
        .map(|(number, (worker, item))| tokio::spawn(work(shared.clone(), number, worker, item)))
        .collect();
    shared.ready.wait().await;
    tokio::time::sleep(WARM_UP).await;
    let (start, trips) = (Instant::now(), budget.trips());
    shared.phase.store(MEASURED, Ordering::Relaxed);
    tokio::time::sleep(SLICE).await;
    shared.phase.store(ENDED, Ordering::Relaxed);
    let (took, trips) = (start.elapsed(), budget.trips() - trips);
    let ended = join_all(tasks).await.into_iter().map(|task| task.expect("no panic"));
    let (workers, waits): (Vec<_>, Vec<_>) = ended.unzip();
    join_all(workers.into_iter().map(Worker::leave)).await;
    let mut waits = waits.concat();
    waits.sort_unstable();
    let admissions = waits.len() as f64;
    let percentile = |percent: usize| waits.get(waits.len() * percent / 100).copied().unwrap_or_default();
    Slice {
        rate: admissions / took.as_secs_f64(),
        p50: ms(percentile(50)),
        p99: ms(percentile(99)),
        trips: trips as f64 / admissions,
        violations: shared.violations.load(Ordering::Relaxed),
    }
}

async fn work(
    shared: Arc<Shared>,
    number: usize,
    mut worker: Box<dyn Worker>,
    mut item: Box<dyn Item>,
) -> (Box<dyn Worker>, Vec<Duration>) {
    // Each client meets each key once before it is measured.
    let per_client = WORKERS / CLIENTS;
    for key in (0..shared.load.keys).skip(number % per_client).step_by(per_client) {
        worker.acquire(key).await;
        worker.release().await;
    }
    shared.ready.wait().await;
    let mut waits = Vec::new();
    loop {
        let key = rand::random_range(0..shared.load.keys);
        let start = Instant::now();
        worker.acquire(key).await;
        let waited = start.elapsed();
        shared.starts(key);
        item.run().await;
        shared.ends(key);
        worker.release().await;
        match shared.phase.load(Ordering::Relaxed) {
            WARMING => {}
            MEASURED => waits.push(waited),
            _ => return (worker, waits),
        }
    }
}

impl Shared {
    fn starts(&self, key: i32) {
        let running = self.running[usize::try_from(key).expect("a key")].fetch_add(1, Ordering::SeqCst);
        if running >= i64::from(self.load.limit) {
            self.violations.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn ends(&self, key: i32) {
        self.running[usize::try_from(key).expect("a key")].fetch_sub(1, Ordering::SeqCst);
    }
}
