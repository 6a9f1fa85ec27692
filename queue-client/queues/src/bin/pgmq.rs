//! pgmq, with its SQL-only installation: a queue for each tenant, read in batches as large as there are permits.
//!
//! A message that is read is invisible for a time, and is read again if it was not deleted by then. So permits come
//! first: a message that waited for one in this process would use up its time.

use std::time::Duration;

use pgmq::PGMQueueExt;
use queues::{Job, Result, Worker};
use sqlx::PgPool;
use tokio::task::JoinSet;

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
    let mut pollers = JoinSet::new();
    for tenant in TENANTS {
        pollers.spawn(poll(worker.clone(), tenant));
    }
    while let Some(ended) = pollers.join_next().await {
        ended??;
    }
    Ok(())
}

async fn poll(worker: Worker, tenant: &'static str) -> Result {
    let queue = PGMQueueExt::new_with_pool(worker.pool.clone()).await;
    let group = worker.semaphore.group(tenant);
    let mut running = JoinSet::new();
    loop {
        let permits = group.acquire_up_to(4).await?;
        let most = i32::try_from(permits.len())?;
        let messages = queue.read_batch::<Job, serde_json::Value>(tenant, INVISIBLE, most).await?;
        if messages.is_empty() {
            break; // a queue that goes on would drop the permits, and poll with a pause
        }
        for (message, permit) in messages.into_iter().zip(permits) {
            let (worker, queue) = (worker.clone(), queue.clone());
            running.spawn(async move {
                worker.run(&message.message, &permit).await?;
                queue.archive(tenant, message.msg_id).await?;
                drop(permit); // when nothing of the job is left to do
                Result::Ok(())
            });
        }
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}
