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
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use report::Report;

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
    let named = |part: &str| arguments.is_empty() || arguments.iter().any(|argument| argument == part);
    if named("compare") {
        compare::run(&cluster, &mut report).await;
    }
    if named("waking") {
        waking::run(&cluster).await;
    }
    if named("jobs") {
        jobs::run(&cluster).await;
    }
    if named("rounds") {
        rounds::run(&cluster, &mut report).await;
    }
    if named("parked") {
        parked::run(&cluster).await;
    }
    if named("crowd") {
        crowd::run(&cluster, &mut report).await;
    }
    if named("conflicts") {
        conflicts::run(&cluster, &mut report).await;
    }
    if named("draw") {
        draw::run(&cluster, &mut report).await;
    }
    if named("memory") {
        memory::run(&cluster).await;
    }
    report.print_targets();
}

/// Thousands of calls are open at once, each a connection.
fn raise_file_limit() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit of open files");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("a higher limit of open files");
}
