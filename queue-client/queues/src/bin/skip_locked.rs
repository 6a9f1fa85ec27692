//! A plain table, read with `SKIP LOCKED`: the queue that many applications have written for themselves.
//!
//! A poller waits until it may run something, then takes as many jobs as it has permits for: so a job is locked only
//! when it can run, and another process is never kept from it. A permit that finds no job is given back by its drop.

use queues::{Job, Result, Worker};
use sqlx::PgPool;
use tokio::task::JoinSet;

const TAKE: &str = "
    UPDATE jobs SET taken_by = $1 WHERE id IN (
        SELECT id FROM jobs WHERE taken_by IS NULL AND tenant = $2 ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED
    ) RETURNING id";

#[tokio::main]
async fn main() -> Result {
    queues::show(fill, work).await
}

async fn fill(pool: &PgPool) -> Result {
    sqlx::query("CREATE TABLE jobs (id bigint PRIMARY KEY, tenant text, taken_by text)")
        .execute(pool)
        .await?;
    for Job { id, tenant } in queues::jobs() {
        sqlx::query("INSERT INTO jobs VALUES ($1, $2)").bind(id).bind(tenant).execute(pool).await?;
    }
    Ok(())
}

async fn work(worker: &Worker) -> Result {
    let mut pollers = JoinSet::new();
    for tenant in ["acme", "globex"] {
        pollers.spawn(poll(worker.clone(), tenant));
    }
    while let Some(ended) = pollers.join_next().await {
        ended??;
    }
    Ok(())
}

async fn poll(worker: Worker, tenant: &'static str) -> Result {
    let group = worker.semaphore.group(tenant);
    let mut running = JoinSet::new();
    loop {
        let permits = group.acquire_up_to(4).await?;
        let take =
            sqlx::query_scalar(TAKE).bind(&worker.name).bind(tenant).bind(i64::try_from(permits.len())?);
        let ids: Vec<i64> = take.fetch_all(&worker.pool).await?;
        if ids.is_empty() {
            break; // a queue that goes on would drop the permits and wait for news, by LISTEN or a pause
        }
        for (id, permit) in ids.into_iter().zip(permits) {
            let worker = worker.clone();
            running.spawn(async move { worker.run(&Job { id, tenant: tenant.to_owned() }, &permit).await });
        }
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}
