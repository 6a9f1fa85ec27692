//! However many call, and however slowly: the holder answers the others, and its memory stays flat.

use std::time::Duration;

use futures_util::future::join_all;
use pgsemaphore_allocation::SemaphoreKey;
use pgsemaphore_tests::{
    Api, Caller, Db, InProcess, Mode, Proxy, Serve, client, message, until, within_reason,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Room for what the process needs apart from what is measured, and for what its allocator keeps.
const SOME_MIB: u64 = 64;
const MIB: u64 = 1024 * 1024;

fn policy() -> Value {
    json!({"limit": 1_000_000, "round_wait_ms": 0, "round_period_ms": 0})
}

/// Connections that have sent this much, and send no more.
async fn connections(url: &str, number: usize, sent: &[u8]) -> Vec<TcpStream> {
    let address = url.trim_start_matches("http://");
    let connect = async || {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(sent).await.expect("it is sent");
        stream
    };
    join_all((0..number).map(|_| connect())).await
}

/// What arrives until the connection ends.
async fn rest(mut stream: TcpStream) -> String {
    let mut rest = Vec::new();
    let _ended_somehow = stream.read_to_end(&mut rest).await;
    String::from_utf8_lossy(&rest).into_owned()
}

fn body_that_never_ends(sent: usize) -> Vec<u8> {
    let head = "POST /v1/semaphores/k/sync HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4000000\r\n\r\n";
    [head.as_bytes(), &vec![b' '; sent]].concat()
}

#[tokio::test]
async fn a_key_and_a_holder_have_so_many_waiting_requests_and_no_more() {
    const MOST: usize = 10_000;
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("*", json!({"limit": 1, "round_wait_ms": 60_000})).await;
    let key = || SemaphoreKey::new("k");
    let request = |n: usize| {
        let request = serde_json::from_value(message(&format!("w{n}"), json!({}))).expect("a message");
        Box::pin(holder.holder().request(key(), request))
    };
    let mut waiting: Vec<_> = (0..MOST).map(request).collect();
    for request in &mut waiting {
        assert!(futures_util::poll!(request).is_pending());
    }
    let caller = holder.caller();
    let heard = caller.request("k", &message("one too many", json!({}))).await.expect("an answer");
    assert_eq!((heard.status, &heard.body["code"]), (429, &json!("too_many_waiting")));
    assert!(heard.retry_after.is_some_and(|seconds| seconds >= 1), "{heard:?}");
    assert_eq!(caller.sync("k", &message("w", json!({}))).await.expect("an answer").status, 200);
}

#[tokio::test]
async fn who_takes_too_long_is_cut_and_told_why_if_possible() {
    let db = Db::new().await;
    let holder = Serve::start(db.url()).await;
    let sent = [&b""[..], b"P", b"PRI * HTTP/2.0\r\n", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"];
    let mut cut = Vec::new();
    for sent in sent {
        cut.extend(connections(holder.url(), 1, sent).await.into_iter().map(rest));
    }
    let told = connections(holder.url(), 1, &body_that_never_ends(10)).await.into_iter().map(rest);
    let idle = connections(holder.url(), 1, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let (cut, told, idle) = within_reason("all of them end", async {
        tokio::join!(join_all(cut), join_all(told), join_all(idle.into_iter().map(rest)))
    })
    .await;
    assert!(cut.iter().all(|heard| !heard.contains("HTTP/1.1 200")), "{cut:?}");
    assert!(told[0].starts_with("HTTP/1.1 408 ") && told[0].contains("request_timeout"), "{told:?}");
    assert!(idle[0].starts_with("HTTP/1.1 200 "), "{idle:?}");
}

#[tokio::test]
async fn a_sender_that_is_slow_but_moves_is_heard() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("*", policy()).await;
    let body = message("slow", json!({"demand": [{"group": "", "count": 1}]})).to_string();
    let head =
        "POST /v1/semaphores/k/request HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: ";
    let mut stream = connections(holder.url(), 1, head.as_bytes()).await.remove(0);
    for byte in format!("{}\r\n\r\n{body}", body.len()).bytes() {
        stream.write_all(&[byte]).await.expect("it is sent");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let answer = rest(stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn a_connection_whose_other_side_is_gone_ends_although_a_call_is_under_way() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("*", policy()).await;
    let proxy = Proxy::before(holder.url()).await;
    let _http_is_set_up = client();
    let http = reqwest::Client::builder().http2_prior_knowledge().build().expect("an HTTP client");
    let parked = message("w", json!({"seen": 1, "wait_ms": 60_000}));
    let url = proxy.through(&format!("{}/v1/semaphores/k/sync", holder.url()));
    let call = tokio::spawn(http.post(url).json(&parked).send());
    until("the call is under way", async || {
        let query = sqlx::query_scalar("SELECT count(*) FROM pgsemaphore.usage WHERE key = 'k'");
        query.fetch_one(db.pool()).await.unwrap_or(0) == 1_i64
    })
    .await;
    proxy.set(Mode::Drop);
    until("the holder ends the connection", async || proxy.open() == 0).await;
    call.abort();
}

#[tokio::test]
async fn further_connections_wait_until_one_ends() {
    let db = Db::new().await;
    let holder = Serve::start_with(db.url(), &["--connections", "3"]).await;
    let held = connections(holder.url(), 3, b"GET").await;
    let further = connections(
        holder.url(),
        1,
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    );
    let further = further.await.into_iter().map(rest).next().expect("a connection");
    let mut further = Box::pin(further);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(futures_util::poll!(&mut further).is_pending());
    drop(held);
    assert!(further.await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_holder_without_files_left_takes_connections_again_when_there_are() {
    let db = Db::new().await;
    let holder = Serve::start(db.url()).await;
    let api = Api::new(holder.url());
    until("it is ready", async || api.get("/readyz").await.status == 200).await;
    let open = std::fs::read_dir(format!("/proc/{}/fd", holder.pid())).expect("its files").count();
    let limit = std::process::Command::new("prlimit")
        .args(["--pid", &holder.pid().to_string(), &format!("--nofile={}:", open + 5)])
        .status();
    assert!(limit.expect("prlimit of util-linux").success());
    let held = connections(holder.url(), 10, b"GET").await;
    until("it runs out of files", async || holder.stderr().contains("can't take connections")).await;
    drop(held);
    until("it is ready", async || api.get("/readyz").await.status == 200).await;
}

#[tokio::test]
async fn three_hundred_slow_connections_take_little_memory_and_hold_nobody_up() {
    let db = Db::new().await;
    let holder = Serve::start(db.url()).await;
    let caller = Caller::of(holder.url());
    caller.policy("*", &policy()).await;
    let call = async |n: usize| {
        let _ = caller.insist(&format!("k{n}"), &message("w", json!({"demand": [{"count": 1}]}))).await;
    };
    call(0).await;
    let before = holder.resident();
    let slow_heads = connections(holder.url(), 150, &[b"GET /x".as_slice(), &[b'x'; 50_000]].concat()).await;
    let slow_bodies = connections(holder.url(), 150, &body_that_never_ends(1_000_000)[..60_000]).await;
    // Large bodies that nobody has room for are left where they are, and so block who sends them.
    let large = body_that_never_ends(3_900_000);
    let large = (0..150).map(|_| {
        let (url, large) = (holder.url().to_owned(), large.clone());
        tokio::spawn(async move { connections(&url, 1, &large).await })
    });
    let large: Vec<_> = large.collect();
    for n in 1..=200 {
        call(n).await;
    }
    let grown = holder.resident().saturating_sub(before);
    // 16 large bodies at a time, and the buffers of all; without a limit it would be 600 MiB.
    assert!(grown < (64 + 3 * SOME_MIB) * MIB, "{} MiB", grown / MIB);
    large.iter().for_each(tokio::task::JoinHandle::abort);
    drop((slow_heads, slow_bodies));
}

/// 2,000 keys, or as many as are asked for: what a holder keeps of one is gone when nobody uses it any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_keys_take_little_memory() {
    const AT_ONCE: usize = 50;
    let keys = std::env::var("KEYS").ok().and_then(|keys| keys.parse().ok()).unwrap_or(2_000);
    let db = Db::new().await;
    let holder = Serve::start(db.url()).await;
    let http = client();
    Caller::of(holder.url()).policy("*", &policy()).await;
    let before = holder.resident();
    let callers = (0..AT_ONCE).map(|first| {
        let (http, url) = (http.clone(), holder.url().to_owned());
        tokio::spawn(async move {
            for key in (first..keys).step_by(AT_ONCE) {
                let message = message("w", json!({}));
                let call = http.post(format!("{url}/v1/semaphores/k{key}/sync")).json(&message).send().await;
                assert_eq!(call.expect("an answer").status(), 200);
            }
        })
    });
    for caller in join_all(callers).await {
        caller.expect("no panic");
    }
    let grown = holder.resident().saturating_sub(before);
    assert!(grown < SOME_MIB * MIB, "{} MiB", grown / MIB);
}
