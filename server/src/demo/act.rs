//! One act: a holder and workers of its own, from the first job to the last.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::PgPool;

use super::processes::Process;
use super::records::{self, Record};
use super::show::Progress;
use super::{BATCH, DemoError, LIMIT, SLOTS, TENANTS, WORKERS, jobs};
use crate::clock;

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A guard against hanging, more than ten times what it takes.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// What one act does differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// Each permit is asked for.
    Grants,
    /// Permits that are left are lent ahead, a batch's rest to whoever asks for its first.
    Leases,
}

/// What came of an act.
pub(super) struct Outcome {
    pub(super) records: Vec<Record>,
    /// Round trips of all workers while permits were short.
    pub(super) calls_in_rush: u64,
    /// Round trips of all workers while there were plenty.
    pub(super) calls_later: u64,
}

impl Act {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Grants => "grants",
            Self::Leases => "leases",
        }
    }

    /// What is shown above its table.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Grants => "act 1, grants: each permit is asked for",
            Self::Leases => "act 2, leases: permits that are left are lent ahead",
        }
    }

    /// The fields of the policy that make the difference.
    pub(super) fn policy(self) -> Value {
        match self {
            Self::Grants => json!({ "provisioning": "none" }),
            Self::Leases => json!({
                "provisioning": "strict",
                "permits_per_lease": BATCH - 1,
                "limited_groups": "within_group_limit",
            }),
        }
    }

    /// Plays it: the table is full, the policy set.
    pub(super) async fn play(
        self,
        pool: &PgPool,
        folder: &Path,
        database_url: &str,
    ) -> Result<Outcome, DemoError> {
        let name = self.name();
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let serve = words("serve --listen 127.0.0.1:0 --end-with-stdin");
        let mut holder = Process::start(&format!("{name}-holder"), folder, database_url, &serve)?;
        let line = holder.first_line().await?;
        let url = line.strip_prefix("listening on ").ok_or_else(|| DemoError::Holder(line.clone()))?;
        let total: i32 = TENANTS.iter().map(|(_, jobs)| jobs).sum();
        eprintln!(
            "{name}: {total} jobs, {WORKERS} worker processes with {} slots each, a limit of {LIMIT}",
            SLOTS * TENANTS.len()
        );

        let (mut workers, mut files) = (Vec::new(), Vec::new());
        for number in 1..=WORKERS {
            let worker = format!("{name}-worker-{number}");
            let file = folder.join(format!("{worker}.records"));
            let line = format!("demo-worker --holder {url} --name {worker} --slots {SLOTS} --batch {BATCH}");
            let mut arguments = words(&line);
            arguments.extend(TENANTS.iter().flat_map(|(tenant, _)| ["--tenant".into(), (*tenant).into()]));
            arguments.extend(["--records".into(), file.display().to_string()]);
            workers.push(Process::start(&worker, folder, database_url, &arguments)?);
            files.push(file);
        }
        watch(pool, &mut holder, &mut workers).await?;
        holder.end().await?;

        let mut outcome = Outcome { records: Vec::new(), calls_in_rush: 0, calls_later: 0 };
        for (worker, file) in workers.iter_mut().zip(&files) {
            outcome.records.extend(records::read(file)?);
            let line = worker.first_line().await?;
            let calls = line.split(' ').map(str::parse::<u64>).collect::<Result<Vec<_>, _>>();
            let [in_rush, later] = calls.map_err(std::io::Error::other)?[..] else {
                return Err(DemoError::Holder(line));
            };
            outcome.calls_in_rush += in_rush;
            outcome.calls_later += later;
        }
        Ok(outcome)
    }
}

/// Shows how far the jobs are until all workers have ended.
async fn watch(pool: &PgPool, holder: &mut Process, workers: &mut [Process]) -> Result<(), DemoError> {
    let started = clock::now();
    let mut progress = Progress::new(&TENANTS);
    let mut looks = tokio::time::interval(LOOK_EVERY);
    loop {
        looks.tick().await;
        let counts = jobs::progress(pool).await?;
        progress.update(&counts);
        if holder.check()? {
            return Err(DemoError::Holder("it ended before the workers did".to_owned()));
        }
        let mut ended = 0;
        for worker in workers.iter_mut() {
            ended += usize::from(worker.check()?);
        }
        if ended == workers.len() {
            progress.update(&jobs::progress(pool).await?);
            progress.finish();
            return Ok(());
        }
        if started.elapsed() > TIME_LIMIT {
            let left = counts.values().map(|count| count.waiting + count.running).sum();
            return Err(DemoError::TooSlow { seconds: TIME_LIMIT.as_secs(), left, log: holder.end_of_log() });
        }
    }
}
