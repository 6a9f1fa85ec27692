//! The main job on real input: jobs in a table, worker processes that take them, one limit over all of them.
//!
//! A private PostgreSQL, a holder process over it, four worker processes with more slots than there are permits. First
//! many jobs at once, so that permits are short all the time; then a few now and then, so that some are left. The same
//! jobs run twice: in the first act each permit is asked for, in the second there are leases too, which save round trips
//! while permits are left. What ran at once is then counted from the workers' own records, not from what the holder
//! says. The demo fails if a job was lost or ran twice, or if more ran at once than the policy allows.

mod act;
mod calls;
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

use sqlx::postgres::PgPoolOptions;

use crate::Store;
use crate::cli::table;
use crate::clock;
use crate::embedded::{Embedded, Options};
use act::Act;
use records::Record;

const KEY: &str = "demo:api";
const LIMIT: usize = 5;
/// Tenants, each a group of the semaphore, and how many jobs each has.
const TENANTS: [(&str, i32); 2] = [("acme", 120), ("globex", 80)];
/// One tenant has a ceiling of its own under the shared limit.
const CAPPED: (&str, usize) = ("globex", 2);
const WORKERS: usize = 4;
/// Jobs that a worker has in hand at once, for each tenant: in sum far more than there are permits.
const SLOTS: usize = 3;
/// Jobs that a slot takes at once, to run them one after the other.
const BATCH: usize = 4;

const DATABASE_VARIABLE: &str = "PGSEMAPHORE_DATABASE_URL";

/// Runs the demo and prints what came of it.
pub(crate) async fn run() -> Result<(), DemoError> {
    let started = clock::now();
    eprintln!("starting PostgreSQL in a new folder, and a holder over it");
    let start = tokio::task::spawn_blocking(|| Embedded::start(&Options::temporary()));
    let embedded = start.await.map_err(std::io::Error::other)??;
    let folder = tempfile::Builder::new().prefix("pgsemaphore-demo-").tempdir()?;

    let store = Store::connect(&embedded.url(), 1).await?;
    store.migrate().await?;
    let policy = serde_json::json!({ "limit": LIMIT, "group_limits": { CAPPED.0: CAPPED.1 } });
    let policy = store.merge_policy(KEY, &policy.to_string(), "demo").await?;
    eprintln!(
        "policy: limit {LIMIT}, group {} {}; all else by default (round_wait_ms {}, round_period_ms {})",
        CAPPED.0, CAPPED.1, policy.round_wait_ms, policy.round_period_ms
    );
    let pool = PgPoolOptions::new().max_connections(1).connect(&embedded.url()).await?;
    jobs::create(&pool, &TENANTS).await?;

    let mut round_trips =
        table(&["ACT", "PERMITS ARE", ">JOBS", ">LIMIT IN USE", ">ROUND TRIPS", ">PER JOB"]);
    let mut broken = Vec::new();
    for act in [Act::Grants, Act::Leases] {
        store.merge_policy(KEY, &act.policy().to_string(), "demo").await?;
        jobs::queue(&pool).await?;
        let outcome = act.play(&pool, folder.path(), &embedded.url()).await?;
        let verdict = verdict::judge(&outcome.records, &jobs::progress(&pool).await?);
        println!("\n{}\n{}\n", act.title(), verdict.table);
        broken.extend(verdict.broken.into_iter().map(|what| format!("{}: {what}", act.name())));
        let (rush, later): (Vec<&Record>, Vec<&Record>) =
            outcome.records.iter().partition(|record| record.in_rush);
        for (permits, records, calls) in
            [("short", rush, outcome.calls_in_rush), ("plenty", later, outcome.calls_later)]
        {
            let jobs = overlap::overall(records.iter().copied()).items;
            let in_use = format!("{} %", overlap::percent_in_use(&records, LIMIT));
            let per_job = per_job(calls, jobs);
            let (act, jobs) = (act.name().to_owned(), jobs.to_string());
            round_trips.add_row([act, permits.to_owned(), jobs, in_use, calls.to_string(), per_job]);
        }
    }
    println!("{round_trips}\n");
    pool.close().await;
    store.close().await;
    tokio::task::spawn_blocking(move || drop(embedded)).await.map_err(std::io::Error::other)?;
    if !broken.is_empty() {
        return Err(DemoError::Broken(broken.join("; ")));
    }
    let seconds = started.elapsed().as_secs();
    println!("in both acts every job ran once, and never more at once than allowed ({seconds} s)");
    Ok(())
}

/// With one decimal.
fn per_job(calls: u64, jobs: usize) -> String {
    let jobs = u64::try_from(jobs).unwrap_or(u64::MAX).max(1);
    let tenths = (calls * 10 + jobs / 2) / jobs;
    format!("{}.{}", tenths / 10, tenths % 10)
}
