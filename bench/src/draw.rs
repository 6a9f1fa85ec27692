//! A draw from a lease, beside tokio's `try_acquire`: both in turns, the fastest turn of each, since what disturbs a turn
//! only makes it slower.

use crate::cluster::Cluster;
use crate::report::{Report, short, title};
use crate::rivals::Ours;
use queue_client::{Group, QueueClient};
use serde_json::json;
use std::hint::black_box;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

const TURNS: usize = 300;
const DRAWS: u32 = 20_000;
const RATIO_MAX: f64 = 3.0;

pub async fn run(cluster: &Cluster, report: &mut Report) {
    let policy = json!({
        "limit": 100_000_000, "round_wait_ms": 0, "round_period_ms": 0,
        "provisioning": "strict", "permits_per_lease": 1_000_000
    });
    let ours = Ours::start(cluster, &policy).await;
    let client = QueueClient::builder().url(ours.url()).build().expect("a client");
    let (group, semaphore) = (client.semaphore("k").group(""), Semaphore::new(64));
    draw(&group).await;
    let mut fastest = [Duration::MAX; 2];
    for _ in 0..TURNS {
        fastest[0] = fastest[0].min(draw(&group).await);
        fastest[1] = fastest[1].min(draw_tokio(&semaphore));
    }
    drop(group);
    client.drain().await.expect("everything goes back");
    let [lease, tokio] = fastest.map(|time| time.as_secs_f64() * 1e9 / f64::from(DRAWS));
    title("A draw from a lease");
    println!("`try_acquire` and drop, one thread: {lease:.0} ns, of tokio's semaphore {tokio:.0} ns.");
    let ratio = lease / tokio;
    let wanted = "at most 3 times tokio's `try_acquire`";
    report.target("a draw from a lease", wanted, short(ratio), ratio <= RATIO_MAX);
}

/// Getting leases is not counted.
async fn draw(group: &Group) -> Duration {
    let (mut left, mut took) = (DRAWS, Duration::ZERO);
    while left > 0 {
        let start = Instant::now();
        while left > 0
            && let Some(permit) = group.try_acquire()
        {
            drop(black_box(permit));
            left -= 1;
        }
        took += start.elapsed();
        if left > 0 {
            drop(group.acquire().await.expect("a permit"));
        }
    }
    took
}

fn draw_tokio(semaphore: &Semaphore) -> Duration {
    let start = Instant::now();
    for _ in 0..DRAWS {
        drop(black_box(semaphore.try_acquire()));
    }
    start.elapsed()
}
