//! What a draw from a lease costs: `try_acquire` and drop, beside the same of `tokio::sync::Semaphore`.
//!
//! Prints criterion's figures, then the ratio that counts, measured in turns in this run, and fails if it is above 3.

use std::future::pending;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group};
use queue_client::wire::{COUNT_MAX, LeaseVerdict, Message, Reply, Status, TakenOver, Takeover};
use queue_client::{Calling, Endpoint, Group, QueueClient, Transport};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

const RATIO_MAX: f64 = 3.0;
const THREADS: u64 = 2;

/// Lends as much as can be lent.
struct Lender;

impl Transport for Lender {
    fn call<'a>(&'a self, _: &'a str, endpoint: Endpoint, message: &'a Message) -> Calling<'a> {
        if endpoint == Endpoint::Sync && message.wait_ms > 0 {
            return Box::pin(pending());
        }
        let round = message.call.unwrap_or(0);
        let ttl_ms = Some(3_600_000);
        let lease = |id: String, status| LeaseVerdict {
            id,
            status,
            round: Some(round),
            group: Some("g".to_owned()),
            permits: Some(COUNT_MAX),
            drawn: Some(0),
            released: Some(0),
            ttl_ms,
        };
        let reports = message.leases.as_deref().unwrap_or_default().iter();
        let mut leases: Vec<_> = reports
            .map(|report| {
                let status = if report.stopped { Status::Settled } else { Status::Active };
                lease(report.id.clone(), status)
            })
            .collect();
        if endpoint == Endpoint::Request && !message.demand.is_empty() {
            leases.push(lease(round.to_string(), Status::Active));
        }
        Box::pin(async move { Ok(Reply { v: 1, round, leases, ..Reply::default() }) })
    }

    fn take_over<'a>(&'a self, _: &'a str, _: &'a Takeover) -> Calling<'a, TakenOver> {
        Box::pin(async { Ok(TakenOver::default()) })
    }
}

/// A group that always has a lease to draw from.
struct Lent {
    runtime: Runtime,
    group: Group,
}

impl Lent {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let client = QueueClient::builder().transport(Lender).build();
        let group = client.expect("it has a transport").semaphore("k").group("g");
        Self { runtime: runtime.expect("a runtime"), group }
    }

    /// Draws `times` permits, one after the other; getting leases is not counted.
    fn draw(&self, times: u64) -> Duration {
        let (mut left, mut taken) = (times, Duration::ZERO);
        while left > 0 {
            let start = Instant::now();
            while left > 0
                && let Some(permit) = self.group.try_acquire()
            {
                drop(black_box(permit));
                left -= 1;
            }
            taken += start.elapsed();
            if left > 0 {
                drop(self.runtime.block_on(self.group.acquire()));
            }
        }
        taken
    }
}

fn draw_tokio(semaphore: &Semaphore, times: u64) -> Duration {
    let start = Instant::now();
    for _ in 0..times {
        drop(black_box(semaphore.try_acquire()));
    }
    start.elapsed()
}

/// `times` in each of several threads; the longest time.
fn in_threads(times: u64, work: impl Fn(u64) -> Duration + Sync) -> Duration {
    let start = Barrier::new(usize::try_from(THREADS).expect("a few"));
    std::thread::scope(|scope| {
        let run = || {
            start.wait();
            work(times)
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(run)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).max().unwrap_or_default()
    })
}

fn draws(criterion: &mut Criterion) {
    let (lent, semaphore) = (Lent::new(), Semaphore::new(64));
    let mut group = criterion.benchmark_group("draw");
    group.bench_function("lease", |bench| bench.iter_custom(|times| lent.draw(times)));
    group.bench_function("tokio", |bench| bench.iter_custom(|times| draw_tokio(&semaphore, times)));
    group.bench_function("lease, 2 threads", |bench| {
        bench.iter_custom(|times| in_threads(times, |times| lent.draw(times)));
    });
    group.bench_function("tokio, 2 threads", |bench| {
        bench.iter_custom(|times| in_threads(times, |times| draw_tokio(&semaphore, times)));
    });
    group.finish();
}

/// Of many short turns the fastest of each, since what disturbs a turn only makes it slower.
fn ratio() -> f64 {
    const TURN: u64 = 20_000;
    let (lent, semaphore) = (Lent::new(), Semaphore::new(64));
    lent.draw(TURN);
    let mut fastest = (Duration::MAX, Duration::MAX);
    for _ in 0..500 {
        fastest = (fastest.0.min(lent.draw(TURN)), fastest.1.min(draw_tokio(&semaphore, TURN)));
    }
    fastest.0.as_secs_f64() / fastest.1.as_secs_f64()
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(2));
    targets = draws
}

fn main() {
    benches();
    Criterion::default().configure_from_args().final_summary();
    // `cargo test` only sees whether it runs.
    if std::env::args().any(|argument| argument == "--bench") {
        let ratio = ratio();
        println!(
            "a draw takes {ratio:.2} times as long as one of tokio's semaphore; at most {RATIO_MAX} is wanted"
        );
        assert!(ratio <= RATIO_MAX, "a draw has become too slow");
    }
}
