//! The main job on real input: jobs in a table, worker processes that take them, one limit over all of them.
//!
//! A private PostgreSQL, a holder process over it, four worker processes with more slots than there are permits. What
//! ran at once is then counted from the workers' own records, not from what the holder says. The demo fails if a job
//! was lost or ran twice, or if more ran at once than the policy allows.

mod error;
mod jobs;
mod overlap;
mod processes;
mod records;
mod show;
mod verdict;
mod worker;

pub(crate) use error::DemoError;
pub(crate) use worker::{WorkerArgs, work};

use std::path::Path;
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::Store;
use crate::clock;
use crate::embedded::{Embedded, Options};
use processes::Process;
use records::Record;
use show::Progress;

const KEY: &str = "demo:api";
const LIMIT: usize = 5;
/// Tenants, each a group of the semaphore, and how many jobs each has.
const TENANTS: [(&str, i32); 2] = [("acme", 120), ("globex", 80)];
/// One tenant has a ceiling of its own under the shared limit.
const CAPPED: (&str, usize) = ("globex", 2);
const WORKERS: usize = 4;
/// Jobs that a worker has in hand at once, for each tenant: in sum far more than there are permits.
const SLOTS: usize = 3;

const DATABASE_VARIABLE: &str = "PGSEMAPHORE_DATABASE_URL";
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A guard against hanging, more than ten times what it takes.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// Runs the demo and prints what came of it.
pub(crate) async fn run() -> Result<(), DemoError> {
    let started = clock::now();
    eprintln!("starting PostgreSQL in a new folder, and a holder over it");
    let start = tokio::task::spawn_blocking(|| Embedded::start(&Options::temporary()));
    let embedded = start.await.map_err(std::io::Error::other)??;
    let folder = tempfile::Builder::new().prefix("pgsemaphore-demo-").tempdir()?;

    let store = Store::connect(&embedded.url(), 1).await?;
    store.migrate().await?;
    let policy = serde_json::json!({
        "limit": LIMIT, "group_limits": { CAPPED.0: CAPPED.1 }, "round_wait_ms": 20, "round_period_ms": 50,
    });
    store.merge_policy(KEY, &policy.to_string(), "demo").await?;
    let pool = PgPoolOptions::new().max_connections(1).connect(&embedded.url()).await?;
    jobs::create(&pool, &TENANTS).await?;

    let records = run_processes(&pool, folder.path(), &embedded.url()).await?;
    let verdict = verdict::judge(&records, &jobs::progress(&pool).await?);
    println!("\n{}\n", verdict.table);
    pool.close().await;
    store.close().await;
    tokio::task::spawn_blocking(move || drop(embedded)).await.map_err(std::io::Error::other)?;
    match verdict.broken.as_slice() {
        [] => {
            println!(
                "every job ran once, and never more at once than allowed ({} s)",
                started.elapsed().as_secs()
            );
            Ok(())
        }
        broken => Err(DemoError::Broken(broken.join("; "))),
    }
}

async fn run_processes(pool: &PgPool, folder: &Path, database_url: &str) -> Result<Vec<Record>, DemoError> {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let serve = words("serve --listen 127.0.0.1:0 --end-with-stdin");
    let mut holder = Process::start("holder", folder, database_url, &serve)?;
    let line = holder.first_line().await?;
    let url = line.strip_prefix("listening on ").ok_or_else(|| DemoError::Holder(line.clone()))?;
    let total: i32 = TENANTS.iter().map(|(_, jobs)| jobs).sum();
    eprintln!(
        "{total} jobs, {WORKERS} worker processes with {} slots each, a limit of {LIMIT}",
        SLOTS * TENANTS.len()
    );

    let mut workers = Vec::new();
    for number in 1..=WORKERS {
        let name = format!("worker-{number}");
        let mut arguments =
            words(&format!("demo-worker --holder {url} --name {name} --slots {SLOTS} --records"));
        arguments.push(records_file(folder, number).display().to_string());
        arguments
            .extend(TENANTS.iter().flat_map(|(tenant, _)| ["--tenant".to_owned(), (*tenant).to_owned()]));
        workers.push(Process::start(&name, folder, database_url, &arguments)?);
    }
    watch(pool, &mut holder, &mut workers).await?;
    holder.end().await?;
    let mut all = Vec::new();
    for number in 1..=WORKERS {
        all.extend(records::read(&records_file(folder, number))?);
    }
    Ok(all)
}

fn records_file(folder: &Path, worker: usize) -> std::path::PathBuf {
    folder.join(format!("worker-{worker}.records"))
}

/// Shows how far the jobs are until all workers have ended.
async fn watch(pool: &PgPool, holder: &mut Process, workers: &mut [Process]) -> Result<(), DemoError> {
    let started = clock::now();
    let mut progress = Progress::new(&TENANTS);
    let mut looks = tokio::time::interval(LOOK_EVERY);
    loop {
        looks.tick().await;
        let counts = jobs::progress(pool).await?;
        progress.update(&counts);
        if holder.check()? {
            return Err(DemoError::Holder("it ended before the workers did".to_owned()));
        }
        let mut ended = 0;
        for worker in workers.iter_mut() {
            ended += usize::from(worker.check()?);
        }
        if ended == workers.len() {
            progress.update(&jobs::progress(pool).await?);
            progress.finish();
            return Ok(());
        }
        if started.elapsed() > TIME_LIMIT {
            let left = counts.values().map(|count| count.waiting + count.running).sum();
            return Err(DemoError::TooSlow { seconds: TIME_LIMIT.as_secs(), left, log: holder.end_of_log() });
        }
    }
}
