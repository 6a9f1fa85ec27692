//! A worker process: takes jobs, waits for a permit for each, runs it, and writes down when it ran. At its end it prints
//! how many round trips that took while permits were short, and how many afterwards.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Args;
use queue_client::{Credentials, Group, HttpTransport, QueueClient, Semaphore};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinSet;

use super::calls::Counting;
use super::jobs::{self, Job};
use super::records::{self, Event, Record};
use super::{DATABASE_VARIABLE, DemoError, KEY};

/// Another worker may just be taking what is due.
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(20);

/// What a worker process is told.
#[derive(Debug, Clone, Args)]
pub(crate) struct WorkerArgs {
    /// The holder to ask for permits
    #[arg(long)]
    pub(super) holder: String,
    /// The name of this worker
    #[arg(long)]
    pub(super) name: String,
    /// The tenants to work for
    #[arg(long, required = true)]
    pub(super) tenant: Vec<String>,
    /// How many jobs of a tenant to have in hand at once
    #[arg(long)]
    pub(super) slots: usize,
    /// How many jobs to take at once, to run them one after the other
    #[arg(long)]
    pub(super) batch: usize,
    /// Where to append when each job started and stopped
    #[arg(long)]
    pub(super) records: PathBuf,
}

struct Worker {
    name: String,
    pool: PgPool,
    semaphore: Semaphore,
    records: File,
    batch: usize,
    calls: Arc<AtomicU64>,
    /// Round trips when the first job after the rush was taken.
    calls_in_rush: OnceLock<u64>,
}

/// Works until the queue is empty, or until the process that started this one is gone.
pub(crate) async fn work(args: WorkerArgs) -> Result<(), DemoError> {
    tokio::select! {
        outcome = work_through_the_queue(args) => outcome,
        () = crate::cli::stdin_ended() => Err(DemoError::Orphaned),
    }
}

async fn work_through_the_queue(args: WorkerArgs) -> Result<(), DemoError> {
    let url = std::env::var(DATABASE_VARIABLE).map_err(|_| DemoError::NoDatabase)?;
    let calls = Arc::new(AtomicU64::new(0));
    let transport =
        Counting::new(HttpTransport::new(&[args.holder], &Credentials::default())?, calls.clone());
    let client = QueueClient::builder().transport(transport).client_id(&*args.name).build()?;
    let worker = Arc::new(Worker {
        pool: PgPoolOptions::new().max_connections(4).connect(&url).await?,
        semaphore: client.semaphore(KEY),
        records: OpenOptions::new().create(true).append(true).open(args.records)?,
        name: args.name,
        batch: args.batch,
        calls,
        calls_in_rush: OnceLock::new(),
    });
    let mut slots = JoinSet::new();
    for tenant in args.tenant {
        for _ in 0..args.slots {
            slots.spawn(run_jobs(worker.clone(), tenant.clone()));
        }
    }
    while let Some(outcome) = slots.join_next().await {
        outcome.map_err(std::io::Error::other)??;
    }
    client.drain().await?;
    let in_rush = worker.calls_in_rush();
    println!("{in_rush} {}", worker.calls.load(Ordering::Relaxed) - in_rush);
    Ok(())
}

async fn run_jobs(worker: Arc<Worker>, tenant: String) -> Result<(), DemoError> {
    let group = worker.semaphore.group(&tenant);
    loop {
        let jobs = jobs::take(&worker.pool, &tenant, &worker.name, worker.batch).await?;
        if jobs.is_empty() {
            match jobs::next_due(&worker.pool, &tenant).await? {
                Some(due) => tokio::time::sleep(due.max(LOOK_AGAIN_MIN)).await,
                None => return Ok(()),
            }
        }
        if jobs.iter().any(|job| !job.in_rush) {
            worker.calls_in_rush();
        }
        for job in jobs {
            worker.run(&group, &job).await?;
        }
    }
}

impl Worker {
    /// Round trips until the first time that this is asked.
    fn calls_in_rush(&self) -> u64 {
        *self.calls_in_rush.get_or_init(|| self.calls.load(Ordering::Relaxed))
    }

    async fn run(&self, group: &Group, job: &Job) -> Result<(), DemoError> {
        let permit = group.acquire().await?;
        self.write_down(Event::Start, group.name(), job)?;
        jobs::mark(&self.pool, job, "running").await?;
        // The job itself: something elsewhere that bears only so many callers at once.
        tokio::time::sleep(Duration::from_millis(u64::from(job.work_ms.unsigned_abs()))).await;
        self.write_down(Event::Stop, group.name(), job)?;
        drop(permit);
        jobs::mark(&self.pool, job, "done").await?;
        Ok(())
    }

    fn write_down(&self, event: Event, tenant: &str, job: &Job) -> std::io::Result<()> {
        let record = Record {
            at: records::now()?,
            event,
            key: KEY.to_owned(),
            group: tenant.to_owned(),
            client: self.name.clone(),
            item: job.id,
            in_rush: job.in_rush,
        };
        records::append(&self.records, &record)
    }
}
