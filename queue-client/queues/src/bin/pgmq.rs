//! pgmq, with its SQL-only installation: a queue for each tenant, read in batches as large as there are permits.
//!
//! A message that is read is invisible for a time, and is read again if it was not deleted by then. So permits come
//! first: a message that waited for one in this process would use up its time.

use std::time::Duration;

use pgmq::PGMQueueExt;
use queues::{Job, Result, Worker};
use sqlx::PgPool;

const TENANTS: [&str; 2] = ["acme", "globex"];
/// Longer than any job takes.
const INVISIBLE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result {
    queues::show(fill, work).await
}

async fn fill(pool: &PgPool) -> Result {
    let queue = PGMQueueExt::new_with_pool(pool.clone()).await;
    queue.install_sql_from_embedded().await?;
    for tenant in TENANTS {
        queue.create(tenant).await?;
    }
    for job in queues::jobs() {
        queue.send(&job.tenant, &job).await?;
    }
    Ok(())
}

async fn work(worker: &Worker) -> Result {
    let [acme, globex] = TENANTS.map(|tenant| poll(worker, tenant));
    tokio::select! {
        ended = async { tokio::try_join!(acme, globex) } => ended.map(drop),
        done = worker.all_done() => done,
    }
}

async fn poll(worker: &Worker, tenant: &'static str) -> Result {
    let queue = PGMQueueExt::new_with_pool(worker.pool.clone()).await;
    let fetch = async |most: usize| {
        queue.read_batch::<Job, serde_json::Value>(tenant, INVISIBLE, i32::try_from(most).unwrap_or(1)).await
    };
    let run = |message: pgmq::Message<Job>| {
        let (worker, queue) = (worker.clone(), queue.clone());
        async move {
            if let Err(error) = process(&worker, &queue, &message).await {
                eprintln!("message {}: {error}", message.msg_id); // it is read again when its time is over
            }
        }
    };
    Ok(worker.semaphore.group(tenant).poll(4, fetch, run).await?)
}

/// All of it is under the permit.
async fn process(worker: &Worker, queue: &PGMQueueExt, message: &pgmq::Message<Job>) -> Result {
    worker.run_permitted(&message.message).await?;
    queue.archive(&message.message.tenant, message.msg_id).await?;
    Ok(())
}
