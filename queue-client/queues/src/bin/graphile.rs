//! graphile_worker: the handler takes the permit, and runs under it.
//!
//! A job that waits for its permit is locked by this worker and takes one of its places (`concurrency`). So have more
//! places than permits, or a queue of one tenant whose ceiling is reached would hold up the others.

use graphile_worker::{IntoTaskHandlerResult, JobSpec, TaskHandler, WorkerContext, WorkerOptions};
use queues::{Job, Result, Worker};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

#[derive(Serialize, Deserialize)]
struct CallProvider(Job);

impl TaskHandler for CallProvider {
    const IDENTIFIER: &'static str = "call_provider";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        let worker = context.get_ext::<Worker>().ok_or("no worker")?;
        let permit = worker.semaphore.acquire(&self.0.tenant).await.map_err(|error| error.to_string())?;
        worker.run(&self.0, &permit).await.map_err(|error| error.to_string())
    }
}

#[tokio::main]
async fn main() -> Result {
    queues::show(fill, work).await
}

fn options(pool: &PgPool) -> WorkerOptions {
    WorkerOptions::default().schema("graphile_worker").pg_pool(pool.clone()).define_job::<CallProvider>()
}

async fn fill(pool: &PgPool) -> Result {
    let jobs = options(pool).init().await?.create_utils();
    for job in queues::jobs() {
        jobs.add_job(CallProvider(job), JobSpec::default()).await?;
    }
    Ok(())
}

async fn work(worker: &Worker) -> Result {
    let options = options(&worker.pool).concurrency(6).listen_os_shutdown_signals(false);
    let graphile = options.add_extension(worker.clone()).init().await?;
    tokio::select! {
        ended = graphile.run() => Ok(ended?),
        done = worker.all_done() => done,
    }
}
