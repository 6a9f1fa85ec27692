//! What the examples share: a PostgreSQL and a holder over it, three worker processes, and the truth about what ran.
//!
//! Each example is one job queue. The process that is started fills it, starts itself three times more as workers, and
//! in the end counts from the table `runs`, which the workers write while they hold a permit, what ran at once. The
//! holder is not asked. `PGSEMAPHORE_BIN` says where the server's binary is.

use std::process::Stdio;
use std::time::Duration;

use queue_client::{Permit, QueueClient, Semaphore};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// What fails ends the example.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

pub const KEY: &str = "account:42";
/// So many jobs may run at once, of one tenant fewer.
const LIMIT: i64 = 3;
const CAPPED: (&str, i64) = ("globex", 1);
const PROCESSES: i64 = 3;
const JOBS: i64 = 45;
const JOB_TAKES: Duration = Duration::from_millis(40);
const WORKER: &str = "QUEUES_WORKER";

/// A job as the queue stores it. The tenant is its group in the semaphore.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    pub id: i64,
    pub tenant: String,
}

/// All jobs that an example puts into its queue.
pub fn jobs() -> impl Iterator<Item = Job> {
    (0..JOBS).map(|id| Job { id, tenant: if id % 3 == 0 { CAPPED.0 } else { "acme" }.to_owned() })
}

/// One worker process.
#[derive(Debug, Clone)]
pub struct Worker {
    pub name: String,
    pub pool: PgPool,
    pub semaphore: Semaphore,
}

impl Worker {
    /// Ready when all workers are: none begins while others still start.
    async fn meet(&self) -> Result {
        sqlx::query("INSERT INTO present VALUES ($1)").bind(&self.name).execute(&self.pool).await?;
        let present = "SELECT count(*) FROM present";
        while sqlx::query_scalar::<_, i64>(present).fetch_one(&self.pool).await? < PROCESSES {
            tokio::time::sleep(JOB_TAKES).await;
        }
        Ok(())
    }

    /// The job itself. The permit is borrowed to show that there is one.
    pub async fn run(&self, job: &Job, _permit: &Permit) -> Result {
        self.run_permitted(job).await
    }

    /// The job itself, where a layer or the poller holds the permit.
    pub async fn run_permitted(&self, job: &Job) -> Result {
        let began = "INSERT INTO runs (job, tenant, worker, began_at) VALUES ($1, $2, $3, clock_timestamp())";
        sqlx::query(began).bind(job.id).bind(&job.tenant).bind(&self.name).execute(&self.pool).await?;
        tokio::time::sleep(JOB_TAKES).await;
        let ended = "UPDATE runs SET ended_at = clock_timestamp() WHERE job = $1 AND worker = $2";
        sqlx::query(ended).bind(job.id).bind(&self.name).execute(&self.pool).await?;
        Ok(())
    }

    /// Ready when every job has ended, whoever ran it.
    pub async fn all_done(&self) -> Result {
        while ended(&self.pool).await? < JOBS {
            tokio::time::sleep(JOB_TAKES).await;
        }
        Ok(())
    }
}

async fn ended(pool: &PgPool) -> Result<i64> {
    Ok(sqlx::query_scalar("SELECT count(DISTINCT job) FROM runs WHERE ended_at IS NOT NULL")
        .fetch_one(pool)
        .await?)
}

/// Fills a queue, works through it in three processes, and fails if more ran at once than allowed.
pub async fn show(
    fill: impl AsyncFnOnce(&PgPool) -> Result,
    work: impl AsyncFnOnce(&Worker) -> Result,
) -> Result {
    let Ok(name) = std::env::var(WORKER) else { return conduct(fill).await };
    let pool = connect(&std::env::var("DATABASE_URL")?).await?;
    let client = QueueClient::from_env()?;
    let worker = Worker { name, pool, semaphore: client.semaphore(KEY) };
    client.check().await?;
    worker.meet().await?;
    work(&worker).await?;
    client.drain().await?;
    Ok(())
}

async fn connect(url: &str) -> Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(8).connect(url).await?)
}

async fn conduct(fill: impl AsyncFnOnce(&PgPool) -> Result) -> Result {
    let folder = std::env::temp_dir().join(format!("pgsemaphore-queues-{}", std::process::id()));
    let binary = std::env::var("PGSEMAPHORE_BIN").unwrap_or_else(|_| "pgsemaphore".to_owned());
    let mut holder = Command::new(binary)
        .args(["serve", "--listen", "127.0.0.1:0", "--end-with-stdin", "--embedded"])
        .arg(&folder)
        .env("PGSEMAPHORE_LOG", "error")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = holder.stdout.take().ok_or("no output")?;
    let line = BufReader::new(output).lines().next_line().await?.ok_or("the holder did not start")?;
    let holder_url = line.strip_prefix("listening on ").ok_or("the holder does not say where it listens")?;
    let url = std::fs::read_to_string(folder.join("url"))?;
    let url = url.trim();
    let pool = connect(url).await?;
    // It is thrown away: no need to wait for the disk.
    for statement in ["ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()"] {
        sqlx::query(statement).execute(&pool).await?;
    }
    let outcome = play(&pool, fill, url, holder_url).await;
    pool.close().await;
    drop(holder.stdin.take());
    holder.wait().await?;
    std::fs::remove_dir_all(folder)?;
    outcome
}

async fn play(pool: &PgPool, fill: impl AsyncFnOnce(&PgPool) -> Result, url: &str, holder: &str) -> Result {
    let policy = serde_json::json!({
        "limit": LIMIT, "group_limits": { CAPPED.0: CAPPED.1 }, "round_wait_ms": 10, "round_period_ms": 20,
    });
    sqlx::query("SELECT pgsemaphore.configure($1, $2::jsonb)")
        .bind(KEY)
        .bind(policy.to_string())
        .execute(pool)
        .await?;
    let runs = "CREATE TABLE runs (job bigint, tenant text, worker text, began_at timestamptz, ended_at timestamptz)";
    for statement in [runs, "CREATE TABLE present (worker text)"] {
        sqlx::query(statement).execute(pool).await?;
    }
    fill(pool).await?;
    let start = |number: i64| -> Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .env(WORKER, format!("worker-{number}"))
            .env("DATABASE_URL", url)
            .env("PGSEMAPHORE_URL", holder);
        Ok(command.kill_on_drop(true).spawn()?)
    };
    let mut workers = (0..PROCESSES).map(start).collect::<Result<Vec<_>>>()?;
    for worker in &mut workers {
        if !worker.wait().await?.success() {
            return Err("a worker failed".into());
        }
    }
    judge(pool).await
}

/// From the table alone.
async fn judge(pool: &PgPool) -> Result {
    let runs: i64 = sqlx::query_scalar("SELECT count(*) FROM runs").fetch_one(pool).await?;
    let workers: i64 = sqlx::query_scalar("SELECT count(DISTINCT worker) FROM runs").fetch_one(pool).await?;
    let at_once = "
        SELECT max(running)::bigint FROM (
            SELECT sum(step) OVER (ORDER BY at, step) AS running FROM (
                SELECT began_at AS at, 1 AS step FROM runs WHERE tenant LIKE $1
                UNION ALL
                SELECT ended_at, -1 FROM runs WHERE tenant LIKE $1
            ) AS steps
        ) AS counts";
    let all: i64 = sqlx::query_scalar(at_once).bind("%").fetch_one(pool).await?;
    let capped: i64 = sqlx::query_scalar(at_once).bind(CAPPED.0).fetch_one(pool).await?;
    let (tenant, cap) = CAPPED;
    println!(
        "{runs} runs of {JOBS} jobs by {workers} processes: at most {all} of {LIMIT} at once, {tenant} {capped} of {cap}"
    );
    if runs != JOBS || ended(pool).await? != JOBS {
        return Err("a job was lost, or ran twice".into());
    }
    if all > LIMIT || capped > cap {
        return Err("more ran at once than allowed".into());
    }
    if workers < 2 {
        return Err("it shows nothing: the processes did not compete".into());
    }
    Ok(())
}
