//! A job queue as a process of its own, for tests that freeze and kill one: it does what its standard input says.
//!
//! `queue URL CLIENT_ID KEY fresh`, or `resume` and the detached permits of the jobs that still run, as JSON.
//!
//! | line in | does | line out |
//! | --- | --- | --- |
//! | `start JOB` | acquires a permit for it | `started JOB`, or `failed JOB ERROR` |
//! | `end JOB` | the job ends: its permit is dropped | `ended JOB` |
//! | `detach JOB` | the job goes on elsewhere | `detached JOB JSON` |
//! | `resume JOB JSON` | the job is here again | `resumed JOB` |
//! | `count JOB` | | `counted JOB true` or `false` |
//! | `drain` | | `drained` |

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use queue_client::{DetachedPermit, Permit, QueueClient};
use tokio::sync::mpsc;

type Jobs = Arc<Mutex<BTreeMap<String, Permit>>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, client_id, key, start, running @ ..] = arguments.as_slice() else {
        return Err("queue URL CLIENT_ID KEY fresh|resume [JSON...]".into());
    };
    let mut builder = QueueClient::builder().url(url).client_id(client_id);
    if start == "resume" {
        let running = running.iter().map(|json| serde_json::from_str::<DetachedPermit>(json));
        builder = builder.resume(running.collect::<Result<Vec<_>, _>>()?);
    }
    let client = builder.build()?;
    let jobs = Jobs::default();
    let mut lines = lines();
    while let Some(line) = lines.recv().await {
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().unwrap_or_default().to_owned();
        let (order, job, json) = (word(), word(), word());
        let taken = |job: &str| lock(&jobs).remove(job);
        match order.as_str() {
            "start" => drop(tokio::spawn(run(client.clone(), key.clone(), job, jobs.clone()))),
            "end" => {
                drop(taken(&job));
                println!("ended {job}");
            }
            "detach" => {
                let permit = taken(&job).ok_or("no such job")?;
                println!("detached {job} {}", serde_json::to_string(&permit.detach())?);
            }
            "resume" => {
                let permit = client.resume(&serde_json::from_str(&json)?)?;
                lock(&jobs).insert(job.clone(), permit);
                println!("resumed {job}");
            }
            "count" => {
                let counted = lock(&jobs).get(&job).is_some_and(Permit::is_counted);
                println!("counted {job} {counted}");
            }
            "drain" => {
                client.drain().await?;
                println!("drained");
            }
            _ => return Err(format!("what is {line:?}?").into()),
        }
    }
    Ok(())
}

async fn run(client: QueueClient, key: String, job: String, jobs: Jobs) {
    match client.semaphore(key).acquire("").await {
        Ok(permit) => {
            lock(&jobs).insert(job.clone(), permit);
            println!("started {job}");
        }
        Err(error) => println!("failed {job} {error}"),
    }
}

/// Of the standard input, until it closes.
fn lines() -> mpsc::UnboundedReceiver<String> {
    let (sender, lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
