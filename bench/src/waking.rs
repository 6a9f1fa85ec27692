//! From a release to the admission of who waits for it: one has the only permit, another one waits.

use crate::cluster::Cluster;
use crate::compare::policy;
use crate::load::Load;
use crate::report::{median_ms, ms, short, table, title};
use crate::rivals::{Advisory, Budget, Counter, Ours, Redis, Semaphores, Sets, Slots, WORKERS, Worker};
use std::time::{Duration, Instant};

const LOAD: Load = Load { keys: 1, limit: 1 };
const TURNS: usize = 40;
/// Long enough that who polls is at its longest pauses.
const WAITED: Duration = Duration::from_millis(30);

pub async fn run(cluster: &Cluster) {
    title("From a release to the admission of who waits");
    println!("One permit, two workers (of ours, two clients), {TURNS} times each, after a wait of 30 ms.\n");
    let [forgetful, durable] = [Redis::start(false).await, Redis::start(true).await];
    let rows = [
        of("counter row", &Counter::new(cluster, &LOAD).await).await,
        of("slot rows, SKIP LOCKED", &Slots::new(cluster, &LOAD).await).await,
        of("session advisory locks", &Advisory::new(cluster, &LOAD).await).await,
        of("Redis, nothing kept", &Sets::new(forgetful, &LOAD)).await,
        of("Redis, fsync always", &Sets::new(durable, &LOAD)).await,
        of("tokio's semaphore, in process", &Semaphores::new(&LOAD)).await,
        of("**ours**", &Ours::start(cluster, &policy(1, false)).await).await,
    ];
    table(&["", "p50, ms", "longest, ms"], rows);
}

async fn of(name: &str, budget: &dyn Budget) -> [String; 3] {
    let mut workers = budget.workers().await;
    // Of the first and of the last client.
    let mut waits = workers.swap_remove(WORKERS - 1);
    let mut holds = workers.swap_remove(0);
    holds.acquire(0).await;
    let mut times = Vec::new();
    for _ in 0..TURNS {
        let waiting = tokio::spawn(async move {
            waits.acquire(0).await;
            (waits, Instant::now())
        });
        tokio::time::sleep(WAITED).await;
        let start = Instant::now();
        holds.release().await;
        let (admitted, at) = waiting.await.expect("no panic");
        times.push(at - start);
        waits = std::mem::replace(&mut holds, admitted);
    }
    holds.release().await;
    for worker in [holds, waits].into_iter().chain(workers) {
        Worker::leave(worker).await;
    }
    let longest = times.iter().copied().max().unwrap_or_default();
    [name.to_owned(), short(median_ms(&times)), short(ms(longest))]
}
