//! A job queue of the plainest kind: a table from which workers take rows with `FOR UPDATE SKIP LOCKED`.

use std::collections::BTreeMap;

use rand::Rng as _;
use sqlx::PgPool;

/// How long a job takes, in milliseconds.
const WORK_MS: std::ops::RangeInclusive<i32> = 50..=400;

/// A job that a worker has taken.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Job {
    pub(super) id: i64,
    pub(super) work_ms: i32,
}

/// How many jobs of a tenant are in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) waiting: i64,
    pub(super) running: i64,
    pub(super) done: i64,
}

/// Creates the table and fills it, the tenants' jobs mixed.
pub(super) async fn create(pool: &PgPool, tenants: &[(&str, i32)]) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(
        "CREATE TABLE jobs (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            tenant text NOT NULL,
            work_ms integer NOT NULL,
            state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'taken', 'running', 'done')),
            worker text
        )",
    )
    .execute(pool)
    .await?;
    let (mut names, mut work) = (Vec::new(), Vec::new());
    for (tenant, jobs) in tenants {
        for _ in 0..*jobs {
            names.push(*tenant);
            work.push(rand::rng().random_range(WORK_MS));
        }
    }
    sqlx::query(
        "INSERT INTO jobs (tenant, work_ms)
         SELECT tenant, work_ms FROM unnest($1::text[], $2::integer[]) AS j (tenant, work_ms) ORDER BY random()",
    )
    .bind(names)
    .bind(work)
    .execute(pool)
    .await?;
    Ok(())
}

/// The oldest queued job of a tenant, which is this worker's from now on.
pub(super) async fn take(pool: &PgPool, tenant: &str, worker: &str) -> Result<Option<Job>, sqlx::Error> {
    sqlx::query_as(
        "UPDATE jobs SET state = 'taken', worker = $2
         WHERE id = (
             SELECT id FROM jobs WHERE tenant = $1 AND state = 'queued' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
         )
         RETURNING id, work_ms",
    )
    .bind(tenant)
    .bind(worker)
    .fetch_optional(pool)
    .await
}

/// Says how far a job is: `running` or `done`.
pub(super) async fn mark(pool: &PgPool, job: &Job, state: &str) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE jobs SET state = $2 WHERE id = $1").bind(job.id).bind(state).execute(pool).await?;
    Ok(())
}

/// How far each tenant's jobs are.
pub(super) async fn progress(pool: &PgPool) -> Result<BTreeMap<String, Counts>, sqlx::Error> {
    let rows: Vec<(String, i64, i64, i64)> = sqlx::query_as(
        "SELECT tenant,
                count(*) FILTER (WHERE state IN ('queued', 'taken')),
                count(*) FILTER (WHERE state = 'running'),
                count(*) FILTER (WHERE state = 'done')
         FROM jobs GROUP BY tenant",
    )
    .fetch_all(pool)
    .await?;
    let counts = |(tenant, waiting, running, done)| (tenant, Counts { waiting, running, done });
    Ok(rows.into_iter().map(counts).collect())
}
