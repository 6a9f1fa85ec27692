//! A holder that is asked to end: others answer for it at once, what it began is finished, and it ends whatever the
//! database does.

use std::time::Duration;

use nix::sys::signal::Signal;
use pgsemaphore_tests::{
    Api, Caller, Db, InProcess, Mode, Process, Proxy, Serve, Worker, faults, private_cluster, until, verify,
    within_reason,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// It must have ended by then, long before a supervisor kills it; it takes about half of that where it takes longest.
const PATIENCE: Duration = Duration::from_secs(15);

fn policy(limit: u64, round_wait_ms: u64) -> Value {
    json!({"limit": limit, "round_wait_ms": round_wait_ms, "round_period_ms": 0})
}

/// Sends bytes over a connection of their own, and gives all that comes back until it ends.
async fn exchange(url: &str, bytes: &[u8]) -> JoinHandle<Vec<u8>> {
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).await.expect("a connection");
    stream.write_all(bytes).await.expect("it is sent");
    tokio::spawn(async move {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        answer
    })
}

/// A call that leaves its connection open.
fn post(path: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}

async fn text(answer: JoinHandle<Vec<u8>>) -> String {
    let answer = within_reason("the end of the connection", answer).await.expect("no panic");
    String::from_utf8_lossy(&answer).to_lowercase()
}

async fn until_blocked(db: &Db, clients: i64) {
    until("they are parked", async || {
        let query = sqlx::query_scalar("SELECT count(*) FROM pgsemaphore.blocked");
        query.fetch_one(db.pool()).await.is_ok_and(|found: i64| found == clients)
    })
    .await;
}

async fn holders(db: &Db) -> i64 {
    let query = sqlx::query_scalar("SELECT count(*) FROM pgsemaphore_data.holders");
    query.fetch_one(db.pool()).await.expect("the table")
}

async fn ends_soon(holder: &mut Serve) {
    let code = tokio::time::timeout(PATIENCE, holder.code()).await.expect("it ends");
    assert_eq!(code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_sent_elsewhere_and_no_connection_stays() {
    let db = Db::new().await;
    let mut holder = Serve::start(db.url()).await;
    let caller = Caller::of(holder.url());
    caller.policy("slow", &policy(1, 60_000)).await;
    caller.policy("full", &policy(0, 0)).await;

    let idle = exchange(holder.url(), b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let park = |client: &str| {
        let mut message = Worker::new(client).wants(1);
        message["wait_ms"] = json!(60_000);
        message
    };
    let parked = exchange(holder.url(), &post("/v1/semaphores/full/request", &park("parked"))).await;
    let http = reqwest::Client::builder().http2_prior_knowledge().build().expect("an HTTP client");
    let second = http.post(format!("{}/v1/semaphores/full/request", holder.url()));
    let second = tokio::spawn(second.json(&park("second")).send());
    until_blocked(&db, 2).await;
    let waits = Worker::new("waits").wants(1);
    let waits = exchange(holder.url(), &post("/v1/semaphores/slow/request", &waits)).await;
    let mut sync = Worker::new("sync").reports();
    (sync["wait_ms"], sync["leases"]) = (json!(60_000), json!([]));
    let sync = exchange(holder.url(), &post("/v1/semaphores/full/sync", &sync)).await;
    let last = exchange(holder.url(), &post("/v1/semaphores/full/request", &park("last"))).await;
    // Those that connected before it have been heard, too.
    until_blocked(&db, 3).await;
    until("it is known to others", async || holders(&db).await == 1).await;

    holder.terminate();
    for answer in [parked, waits, sync, last] {
        let answer = text(answer).await;
        assert_eq!(holders(&db).await, 0, "others know before its callers do");
        assert!(answer.starts_with("http/1.1 503"), "{answer}");
        for part in ["shutting_down", "retry-after: ", "connection: close"] {
            assert!(answer.contains(part), "{answer}");
        }
    }
    let second = within_reason("an answer", second).await.expect("no panic").expect("an answer over HTTP/2");
    assert_eq!(second.status(), 503);
    assert!(second.headers().contains_key("retry-after"));
    assert!(text(idle).await.starts_with("http/1.1 200"), "and then its connection is closed");
    let refused = TcpStream::connect(holder.url().trim_start_matches("http://")).await;
    assert!(refused.is_err(), "nobody listens any more");
    ends_soon(&mut holder).await;
}

#[tokio::test]
async fn connections_of_http_2_are_told() {
    const GOAWAY: u8 = 7;
    let db = Db::new().await;
    let mut holder = Serve::start(db.url()).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let frames = exchange(holder.url(), preface).await;
    // It answers others after it has heard this one.
    assert_eq!(Api::new(holder.url()).get("/healthz").await.status, 200);
    holder.terminate();
    let frames = within_reason("the end of the connection", frames).await.expect("no panic");
    let mut rest = &frames[..];
    let mut kinds = Vec::new();
    while let [a, b, c, kind, ..] = rest {
        kinds.push(*kind);
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        rest = rest.get(9 + length..).unwrap_or_default();
    }
    assert!(kinds.contains(&GOAWAY), "{kinds:?}");
    ends_soon(&mut holder).await;
}

/// What has begun is committed, and told.
#[tokio::test]
async fn a_transaction_under_way_is_finished() {
    let db = Db::new().await;
    let mut holder = Serve::start(db.url()).await;
    let caller = Caller::of(holder.url());
    caller.policy("*", &policy(5, 0)).await;
    let _ = caller.insist("k", &Worker::new("other").wants(0)).await;
    let lock = faults::RowLock::hold(db.url(), "k").await;
    let call = exchange(holder.url(), &post("/v1/semaphores/k/request", &Worker::new("w").wants(3))).await;
    faults::until_locked_out(db.pool(), 1).await;
    holder.terminate();
    until("it leaves", async || holders(&db).await == 0).await;
    lock.release().await;
    let answer = text(call).await;
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    assert!(answer.contains("connection: close") && answer.contains("\"permits\":3"), "{answer}");
    ends_soon(&mut holder).await;
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn it_is_not_ready_as_soon_as_it_leaves() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("*", policy(5, 0)).await;
    let api = Api::new(holder.url());
    until("it is ready", async || api.get("/readyz").await.status == 200).await;
    holder.holder().leave().await;
    assert_eq!(holders(&db).await, 0);
    assert_eq!(api.get("/healthz").await.status, 200);
    let body = Worker::new("w").wants(1).to_string();
    let answers = [
        api.get("/readyz").await,
        api.post("/v1/semaphores/k/request", &body).await,
        api.get("/v1/semaphores/k").await,
    ];
    for answer in answers {
        assert_eq!(answer.code(), (503, "shutting_down"));
        assert_eq!(answer.header("connection"), Some("close"));
    }
}

/// With a call under way, which is answered.
async fn ends_in_trouble(holder: &mut Serve, caller: &Caller) {
    let (waiting, message) = (caller.clone(), Worker::new("late").wants(1));
    let call = tokio::spawn(async move { waiting.request("k", &message).await });
    tokio::task::yield_now().await;
    holder.terminate();
    ends_soon(holder).await;
    let heard = within_reason("an answer, or the end of the connection", call).await.expect("no panic");
    assert!(heard.is_none_or(|heard| heard.status == 503 && heard.retry_after.is_some()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_ends_while_the_database_is_frozen() {
    let cluster = private_cluster().await;
    let mut holder = Serve::start(&cluster.url()).await;
    let caller = Caller::of(holder.url());
    caller.policy("*", &policy(5, 0)).await;
    let _ = caller.insist("k", &Worker::new("w").wants(1)).await;
    faults::signal_cluster(cluster.pid().expect("it runs"), Signal::SIGSTOP);
    ends_in_trouble(&mut holder, &caller).await;
    faults::signal_cluster(cluster.pid().expect("it runs"), Signal::SIGCONT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_ends_while_the_database_is_out_of_reach() {
    let db = Db::new().await;
    for mode in [Mode::Drop, Mode::Cut] {
        let proxy = Proxy::before(db.url()).await;
        let mut holder = Serve::start(&proxy.through(db.url())).await;
        let caller = Caller::of(holder.url());
        caller.policy("*", &policy(5, 0)).await;
        let _ = caller.insist("k", &Worker::new("w").wants(0)).await;
        proxy.set(mode);
        ends_in_trouble(&mut holder, &caller).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_ends_while_somebody_locks_rows() {
    const KEYS: usize = 10;
    let db = Db::new().await;
    let mut holder = Serve::start(db.url()).await;
    let caller = Caller::of(holder.url());
    caller.policy("*", &policy(5, 0)).await;
    let mut locks = Vec::new();
    // More than it has connections for.
    for n in 0..KEYS {
        let _ = caller.insist(&format!("k{n}"), &Worker::new("w").wants(0)).await;
        locks.push(faults::RowLock::hold(db.url(), &format!("k{n}")).await);
    }
    let calls: Vec<_> = (0..KEYS)
        .map(|n| {
            let caller = caller.clone();
            tokio::spawn(async move { caller.request(&format!("k{n}"), &Worker::new("w").wants(1)).await })
        })
        .collect();
    faults::until_locked_out(db.pool(), 8).await;
    holder.terminate();
    for call in calls {
        let heard = within_reason("an answer", call).await.expect("no panic").expect("an answer");
        assert_eq!(heard.status, 503, "{heard:?}");
        assert!(heard.retry_after.is_some());
        assert_eq!(holders(&db).await, 0, "its row does not need the connections of calls");
    }
    ends_soon(&mut holder).await;
    for lock in locks {
        lock.release().await;
    }
    assert_eq!(verify(&db).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_twice_does_not_wait_for_the_database() {
    let db = Db::new().await;
    let proxy = Proxy::before(db.url()).await;
    let mut holder = Serve::start(&proxy.through(db.url())).await;
    let caller = Caller::of(holder.url());
    caller.policy("*", &policy(5, 0)).await;
    let _ = caller.insist("k", &Worker::new("w").wants(0)).await;
    let lock = faults::RowLock::hold(db.url(), "k").await;
    let call = exchange(holder.url(), &post("/v1/semaphores/k/request", &Worker::new("w").wants(3))).await;
    faults::until_locked_out(db.pool(), 1).await;
    holder.terminate();
    until("it leaves", async || holders(&db).await == 0).await;
    holder.interrupt();
    let answer = text(call).await;
    assert!(answer.contains("shutting_down") && answer.contains("connection: close"), "{answer}");
    ends_soon(&mut holder).await;
    assert!(!holder.stderr().contains("is abandoned"), "it did not wait: {}", holder.stderr());
    lock.release().await;
}

#[tokio::test]
async fn it_can_be_asked_while_it_starts() {
    let db = Db::new().await;
    let proxy = Proxy::before(db.url()).await;
    proxy.set(Mode::Drop);
    let url = proxy.through(db.url());
    let mut process = Process::start(["serve", "--listen", "127.0.0.1:0", "--database-url", &url]);
    until("it connects", async || proxy.accepted() > 0).await;
    process.terminate();
    assert_eq!(process.code().await, 0);
}
