//! A worker process: takes jobs, waits for a permit for each, runs it, and writes down when it ran.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use queue_client::{QueueClient, Semaphore};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinSet;

use super::jobs::{self, Job};
use super::records::{self, Event, Record};
use super::{DATABASE_VARIABLE, DemoError, KEY};

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
    /// Where to append when each job started and stopped
    #[arg(long)]
    pub(super) records: PathBuf,
}

struct Worker {
    name: String,
    pool: PgPool,
    semaphore: Semaphore,
    records: File,
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
    let client = QueueClient::builder().url(args.holder).client_id(&*args.name).build()?;
    let worker = Arc::new(Worker {
        pool: PgPoolOptions::new().max_connections(4).connect(&url).await?,
        semaphore: client.semaphore(KEY),
        records: OpenOptions::new().create(true).append(true).open(args.records)?,
        name: args.name,
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
    Ok(())
}

async fn run_jobs(worker: Arc<Worker>, tenant: String) -> Result<(), DemoError> {
    while let Some(job) = jobs::take(&worker.pool, &tenant, &worker.name).await? {
        let permit = worker.semaphore.acquire(&tenant).await?;
        worker.write_down(Event::Start, &tenant, &job)?;
        jobs::mark(&worker.pool, &job, "running").await?;
        // The job itself: something elsewhere that bears only so many callers at once.
        tokio::time::sleep(Duration::from_millis(u64::from(job.work_ms.unsigned_abs()))).await;
        worker.write_down(Event::Stop, &tenant, &job)?;
        drop(permit);
        jobs::mark(&worker.pool, &job, "done").await?;
    }
    Ok(())
}

impl Worker {
    fn write_down(&self, event: Event, tenant: &str, job: &Job) -> std::io::Result<()> {
        let record = Record {
            at: records::now()?,
            event,
            key: KEY.to_owned(),
            group: tenant.to_owned(),
            client: self.name.clone(),
            item: job.id,
        };
        records::append(&self.records, &record)
    }
}
