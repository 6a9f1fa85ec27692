//! A job queue of the plainest kind: a table from which workers take rows with `FOR UPDATE SKIP LOCKED`.

use std::collections::BTreeMap;
use std::iter;
use std::time::Duration;

use rand::Rng as _;
use rand::seq::SliceRandom as _;
use sqlx::PgPool;

use super::BATCH;

/// How long a job takes, in milliseconds.
const WORK_MS: std::ops::RangeInclusive<i32> = 150..=450;
/// Of so many batches of a tenant so many are due at once, at the beginning.
const RUSH: (usize, usize) = (5, 2);
/// When the first of the other batches is due, after the rush is over, and how long after each comes the next.
const FIRST_BATCH_AFTER_MS: i32 = 7_500;
const BATCH_EVERY_MS: usize = 500;

/// A job that a worker has taken.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Job {
    pub(super) id: i64,
    pub(super) work_ms: i32,
    /// Due with many others, while permits are short.
    pub(super) in_rush: bool,
}

/// How many jobs of a tenant are in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) waiting: i64,
    pub(super) running: i64,
    pub(super) done: i64,
}

/// Creates the table and fills it, the tenants' jobs mixed: a rush, then batches of one tenant's jobs now and then.
pub(super) async fn create(pool: &PgPool, tenants: &[(&str, i32)]) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(
        "CREATE TABLE jobs (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            tenant text NOT NULL,
            work_ms integer NOT NULL,
            after_ms integer NOT NULL,
            due timestamptz,
            state text NOT NULL DEFAULT 'new' CHECK (state IN ('new', 'queued', 'taken', 'running', 'done')),
            worker text
        )",
    )
    .execute(pool)
    .await?;
    let (mut rush, mut later) = (Vec::new(), Vec::new());
    for (tenant, jobs) in tenants {
        let batches = usize::try_from(*jobs).unwrap_or_default() / BATCH;
        let in_rush = batches * RUSH.1 / RUSH.0;
        rush.extend(iter::repeat_n(*tenant, in_rush));
        later.extend(iter::repeat_n(*tenant, batches - in_rush));
    }
    rush.shuffle(&mut rand::rng());
    later.shuffle(&mut rand::rng());
    let (mut names, mut work, mut after) = (Vec::new(), Vec::new(), Vec::new());
    let due = iter::repeat_n(0, rush.len()).chain((FIRST_BATCH_AFTER_MS..).step_by(BATCH_EVERY_MS));
    for (tenant, due) in rush.into_iter().chain(later).zip(due) {
        for _ in 0..BATCH {
            names.push(tenant);
            work.push(rand::rng().random_range(WORK_MS));
            after.push(due);
        }
    }
    sqlx::query(
        "INSERT INTO jobs (tenant, work_ms, after_ms)
         SELECT * FROM unnest($1::text[], $2::integer[], $3::integer[])",
    )
    .bind(names)
    .bind(work)
    .bind(after)
    .execute(pool)
    .await?;
    Ok(())
}

/// Queues all jobs, whatever has become of them before; from now on they become due.
pub(super) async fn queue(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE jobs SET state = 'queued', due = now() + after_ms * interval '1 ms', worker = NULL")
        .execute(pool)
        .await?;
    Ok(())
}

/// Jobs of a tenant that are due, at most `most`, the oldest ones; they are this worker's from now on.
pub(super) async fn take(
    pool: &PgPool,
    tenant: &str,
    worker: &str,
    most: usize,
) -> Result<Vec<Job>, sqlx::Error> {
    sqlx::query_as(
        "UPDATE jobs SET state = 'taken', worker = $2
         WHERE id = ANY (ARRAY(
             SELECT id FROM jobs WHERE tenant = $1 AND state = 'queued' AND due <= now()
             ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED
         ))
         RETURNING id, work_ms, after_ms = 0 AS in_rush",
    )
    .bind(tenant)
    .bind(worker)
    .bind(i64::try_from(most).unwrap_or(i64::MAX))
    .fetch_all(pool)
    .await
}

/// How long it takes until a job of a tenant is due; `None` if there is none to come.
pub(super) async fn next_due(pool: &PgPool, tenant: &str) -> Result<Option<Duration>, sqlx::Error> {
    let seconds: Option<f64> = sqlx::query_scalar(
        "SELECT extract(epoch FROM min(due) - now())::float8
         FROM jobs WHERE tenant = $1 AND state = 'queued'",
    )
    .bind(tenant)
    .fetch_one(pool)
    .await?;
    Ok(seconds.map(|seconds| Duration::from_secs_f64(seconds.max(0.0))))
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
