//! How soon a permit that comes back is with who waits for it, parked, beside one plain request on an idle key.
//!
//! Both under the same policy, by HTTP at a holder of its own process over a durable PostgreSQL, in turns in this run,
//! from send to reply. Prints both medians and the ratio that counts, and fails if it is above 4.

use std::time::{Duration, Instant};

use pgsemaphore::Store;
use pgsemaphore::embedded::{Embedded, Options};
use pgsemaphore_tests::{InProcess, Serve, Worker, encode, until};
use serde_json::{Value, json};

const RATIO_MAX: f64 = 4.0;
const PERIOD_MS: u64 = 5;
/// Long enough that no round has to wait for its period.
const REST: Duration = Duration::from_millis(2 * PERIOD_MS);
const IDLE: &str = "idle";
const BUSY: &str = "busy";

/// One client's connections, which stay open.
#[derive(Clone)]
struct Client {
    http: reqwest::Client,
    url: String,
}

impl Client {
    async fn call(&self, key: &str, endpoint: &str, message: &Value) -> Value {
        let target = format!("{}/v1/semaphores/{}/{endpoint}", self.url, encode(key));
        let response = self.http.post(target).json(message).send().await.expect("an answer");
        response.error_for_status().expect("a 200").json().await.expect("JSON")
    }

    async fn give_back(&self, key: &str, worker: &mut Worker) {
        worker.release();
        worker.hear(&self.call(key, "sync", &worker.reports()).await);
    }

    async fn somebody_is_parked(&self) -> bool {
        let response = self.http.get(format!("{}/v1/semaphores/{BUSY}", self.url)).send().await;
        let usage: Value = response.expect("an answer").json().await.expect("JSON");
        usage["blocked"].as_array().is_some_and(|blocked| !blocked.is_empty())
    }

    /// A request whose permit is free, on a key that nobody else uses.
    async fn plain(&self, worker: &mut Worker) -> Duration {
        let message = worker.wants(1);
        tokio::time::sleep(REST).await;
        let start = Instant::now();
        let reply = self.call(IDLE, "request", &message).await;
        let took = start.elapsed();
        worker.hear(&reply);
        assert_eq!(worker.permits(), 1);
        self.give_back(IDLE, worker).await;
        took
    }

    /// One releases the only permit, the other one waits for it.
    async fn wake(&self, holds: &mut Worker, waits: &mut Worker) -> Duration {
        let mut message = waits.wants(1);
        message["wait_ms"] = json!(60_000);
        let client = self.clone();
        let parked = tokio::spawn(async move {
            let reply = client.call(BUSY, "request", &message).await;
            (reply, Instant::now())
        });
        until("it is parked", async || self.somebody_is_parked().await).await;
        tokio::time::sleep(REST).await;
        let start = Instant::now();
        self.give_back(BUSY, holds).await;
        let (reply, end) = parked.await.expect("no panic");
        waits.hear(&reply);
        assert_eq!(waits.permits(), 1);
        end - start
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Medians of `turns` wakes and of as many plain requests.
async fn measure(database: &str, turns: usize) -> (Duration, Duration) {
    Store::connect(database, 1).await.expect("the database").migrate().await.expect("the schema");
    let holder = Serve::start(database).await;
    let setter = InProcess::start(database).await;
    let policy = json!({"limit": 1, "round_wait_ms": 0, "round_period_ms": PERIOD_MS});
    setter.policy("*", policy).await;
    setter.stop().await;
    let client = Client { http: reqwest::Client::new(), url: holder.url().to_owned() };
    let [mut plain, mut holds, mut waits] = ["plain", "one", "other"].map(Worker::new);
    holds.hear(&client.call(BUSY, "request", &holds.wants(1)).await);
    client.plain(&mut plain).await;
    let mut times = (Vec::new(), Vec::new());
    for _ in 0..turns {
        times.0.push(client.wake(&mut holds, &mut waits).await);
        std::mem::swap(&mut holds, &mut waits);
        times.1.push(client.plain(&mut plain).await);
    }
    (median(times.0), median(times.1))
}

fn main() {
    // `cargo test` only sees whether it runs.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let cluster = Embedded::start(&Options::temporary()).unwrap_or_else(|error| panic!("{error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (wake, plain) = runtime.block_on(measure(&cluster.url(), if is_bench { 300 } else { 10 }));
    let ratio = wake.as_secs_f64() / plain.as_secs_f64();
    println!("release to admission: {wake:.2?}, one plain request: {plain:.2?} (medians)");
    println!("a release takes {ratio:.2} times as long as a request; at most {RATIO_MAX} is wanted");
    assert!(!is_bench || ratio <= RATIO_MAX, "who waits is woken too late");
}
