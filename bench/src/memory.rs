//! Memory that is really there (RSS) for each key, block and waiter, in a holder and in a client: differences, in fresh
//! processes, since what was freed would be used again.

use crate::cluster::{Cluster, until_blocked};
use crate::report::{table, title};
use futures_util::future::join_all;
use pgsemaphore_tests::{Caller, Serve, client, encode, message};
use queue_client::QueueClient;
use serde_json::{Value, json};

/// The first argument of the process in which a client is measured.
pub const OF_CLIENT: &str = "memory-of-client";

/// How many calls make their way at a time; the numbers below are multiples of it.
const AT_ONCE: usize = 32;
const KEYS: usize = 2_048;
const BLOCKS: usize = 2_048;
const WAITERS: usize = 8_192;
/// Each has a connection of its own at the holder.
const CALLS: usize = 2_048;

pub async fn run(cluster: &Cluster) {
    title("Memory");
    let holders = of_holder(cluster).await;
    let clients = of_client(cluster).await;
    let kib = |bytes: f64| format!("{:.1}", bytes / 1024.0);
    let row = |name: &str, [holder, client]: [f64; 2]| [name.to_owned(), kib(holder), kib(client)];
    println!(
        "Differences of RSS. A holder keeps no blocks; who waits there has a connection open, as all calls have.\n"
    );
    table(
        &["KiB for each", "holder", "client"],
        [
            row("key in use", [holders[0], clients[0]]),
            row("block", [holders[1], clients[1]]),
            row("waiter", [holders[2], clients[2]]),
        ],
    );
}

/// A holder over this database, that gives permits of every key but `empty`.
async fn holder(database: &str) -> Serve {
    let holder = Serve::start(database).await;
    let caller = Caller::of(holder.url());
    caller.policy("*", &json!({"limit": 1_000_000, "round_wait_ms": 0, "round_period_ms": 0})).await;
    caller.policy("empty", &json!({"limit": 0, "round_wait_ms": 0, "round_period_ms": 0})).await;
    holder
}

/// Of each key, block and waiter.
async fn of_holder(cluster: &Cluster) -> [f64; 3] {
    let database = cluster.migrated().await;
    let holder = holder(&database).await;
    let http = client();
    let wants = |count: usize| json!({"demand": [{"group": "", "count": count}]});
    let call = async |key: String, client: String, fields: Value| {
        let url = format!("{}/v1/semaphores/{}/request", holder.url(), encode(&key));
        let response = http.post(url).json(&message(&client, fields)).send().await.expect("an answer");
        assert_eq!(response.status(), 200);
    };
    let fill = async |kind: &str, number: usize| {
        for from in (0..number).step_by(AT_ONCE) {
            let batch = (from..from + AT_ONCE).map(|n| match kind {
                "keys" => call(format!("k{n}"), "c".to_owned(), wants(1)),
                _ => call("one".to_owned(), format!("c{n}"), wants(1)),
            });
            join_all(batch).await;
        }
    };
    // What the process and its connections need anyway.
    fill("blocks", 20 * AT_ONCE).await;
    let start = holder.resident();
    fill("keys", KEYS).await;
    let keys = holder.resident();
    fill("blocks", BLOCKS).await;
    let blocks = holder.resident();
    let waits = json!({"demand": [{"group": "", "count": 1}], "wait_ms": 60_000});
    let calls = (0..CALLS).map(|n| {
        let url = format!("{}/v1/semaphores/empty/request", holder.url());
        tokio::spawn(http.post(url).json(&message(&format!("w{n}"), waits.clone())).send())
    });
    let calls: Vec<_> = calls.collect();
    until_blocked(&database, CALLS).await;
    let waiting = holder.resident();
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    [each(start, keys, KEYS), each(keys, blocks, BLOCKS), each(blocks, waiting, CALLS)]
}

fn each(before: u64, after: u64, number: usize) -> f64 {
    after.saturating_sub(before) as f64 / number as f64
}

/// Of each key, block and waiter, as a process of its own says.
async fn of_client(cluster: &Cluster) -> [f64; 3] {
    let holder = holder(&cluster.migrated().await).await;
    let this = std::env::current_exe().expect("the path of this executable");
    let output = tokio::process::Command::new(this).args([OF_CLIENT, holder.url()]).output().await;
    let output = output.expect("this executable");
    let numbers = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    numbers.try_into().unwrap_or_else(|_| panic!("{output:?}"))
}

/// What the process of [`OF_CLIENT`] does: prints the three numbers.
pub async fn print_of_client(url: &str) {
    let client = QueueClient::builder().url(url).build().expect("a client");
    let mut held = Vec::new();
    let acquire = |key: String, group: String| {
        let group = client.semaphore(key).group(&group);
        async move { group.acquire().await.expect("a permit") }
    };
    // What the process and its connections need anyway.
    held.extend(join_all((0..AT_ONCE).map(|n| acquire(format!("first-{n}"), String::new()))).await);
    let start = resident();
    for from in (0..KEYS).step_by(AT_ONCE) {
        let keys = (from..from + AT_ONCE).map(|n| acquire(format!("key-{n}"), String::new()));
        held.extend(join_all(keys).await);
    }
    let keys = resident();
    // A round gives one block to each group.
    for _ in 0..BLOCKS / AT_ONCE {
        let groups = (0..AT_ONCE).map(|n| acquire("one".to_owned(), format!("group-{n}")));
        held.extend(join_all(groups).await);
    }
    let blocks = resident();
    let group = client.semaphore("empty").group("");
    let mut waiters: Vec<_> = (0..WAITERS).map(|_| Box::pin(group.acquire())).collect();
    for waiter in &mut waiters {
        assert!(futures_util::poll!(waiter).is_pending());
    }
    let waiting = resident();
    println!("{} {} {}", each(start, keys, KEYS), each(keys, blocks, BLOCKS), each(blocks, waiting, WAITERS));
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}
