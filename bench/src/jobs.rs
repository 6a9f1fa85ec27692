//! Jobs per second of a real queue, a table whose rows workers take with SKIP LOCKED, with and without a limit on them.

use crate::cluster::{Cluster, connect, execute};
use crate::compare::policy;
use crate::load::{Item, Load, Slice, ratio, slice, summary};
use crate::report::{short, table, title};
use crate::rivals::{Acting, Budget, Ours, WORKERS, Worker};
use futures_util::future::BoxFuture;
use sqlx::PgConnection;

const TURNS: usize = 3;
const JOBS: usize = 400_000;

/// No limit at all.
struct Unlimited;

impl Budget for Unlimited {
    fn workers(&self) -> BoxFuture<'_, Vec<Box<dyn Worker>>> {
        let workers = (0..WORKERS).map(|_| Box::new(Unlimited) as Box<dyn Worker>).collect();
        Box::pin(async { workers })
    }

    fn trips(&self) -> u64 {
        0
    }
}

impl Worker for Unlimited {
    fn acquire(&mut self, _: i32) -> Acting<'_> {
        Box::pin(async {})
    }

    fn release(&mut self) -> Acting<'_> {
        Box::pin(async {})
    }

    fn leave(self: Box<Self>) -> Acting<'static> {
        Box::pin(async {})
    }
}

/// Who takes jobs from the table, under which limit.
struct Queue {
    name: &'static str,
    load: Load,
    budget: Box<dyn Budget>,
    slices: Vec<Slice>,
}

/// Takes the next job, does it in about 1.4 ms, and marks it as done.
struct Job(PgConnection);

impl Item for Job {
    fn run(&mut self) -> Acting<'_> {
        const TAKE: &str = "
            UPDATE jobs SET state = 'running'
            WHERE id = (SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
            RETURNING id";
        Box::pin(async {
            let id: i64 = sqlx::query_scalar(TAKE).fetch_one(&mut self.0).await.expect("a job");
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            let done = sqlx::query("UPDATE jobs SET state = 'done' WHERE id = $1").bind(id);
            done.execute(&mut self.0).await.expect("the job is done");
        })
    }
}

pub async fn run(cluster: &Cluster) {
    title("Jobs per second of a queue, with and without a limit");
    println!(
        "{WORKERS} workers take jobs from a table in the same PostgreSQL, one at a time, do them in about 1.4 ms and mark"
    );
    println!("them as done. Medians of {TURNS} slices of 1 s, in turns.\n");
    let url = cluster.database().await;
    let setup = format!(
        "CREATE TABLE jobs (id bigint PRIMARY KEY, state text NOT NULL) WITH (fillfactor = 50);
         INSERT INTO jobs SELECT id, 'new' FROM generate_series(1, {JOBS}) AS id;
         CREATE INDEX new_jobs ON jobs (id) WHERE state = 'new';
         ANALYZE jobs;"
    );
    execute(&url, &setup).await;
    let [wide, narrow] = [1000, 16].map(|limit| Load { keys: 1, limit });
    let queue = |name, load, budget| Queue { name, load, budget, slices: Vec::new() };
    let mut queues = vec![queue("no limit", wide, Box::new(Unlimited) as Box<dyn Budget>)];
    for (name, load, leases) in [
        ("limit 1000, with leases", wide, true),
        ("limit 1000, grants only", wide, false),
        ("limit 16, with leases", narrow, true),
        ("limit 16, grants only", narrow, false),
    ] {
        queues.push(queue(name, load, Box::new(Ours::start(cluster, &policy(load.limit, leases)).await)));
    }
    for _ in 0..TURNS {
        for Queue { load, budget, slices, .. } in &mut queues {
            slices.push(slice(&**budget, *load, takers(&url).await).await);
        }
    }
    let without = &queues[0].slices;
    let row = |Queue { name, slices, .. }: &Queue| {
        [(*name).to_owned(), format!("{:.0}", summary(slices).rate), short(ratio(slices, without))]
    };
    table(&["", "jobs/s", "of those without"], queues.iter().map(row));
}

async fn takers(url: &str) -> Vec<Box<dyn Item>> {
    let mut takers: Vec<Box<dyn Item>> = Vec::new();
    for _ in 0..WORKERS {
        takers.push(Box::new(Job(connect(url).await)));
    }
    takers
}
