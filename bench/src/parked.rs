//! From a release to the next admission in a holder where many clients wait, by how many do: each round asks for all.

use crate::cluster::{Cluster, until_blocked};
use crate::report::{median_ms, ms, short, table, title};
use pgsemaphore::{Holder, Refusal};
use pgsemaphore_allocation::SemaphoreKey;
use pgsemaphore_tests::{InProcess, message};
use queue_client::wire::Reply;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const WAITING: [usize; 4] = [10, 100, 1_000, 9_000];
const TURNS: usize = 20;
/// For all to be parked, and from one turn to the next.
const REST: Duration = Duration::from_millis(50);

pub async fn run(cluster: &Cluster) {
    title("From a release to the next admission, by the clients that wait");
    println!(
        "One permit; all others' requests are parked at the holder, without HTTP. {TURNS} times each. Whoever gets"
    );
    println!("the permit still has to claim it.\n");
    let mut rows = Vec::new();
    for waiting in WAITING {
        let times = releases(cluster, waiting).await;
        let longest = times.iter().copied().max().unwrap_or_default();
        rows.push([waiting.to_string(), short(median_ms(&times)), short(ms(longest))]);
    }
    table(&["clients that wait", "p50, ms", "longest, ms"], rows);
}

async fn releases(cluster: &Cluster, waiting: usize) -> Vec<Duration> {
    let database = cluster.migrated().await;
    let server = InProcess::start(&database).await;
    server.policy("*", json!({"limit": 1, "round_wait_ms": 0, "round_period_ms": 0})).await;
    let (answers, mut answered) = mpsc::unbounded_channel();
    let wants = json!({"demand": [{"group": "", "count": 1}], "wait_ms": 60_000});
    let mut holds = ask(server.holder(), "first", &wants).await;
    let tasks = (0..waiting).map(|n| {
        let (holder, answers, wants) = (server.holder().clone(), answers.clone(), wants.clone());
        tokio::spawn(async move {
            let _ended = answers.send((ask(&holder, &format!("c{n}"), &wants).await, Instant::now()));
        })
    });
    let tasks: Vec<_> = tasks.collect();
    until_blocked(&database, waiting).await;
    let mut times = Vec::new();
    for _ in 0..TURNS.min(waiting) {
        tokio::time::sleep(REST).await;
        let start = Instant::now();
        give_back(server.holder(), holds).await;
        let (next, at) = answered.recv().await.expect("somebody is admitted");
        times.push(at - start);
        holds = next;
    }
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    server.stop().await;
    times
}

type Granted = (String, Reply);

async fn ask(holder: &Holder, client: &str, fields: &Value) -> Granted {
    let asked = holder.request(SemaphoreKey::new("k"), body(client, fields)).await;
    (client.to_owned(), answer(asked))
}

async fn give_back(holder: &Holder, (client, reply): Granted) {
    let id = &reply.grants[0].id;
    let fields = json!({"seen": reply.round, "grants": [{"id": id, "claimed": 1, "released": 1}]});
    answer(holder.sync(SemaphoreKey::new("k"), body(&client, &fields)).await);
}

fn body(client: &str, fields: &Value) -> queue_client::wire::Message {
    serde_json::from_value(message(client, fields.clone())).expect("a message")
}

fn answer(reply: Result<Reply, Refusal>) -> Reply {
    reply.unwrap_or_else(|refusal| panic!("{refusal:?}"))
}
