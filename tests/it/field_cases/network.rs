//! Callers that are slow, and connections that die.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pgsemaphore_tests::{
    Act, Api, Db, InProcess, Process, Proxy, Truth, faults, until, verify, within_reason,
};
use queue_client::QueueClient;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// What a slow caller sends at once; more follows byte by byte where it says so.
const SLOW: [(&str, bool); 3] = [
    ("", false),
    ("GET /healthz HTTP/1.1\r\nx: ", true),
    ("POST /v1/semaphores/k/sync HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4000000\r\n\r\n", true),
];

/// Sends slowly until the other side ends the connection.
async fn be_slow(address: String, (begin, dribbles): (&'static str, bool)) {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(begin.as_bytes()).await.expect("it is sent");
    let (mut answers, mut sends) = stream.into_split();
    let dribble = async {
        while dribbles && sends.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        std::future::pending().await
    };
    let mut heard = Vec::new();
    tokio::select! {
        _ = answers.read_to_end(&mut heard) => {}
        () = dribble => {}
    }
}

/// A holder that may open so many files, and where it listens.
async fn with_files(files: u32, database_url: &str) -> (tokio::process::Child, String) {
    let mut holder = tokio::process::Command::new("prlimit")
        .arg(format!("--nofile={files}:{files}"))
        .arg(Process::path("pgsemaphore"))
        .args(["serve", "--listen", "127.0.0.1:0", "--database-url", database_url])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("prlimit of util-linux");
    let output = BufReader::new(holder.stdout.take().expect("its output"));
    let first = output.lines().next_line().await.expect("a line").expect("a line");
    (holder, first.trim_start_matches("listening on ").to_owned())
}

/// Case 02: silent and dribbling callers keep their connections for ever, until there are no more files to open: not
/// even for the database.
#[tokio::test]
async fn slow_callers_that_take_all_places_are_cut_and_everybody_else_is_served() {
    const PLACES: usize = 256 - 64 - 8;
    let db = Db::new().await;
    let (holder, url) = with_files(256, db.url()).await;
    let api = Api::new(&url);
    assert_eq!(api.put("/v1/policies/*", r#"{"limit":100,"round_wait_ms":0}"#).await.status, 200);
    let (mut callers, cut) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for n in 0..300 {
        let (address, cut) = (url.trim_start_matches("http://").to_owned(), cut.clone());
        callers.spawn(async move {
            be_slow(address, SLOW[n % 3]).await;
            cut.fetch_add(1, Ordering::SeqCst);
        });
    }
    let files = format!("/proc/{}/fd", holder.id().expect("it runs"));
    until("all places are taken", async || std::fs::read_dir(&files).expect("its files").count() > PLACES)
        .await;
    assert!(faults::terminate_sessions(db.pool()).await > 0);
    until("the holder is there again, before anybody is cut", async || {
        assert_eq!(cut.load(Ordering::SeqCst), 0);
        let query = "SELECT count(*) FROM pg_stat_activity, pgsemaphore.holders
            WHERE datname = current_database() AND application_name = 'pgsemaphore' AND live
            AND last_heartbeat > backend_start";
        let beats: i64 = sqlx::query_scalar(query).fetch_one(db.pool()).await.expect("the view");
        beats > 0
    })
    .await;
    let body = r#"{"v":1,"client_id":"w","demand":[{"count":1}]}"#;
    for n in 0..20 {
        let target = format!("/v1/semaphores/k{n}/request");
        until("a good caller is served", async || api.post(&target, body).await.status == 200).await;
        assert_eq!(api.get("/healthz").await.status, 200);
    }
    until("it is ready", async || api.get("/readyz").await.status == 200).await;
    assert!(cut.load(Ordering::SeqCst) >= PLACES / 2, "of all three kinds");
}

/// Case 15: an idle connection is closed in the moment in which a call is written to it, and every other call fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_die_under_a_call_are_no_error_of_the_application() {
    const LIMIT: u64 = 2;
    let db = Db::new().await;
    let holders = [InProcess::start(db.url()).await, InProcess::start(db.url()).await];
    let policy = json!({"limit": LIMIT, "round_wait_ms": 5, "round_period_ms": 10, "grant_timeout_ms": 2000});
    holders[0].policy("k", policy).await;
    let truth = Truth::default();
    truth.limit("k", None, LIMIT);
    let proxies = [Proxy::before(holders[0].url()).await, Proxy::before(holders[1].url()).await];
    let client = |first: usize| {
        let url = |at: usize| proxies[at % 2].through(holders[at % 2].url());
        QueueClient::builder().url(url(first)).url(url(first + 1)).build().expect("a client")
    };
    let clients: Vec<QueueClient> = (0..4).map(client).collect();
    let mut items = JoinSet::new();
    for client in &clients {
        let (semaphore, truth) = (client.semaphore("k"), truth.clone());
        items.spawn(async move {
            for _ in 0..8 {
                let permit = semaphore.acquire("").await.expect("no error reaches the application");
                let running = truth.start("k", "");
                tokio::task::yield_now().await;
                drop(running);
                drop(permit);
            }
        });
    }
    // Some calls never arrive, some are carried out and not answered, and idle connections end.
    let trouble = async {
        for act in [Act::CutBefore, Act::CutAnswer].into_iter().cycle() {
            for proxy in &proxies {
                let started = truth.started();
                until("something has run since", async || truth.started() > started).await;
                proxy.trap(b"POST /v1/semaphores/", act, 1);
                proxy.cut_open_connections();
            }
        }
    };
    tokio::select! {
        () = trouble => {}
        _ = within_reason("all items have run", items.join_all()) => {}
    }
    assert!(proxies.iter().all(|proxy| proxy.sprung() > 0), "calls were hit");
    for client in &clients {
        within_reason("a drain", client.drain()).await.expect("drained");
    }
    assert_eq!(truth.violations(), [] as [String; 0]);
    assert_eq!((truth.started(), &holders[0].usage("k").await["grants"]), (32, &json!(0)));
    assert_eq!(verify(&db).await, []);
}
