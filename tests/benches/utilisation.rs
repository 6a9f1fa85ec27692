//! How much of a contended limit is in use under the default policy, beside the same jobs under an in-process semaphore.
//!
//! Jobs of 500 ms in three processes, a limit of 5, more jobs than permits until the end. Each process writes down when
//! its jobs ran, by the clock that all processes of a machine share. Utilisation is the time of the jobs over 5 times the
//! time from the first start to the last end. Prints both, and fails if the ratio is below 80 %.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use pgsemaphore::Store;
use pgsemaphore::embedded::{Embedded, Options};
use pgsemaphore_tests::{InProcess, Serve};
use queue_client::QueueClient;
use serde_json::json;
use std::sync::Arc;
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

const RATIO_MIN: f64 = 0.8;
const LIMIT: u16 = 5;
const PROCESSES: usize = 3;
const JOB: Duration = Duration::from_millis(500);
const KEY: &str = "account:42";
/// First argument of a process that this bench starts.
const PROCESS: &str = "process-of-the-bench";

/// When a job began and when it ended.
type Ran = (Duration, Duration);

fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock").into()
}

async fn run() -> Ran {
    let began = now();
    tokio::time::sleep(JOB).await;
    (began, now())
}

/// One process of a job queue: all its jobs wait for permits at once. Prints when each ran.
async fn process(url: &str, jobs: usize) {
    let client = QueueClient::builder().url(url).build().expect("a client");
    let mut tasks = JoinSet::new();
    for _ in 0..jobs {
        let semaphore = client.semaphore(KEY);
        tasks.spawn(async move {
            let permit = semaphore.acquire("nightly").await.expect("a permit");
            let ran = run().await;
            drop(permit);
            ran
        });
    }
    for (began, ended) in tasks.join_all().await {
        println!("{} {}", began.as_micros(), ended.as_micros());
    }
    client.drain().await.expect("everything goes back");
}

async fn with_processes(url: &str, jobs: usize) -> Vec<Ran> {
    let mut processes = JoinSet::new();
    for _ in 0..PROCESSES {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args([PROCESS, url, &jobs.to_string()]).kill_on_drop(true);
        processes.spawn(async move { command.output().await.expect("it runs") });
    }
    let mut all = Vec::new();
    for output in processes.join_all().await {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let micros = |word: &str| Duration::from_micros(word.parse().expect("a time"));
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        all.extend(
            text.lines()
                .map(|line| line.split_once(' ').expect("two times"))
                .map(|(a, b)| (micros(a), micros(b))),
        );
    }
    all
}

async fn with_a_semaphore(jobs: usize) -> Vec<Ran> {
    let semaphore = Arc::new(Semaphore::new(LIMIT.into()));
    let mut tasks = JoinSet::new();
    for _ in 0..PROCESSES * jobs {
        let semaphore = semaphore.clone();
        tasks.spawn(async move {
            let _permit = semaphore.acquire().await.expect("open");
            run().await
        });
    }
    tasks.join_all().await
}

fn utilisation(ran: &[Ran]) -> f64 {
    let busy: Duration = ran.iter().map(|(began, ended)| *ended - *began).sum();
    let first = ran.iter().map(|ran| ran.0).min().expect("jobs");
    let last = ran.iter().map(|ran| ran.1).max().expect("jobs");
    busy.as_secs_f64() / (f64::from(LIMIT) * (last - first).as_secs_f64())
}

/// Utilisation with a holder, and with a semaphore.
async fn measure(database: &str, jobs: usize) -> (f64, f64) {
    Store::connect(database, 1).await.expect("the database").migrate().await.expect("the schema");
    let setter = InProcess::start(database).await;
    setter.policy(KEY, json!({"limit": LIMIT})).await;
    setter.stop().await;
    let holder = Serve::start(database).await;
    let (shared, alone) = (with_processes(holder.url(), jobs).await, with_a_semaphore(jobs).await);
    assert_eq!((shared.len(), alone.len()), (PROCESSES * jobs, PROCESSES * jobs), "every job ran");
    (utilisation(&shared), utilisation(&alone))
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    if let [word, url, jobs] = &arguments[..]
        && word == PROCESS
    {
        return runtime.block_on(process(url, jobs.parse().expect("a number")));
    }
    // `cargo test` only sees whether it runs.
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let cluster = Embedded::start(&Options::temporary()).unwrap_or_else(|error| panic!("{error}"));
    let (shared, alone) = runtime.block_on(measure(&cluster.url(), if is_bench { 40 } else { 5 }));
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    println!("a limit of {LIMIT}, jobs of {JOB:?}, {PROCESSES} processes, the default policy");
    println!("in use: {}; under an in-process semaphore: {}", percent(shared), percent(alone));
    println!("ratio: {}; at least {} is wanted", percent(shared / alone), percent(RATIO_MIN));
    assert!(!is_bench || shared / alone >= RATIO_MIN, "the limit is idle for too long");
}
