//! What it costs to bound concurrency with this project, beside what a user would pick instead: tables in Markdown.
//!
//! Runs all of it, or the parts that are named. Everything that is compared takes turns in one run, over one durable
//! PostgreSQL; absolute figures hold for this machine, ratios further. `docs/performance.md` says how to read them.

mod cluster;
mod compare;
mod conflicts;
mod crowd;
mod draw;
mod jobs;
mod load;
mod memory;
mod parked;
mod report;
mod rivals;
mod rounds;
mod waking;

use cluster::Cluster;
use futures_util::FutureExt as _;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use report::Report;
use std::panic::AssertUnwindSafe;

const PARTS: [&str; 9] =
    ["compare", "waking", "jobs", "rounds", "parked", "crowd", "conflicts", "draw", "memory"];

#[tokio::main]
async fn main() {
    // `cargo bench` adds an option of its own.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let _already_installed = pgsemaphore_tests::client();
    raise_file_limit();
    if let [first, url] = &arguments[..]
        && first == memory::OF_CLIENT
    {
        return memory::print_of_client(url).await;
    }
    let cluster = Cluster::start();
    let mut report = Report::default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("PostgreSQL {}, {cores} cores, fsync on.", cluster.version().await);
    for part in PARTS {
        if arguments.is_empty() || arguments.iter().any(|argument| argument == part) {
            // What fails is said, and does not cost the others.
            let run = AssertUnwindSafe(run(part, &cluster, &mut report)).catch_unwind().await;
            if run.is_err() {
                println!("\n**{part} failed**: see standard error.");
            }
        }
    }
    report.print_targets();
}

async fn run(part: &str, cluster: &Cluster, report: &mut Report) {
    match part {
        "compare" => compare::run(cluster, report).await,
        "waking" => waking::run(cluster).await,
        "jobs" => jobs::run(cluster).await,
        "rounds" => rounds::run(cluster, report).await,
        "parked" => parked::run(cluster).await,
        "crowd" => crowd::run(cluster, report).await,
        "conflicts" => conflicts::run(cluster, report).await,
        "draw" => draw::run(cluster, report).await,
        "memory" => memory::run(cluster).await,
        _ => unreachable!("one of PARTS"),
    }
}

/// Thousands of calls are open at once, each a connection.
fn raise_file_limit() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit of open files");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("a higher limit of open files");
}
