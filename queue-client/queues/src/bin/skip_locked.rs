//! A plain table, read with `SKIP LOCKED`: the queue that many applications have written for themselves.
//!
//! `poll` waits until it may run something, then takes as many jobs as it has permits for: so a job is locked only when it
//! can run, and another process is never kept from it. An empty queue asks for no permits for a while.

use queues::{Job, Result, Worker};
use sqlx::PgPool;

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
    let [acme, globex] = ["acme", "globex"].map(|tenant| poll(worker, tenant));
    tokio::select! {
        ended = async { tokio::try_join!(acme, globex) } => ended.map(drop),
        done = worker.all_done() => done,
    }
}

async fn poll(worker: &Worker, tenant: &'static str) -> Result {
    let fetch = async |most: usize| {
        let take = sqlx::query_scalar::<_, i64>(TAKE)
            .bind(&worker.name)
            .bind(tenant)
            .bind(i64::try_from(most).unwrap_or(1));
        take.fetch_all(&worker.pool).await
    };
    let run = |id: i64| {
        let worker = worker.clone();
        async move {
            let job = Job { id, tenant: tenant.to_owned() };
            if let Err(error) = worker.run_permitted(&job).await {
                eprintln!("job {id}: {error}"); // a queue would try it again
            }
        }
    };
    Ok(worker.semaphore.group(tenant).poll(4, fetch, run).await?)
}
