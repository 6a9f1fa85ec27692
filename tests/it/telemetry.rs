//! Traces, metrics and logs as a collector receives them; collectors that are of no use; logs for programs.

use crate::listening::listen;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use pgsemaphore_tests::{
    Api, Authority, Caller, Collector, Db, Mode, Process, Proxy, Serve, Span, Worker, key_at, message, until,
    until_acquainted, until_some, within_reason,
};
use queue_client::QueueClient;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tracing_subscriber::Layer as _;
use tracing_subscriber::layer::SubscriberExt as _;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

fn policy(limit: u64, round_wait_ms: u64) -> Value {
    json!({
        "limit": limit, "round_wait_ms": round_wait_ms, "round_period_ms": 0, "grant_timeout_ms": 3_600_000
    })
}

/// Sends as soon as it can, to this collector.
fn variables<'a>(url: &'a str, protocol: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
        ("OTEL_BSP_SCHEDULE_DELAY", "100"),
        ("OTEL_BLRP_SCHEDULE_DELAY", "100"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "200"),
    ]
}

async fn serve(db: &Db, variables: &[(&str, &str)]) -> Serve {
    Serve::start_in(&["--database-url", db.url()], variables).await
}

/// A request for one permit of `key`, in this trace.
async fn traced_request(url: &str, key: &str, client: &str, trace: &str) {
    let traceparent = format!("traceparent: 00-{trace}-{CALLER}-01");
    let body = message(client, json!({"demand": [{"group": "", "count": 1}]})).to_string();
    let target = format!("/v1/semaphores/{key}/request");
    let headers = ["content-type: application/json", &traceparent, "x-request-id: the-id"];
    let answer = Api::new(url).call("POST", &target, &headers, body.as_bytes()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// The one span of a name in a trace, once it is there.
async fn span(collector: &Collector, name: &str, trace: &str) -> Span {
    until_some(&format!("a span {name}"), async || {
        collector.spans().into_iter().find(|span| span.name == name && span.trace == trace)
    })
    .await
}

async fn all_signals_arrive(collector: &Collector, protocol: &str, more: &[(&str, &str)]) {
    let db = Db::new().await;
    let mut variables = variables(collector.url(), protocol);
    variables.extend(more);
    variables.push(("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret"));
    variables.push(("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test"));
    variables.push(("PGSEMAPHORE_LOG", "debug"));
    let holder = serve(&db, &variables).await;
    Caller::of(holder.url()).policy("*", &policy(5, 0)).await;
    traced_request(holder.url(), "k", "w", TRACE).await;

    let request = span(collector, "request", TRACE).await;
    assert_eq!(request.parent, CALLER, "the trace of the caller goes on");
    assert_eq!(
        (request.attributes["call"].as_str(), request.attributes["id"].as_str()),
        ("request", "the-id")
    );
    let transaction = span(collector, "transaction", TRACE).await;
    assert_eq!((&transaction.parent, transaction.attributes["key"].as_str()), (&request.id, "k"));
    let attempt = span(collector, "attempt", TRACE).await;
    assert_eq!(attempt.parent, transaction.id);
    let resource = |name: &str| request.resource.get(name).map(String::as_str);
    assert_eq!(
        (resource("service.name"), resource("deployment.environment")),
        (Some("pgsemaphore"), Some("test"))
    );

    until("a counter, a gauge and a histogram arrive", async || {
        collector.metric("pgsemaphore.permits_granted") == Some(1.0)
            && collector.metric("pgsemaphore.active_keys") == Some(1.0)
            && collector.metric("pgsemaphore.wait") == Some(1.0)
    })
    .await;
    let log = until_some("the log of the transaction arrives", async || {
        let mut logs = collector.logs().into_iter();
        logs.find(|log| log.body == "transaction" && log.trace == TRACE)
    })
    .await;
    assert_eq!(log.attributes["granted"], "1");
    assert_eq!(collector.credentials().into_iter().collect::<Vec<_>>(), ["Bearer secret"]);
    assert!(!holder.stderr().contains("secret"), "{}", holder.stderr());
}

#[tokio::test(flavor = "multi_thread")]
async fn all_signals_arrive_by_grpc() {
    all_signals_arrive(&Collector::start().await, "grpc", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_signals_arrive_by_http() {
    all_signals_arrive(&Collector::start().await, "http/protobuf", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_signals_arrive_encrypted_and_compressed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (authority, ca) = (Authority::new(), folder.path().join("ca.pem"));
    std::fs::write(&ca, authority.pem()).expect("a file");
    let ca = ca.to_str().expect("UTF-8");
    // The second says what the system trusts.
    for (protocol, trust) in [
        ("grpc", "OTEL_EXPORTER_OTLP_CERTIFICATE"),
        ("grpc", "SSL_CERT_FILE"),
        ("http/protobuf", "OTEL_EXPORTER_OTLP_CERTIFICATE"),
        ("http/protobuf", "SSL_CERT_FILE"),
    ] {
        let collector = Collector::start_encrypted(&authority.issue(&["127.0.0.1"])).await;
        let more = [(trust, ca), ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")];
        all_signals_arrive(&collector, protocol, &more).await;
        assert_eq!(collector.compressions().into_iter().collect::<Vec<_>>(), ["gzip"], "{protocol}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_not_trusted_gets_nothing_and_holds_nothing_up() {
    let db = Db::new().await;
    let folder = tempfile::tempdir().expect("a folder");
    let (authority, other, ca) = (Authority::new(), Authority::new(), folder.path().join("ca.pem"));
    std::fs::write(&ca, other.pem()).expect("a file");
    for protocol in ["grpc", "http/protobuf"] {
        let collector = Collector::start_encrypted(&authority.issue(&["127.0.0.1"])).await;
        let mut variables = variables(collector.url(), protocol);
        variables.push(("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.to_str().expect("UTF-8")));
        let mut holder = serve(&db, &variables).await;
        Caller::of(holder.url()).policy("*", &policy(5, 0)).await;
        for signal in ["traces", "metrics", "logs"] {
            traced_request(holder.url(), "k", "w", TRACE).await;
            until(&format!("{protocol}: {signal} are missed"), async || {
                let log = holder.stderr();
                log.lines().any(|line| {
                    line.contains(&format!("{signal} could not be sent")) && line.contains("certificate")
                })
            })
            .await;
        }
        holder.terminate();
        assert_eq!(within_reason(protocol, holder.code()).await, 0);
        assert_eq!((collector.spans().len(), collector.series().len(), collector.logs().len()), (0, 0, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_that_serves_several_requests_is_linked_to_all_of_them() {
    const OTHER: &str = "11111111111111111111111111111111";
    let (db, collector) = (Db::new().await, Collector::start().await);
    let holder = serve(&db, &variables(collector.url(), "grpc")).await;
    let both = async || {
        let one = traced_request(holder.url(), "k", "one", TRACE);
        let other = traced_request(holder.url(), "k", "other", OTHER);
        tokio::join!(one, other)
    };
    Caller::of(holder.url()).policy("*", &policy(5, 3000)).await;
    both().await;
    let transaction = until_some("a transaction of both", async || {
        let mut spans = collector.spans().into_iter();
        spans.find(|span| span.name == "transaction" && span.attributes["calls"] == "2")
    })
    .await;
    let (one, other) =
        (span(&collector, "request", TRACE).await.id, span(&collector, "request", OTHER).await.id);
    let linked: Vec<_> = transaction.links.iter().collect();
    assert!(
        (transaction.parent == one && linked == [&other])
            || (transaction.parent == other && linked == [&one]),
        "{transaction:?}"
    );
}

/// Keeps the spans of this process.
#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().expect("no panic").extend(batch);
        Ok(())
    }
}

/// In one thread, whose spans are kept.
#[tokio::test]
async fn the_trace_of_an_acquire_goes_through_two_holders_to_the_transaction() {
    let kept = Kept::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(kept.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let own = tracing_subscriber::filter::filter_fn(|metadata| metadata.target().starts_with("queue_client"));
    let _here = listen(tracing_subscriber::registry().with(layer.with_filter(own)));
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());

    let (db, collector) = (Db::new().await, Collector::start().await);
    let variables = variables(collector.url(), "grpc");
    let (near, home) = tokio::join!(serve(&db, &variables), serve(&db, &variables));
    until_acquainted(db.pool(), 2).await;
    Caller::of(near.url()).policy("*", &policy(5, 0)).await;
    let client = QueueClient::builder().url(near.url()).build().expect("a client");
    // A holder that was slow for a while may be passed over; then another key is tried.
    let spans = until_some("a request that was passed on", async || {
        let key = key_at(db.pool(), home.url()).await;
        kept.0.lock().expect("no panic").clear();
        drop(client.semaphore(&key).acquire("g").await.expect("a permit"));
        until("its span ends", async || {
            kept.0.lock().expect("no panic").iter().any(|span| span.name == "acquire")
        })
        .await;
        let acquire = kept.0.lock().expect("no panic").iter().find(|span| span.name == "acquire").cloned()?;
        let trace = acquire.span_context.trace_id().to_string();
        until("the round is told of", async || {
            let spans = collector.spans();
            spans.iter().any(|span| {
                span.trace == trace && span.attributes.get("kind").is_some_and(|kind| kind == "round")
            })
        })
        .await;
        let spans: Vec<Span> = collector.spans().into_iter().filter(|span| span.trace == trace).collect();
        let requests =
            spans.iter().filter(|span| span.attributes.get("call").is_some_and(|call| call == "request"));
        (requests.count() == 2).then_some((acquire, spans))
    })
    .await;
    let (acquire, spans) = spans;
    let round = spans.iter().find(|span| span.attributes.get("kind").is_some_and(|kind| kind == "round"));
    let of = |id: &str| spans.iter().find(|span| span.id == id).cloned();
    let at_home = of(&round.expect("a round").parent).expect("the request at the home");
    let near = of(&at_home.parent).expect("the request at the first holder");
    assert_eq!((at_home.name.as_str(), near.name.as_str()), ("request", "request"));
    let sent = kept.0.lock().expect("no panic");
    let call =
        sent.iter().find(|span| span.span_context.span_id().to_string() == near.parent).expect("the call");
    assert_eq!((&*call.name, call.parent_span_id), ("call", acquire.span_context.span_id()));
}

#[tokio::test]
async fn what_the_environment_can_not_have_is_refused_at_the_start() {
    let db = Db::new().await;
    for (variable, value) in [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nonexistent"),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/nonexistent"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
    ] {
        let mut variables = variables("http://127.0.0.1:1", "http/protobuf");
        variables.retain(|(name, _)| *name != variable);
        variables.push((variable, value));
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--database-url", db.url()];
        let (code, _, stderr) = Process::run_in(arguments, &variables).await;
        assert_eq!(code, 2, "{variable}: {stderr}");
        assert!(stderr.contains("OTEL_"), "{variable}: {stderr}");
    }
}

/// What collectors do that are of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nobody listens.
    Refuses,
    /// It takes what is sent and never answers.
    Hangs,
    /// It answers what was not asked, without end.
    Babbles,
}

async fn useless_collector(fault: Fault) -> (String, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let task = tokio::spawn(async move {
        if fault == Fault::Refuses {
            return;
        }
        loop {
            let Ok((mut stream, _)) = listener.accept().await else { return };
            tokio::spawn(async move {
                let mut sink = vec![0; 65_536];
                if fault == Fault::Babbles {
                    let _ = stream.read(&mut sink).await;
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n").await;
                    while stream.write_all(&[b'x'; 65_536]).await.is_ok() {}
                }
                while stream.read(&mut sink).await.is_ok_and(|read| read > 0) {}
            });
        }
    });
    if fault == Fault::Refuses {
        within_reason("the port is closed", async {
            while !task.is_finished() {
                tokio::task::yield_now().await
            }
        })
        .await;
    }
    (url, task)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_of_no_use_holds_up_neither_rounds_nor_the_end() {
    let db = Db::new().await;
    for fault in [Fault::Refuses, Fault::Hangs, Fault::Babbles] {
        for protocol in ["grpc", "http/protobuf"] {
            let what = format!("{fault:?} {protocol}");
            let (url, collector) = useless_collector(fault).await;
            let mut variables = variables(&url, protocol);
            // Longer than this test waits for anything. With one thread nothing else could run while one waits for it.
            variables.extend([("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000"), ("TOKIO_WORKER_THREADS", "1")]);
            let mut holder = serve(&db, &variables).await;
            let caller = Caller::of(holder.url());
            caller.policy("*", &policy(1000, 0)).await;
            let mut worker = Worker::new("w");
            let rounds = async {
                for _ in 0..100 {
                    worker.hear(&caller.insist("k", &worker.wants(1)).await);
                }
                worker.release();
                worker.hear(&caller.insist_sync("k", &worker.reports()).await);
            };
            within_reason(&what, rounds).await;
            assert_eq!((worker.blocks.len(), caller.refused()), (0, 0), "{what}");
            // 25 MiB more than a holder that told nobody would be much; a queue without bounds, or an answer without
            // end that was kept, would be more.
            assert!(holder.resident() < 200 * 1024 * 1024, "{what}: {}", holder.resident());
            holder.terminate();
            assert_eq!(within_reason(&what, holder.code()).await, 0, "{what}");
            assert!(!holder.stderr().contains("panicked"), "{what}: {}", holder.stderr());
            collector.abort();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_told_last_is_sent_before_the_end() {
    let (db, collector) = (Db::new().await, Collector::start().await);
    let mut variables = variables(collector.url(), "grpc");
    // Nothing is sent by itself.
    variables.retain(|(name, _)| !name.contains("DELAY") && !name.contains("INTERVAL"));
    variables.extend([("OTEL_BSP_SCHEDULE_DELAY", "3600000"), ("OTEL_METRIC_EXPORT_INTERVAL", "3600000")]);
    let mut holder = serve(&db, &variables).await;
    Caller::of(holder.url()).policy("*", &policy(5, 0)).await;
    traced_request(holder.url(), "k", "w", TRACE).await;
    holder.terminate();
    assert_eq!(within_reason("its end", holder.code()).await, 0);
    assert!(collector.spans().iter().any(|span| span.name == "transaction" && span.trace == TRACE));
    assert_eq!(collector.metric("pgsemaphore.permits_granted"), Some(1.0));
}

#[tokio::test]
async fn logs_for_programs_are_json_with_a_line_for_each_transaction() {
    let db = Db::new().await;
    let variables = [("PGSEMAPHORE_LOG", "pgsemaphore=debug"), ("PGSEMAPHORE_LOG_FORMAT", "json")];
    let holder = serve(&db, &variables).await;
    Caller::of(holder.url()).policy("*", &policy(5, 0)).await;
    traced_request(holder.url(), "k", "w", TRACE).await;
    let line = until_some("the line of the round", async || {
        let lines = holder.stderr();
        let mut lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines.find(|line| line["message"] == "transaction" && line["kind"] == "round")
    })
    .await;
    for (field, value) in [
        ("level", json!("DEBUG")),
        ("key", json!("k")),
        ("calls", json!(1)),
        ("granted", json!(1)),
        ("blocked", json!(0)),
        ("outcome", json!("committed")),
    ] {
        assert_eq!(line[field], value, "{field}: {line}");
    }
    for field in ["round", "attempts", "take_ms", "load_ms", "plan_ms", "apply_ms", "commit_ms"] {
        assert!(line[field].as_f64().is_some_and(|number| number > 0.0), "{field}: {line}");
    }
    assert_eq!(line["spans"][0]["id"], "the-id", "{line}");
}

#[tokio::test]
async fn an_error_is_logged_once_with_the_id_of_its_request() {
    let db = Db::new().await;
    let proxy = Proxy::before(db.url()).await;
    let holder = Serve::start(&proxy.through(db.url())).await;
    let api = Api::new(holder.url());
    assert_eq!(api.put("/v1/policies/*", r#"{"limit":5,"round_wait_ms":0}"#).await.status, 200);
    proxy.set(Mode::Cut);
    // What else fails meanwhile may have been told just before: it is one line a second.
    let mut calls = 0;
    let lines = until_some("a call fails and is told", async || {
        calls += 1;
        let id = format!("x-request-id: call-{calls}-");
        let answer = api.call("GET", "/v1/semaphores/k", &[&id], b"").await;
        let lines = holder.stderr().lines().filter(|line| line.contains(&format!("call-{calls}-"))).count();
        (answer.status == 503 && lines > 0).then_some(lines)
    })
    .await;
    assert_eq!(lines, 1, "{}", holder.stderr());
    let (code, _, stderr) = Process::run(["usage", "--log", "sqlx=loud"]).await;
    assert_eq!(code, 2, "{stderr}");
}
