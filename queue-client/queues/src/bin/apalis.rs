//! apalis with its PostgreSQL backend: the permit is taken by a tower layer around the task.
//!
//! apalis fetches tasks before they have a permit, at most `concurrency` of them at a time in a process. They wait in
//! the layer, first in, first out within their tenant, and are heartbeaten by apalis meanwhile.

use apalis::prelude::*;
use apalis_postgres::{Config, PostgresStorage};
use queue_client::PermitLayer;
use queues::{Job, Result, Worker};
use sqlx::PgPool;

const QUEUE: &str = "nightly";

#[tokio::main]
async fn main() -> Result {
    queues::show(fill, work).await
}

async fn fill(pool: &PgPool) -> Result {
    PostgresStorage::setup(pool).await?;
    let mut storage = PostgresStorage::new(pool).with_config(Config::default().queue(QUEUE));
    for job in queues::jobs() {
        storage.push(job).await?;
    }
    Ok(())
}

async fn work(worker: &Worker) -> Result {
    let permits = PermitLayer::new(worker.semaphore.clone(), |task: &Task<Job>| task.args.tenant.clone());
    let storage =
        PostgresStorage::new(&worker.pool).with_config(Config::default().queue(QUEUE).batch_size(4));
    let apalis = WorkerBuilder::new(worker.name.as_str())
        .backend(storage)
        .concurrency(4)
        .layer(permits)
        .data(worker.clone())
        .build(run);
    tokio::select! {
        ended = apalis.run() => Ok(ended?),
        done = worker.all_done() => done,
    }
}

async fn run(job: Job, worker: Data<Worker>) -> std::result::Result<(), BoxDynError> {
    worker.run_permitted(&job).await
}
