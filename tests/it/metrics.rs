//! What holders count, as Prometheus sees it.

use pgsemaphore::Settings;
use pgsemaphore::embedded::free_port;
use pgsemaphore_tests::{
    Act, Caller, Collector, Db, InProcess, Metrics, Proxy, Serve, Worker, encode, message, program, until,
    until_some, within_reason,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn policy(limit: u64) -> Value {
    json!({"limit": limit, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000})
}

#[tokio::test]
async fn permits_are_counted_from_grant_to_release() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let caller = holder.caller();
    holder.policy("*", policy(3)).await;
    let mut worker = Worker::new("w");
    let reply = caller.insist("k", &worker.wants(5)).await;
    assert_eq!(reply["blocked"][0]["count"], 2);
    worker.hear(&reply);
    worker.claim();
    worker.hear(&caller.insist_sync("k", &worker.reports()).await);
    worker.release();
    worker.hear(&caller.insist_sync("k", &worker.reports()).await);

    let metrics = Metrics::of(holder.url()).await;
    for (series, value) in [
        ("pgsemaphore_permits_granted_total", 3.0),
        ("pgsemaphore_permits_claimed_total", 3.0),
        ("pgsemaphore_permits_released_total", 3.0),
        ("pgsemaphore_permits_reclaimed_total", 0.0),
        ("pgsemaphore_blocked_demand_total{reason=\"limit\"}", 2.0),
        ("pgsemaphore_rounds_total{kind=\"round\",outcome=\"committed\"}", 1.0),
        ("pgsemaphore_rounds_total{kind=\"sync\",outcome=\"committed\"}", 2.0),
        ("pgsemaphore_transaction_phase_seconds_count{kind=\"round\",phase=\"commit\"}", 1.0),
        ("pgsemaphore_wait_seconds_count", 1.0),
        ("pgsemaphore_requests_total{call=\"request\",status=\"200\"}", 1.0),
        ("pgsemaphore_requests_total{call=\"sync\",status=\"200\"}", 2.0),
        ("pgsemaphore_requests_total{call=\"put_policy\",status=\"200\"}", 1.0),
        ("pgsemaphore_request_seconds_count{call=\"request\"}", 1.0),
        ("pgsemaphore_waiting_requests", 0.0),
        ("pgsemaphore_check_violations_total", 0.0),
        ("pgsemaphore_active_keys", 1.0),
    ] {
        assert_eq!(metrics.value(series), value, "{series}");
    }
    assert!(metrics.value("pgsemaphore_database_connections{state=\"idle\"}") > 0.0);
}

#[tokio::test]
async fn permits_that_come_back_by_themselves_and_by_an_operator_are_reclaimed() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let caller = holder.caller();
    let mut short = policy(5);
    short["grant_timeout_ms"] = json!(100);
    holder.policy("short", short).await;
    holder.policy("k", policy(5)).await;
    caller.insist("short", &Worker::new("w").wants(2)).await;
    let reclaimed = async || Metrics::of(holder.url()).await.value("pgsemaphore_permits_reclaimed_total");
    until("the unclaimed permits come back", async || reclaimed().await == 2.0).await;

    caller.insist("k", &Worker::new("w").wants(3)).await;
    let path = "/v1/semaphores/k/clients/w/settle";
    let (status, body) = holder.send(reqwest::Method::POST, path, &json!({"force": true})).await;
    assert_eq!((status, &body["grants"]), (200, &json!(3)));
    assert_eq!(reclaimed().await, 5.0);
}

#[tokio::test]
async fn leases_are_counted_when_they_begin_and_by_why_they_end() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let caller = holder.caller();
    let lending = json!({
        "limit": 10, "provisioning": "strict", "permits_per_lease": 4, "round_wait_ms": 0, "round_period_ms": 0,
    });
    holder.policy("k", lending.clone()).await;
    let wants = |client: &str| message(client, json!({"demand": [{"group": "", "count": 1}], "leases": []}));
    let one = caller.insist("k", &wants("one")).await;
    let other = caller.insist("k", &wants("other")).await;
    let stop = |client: &str, reply: &Value| {
        let id = reply["leases"][0]["id"].clone();
        message(client, json!({"seen": reply["round"], "leases": [{"id": id, "stopped": true}]}))
    };
    caller.insist_sync("k", &stop("one", &one)).await;
    holder.policy("k", policy(10)).await;
    caller.insist("k", &message("third", json!({"demand": [{"group": "", "count": 1}]}))).await;
    let ended = caller.insist_sync("k", &stop("other", &other)).await;
    assert_eq!(ended["leases"][0]["status"], "settled", "{ended}");

    let metrics = Metrics::of(holder.url()).await;
    assert_eq!(metrics.value("pgsemaphore_leases_issued_total"), 2.0);
    assert!(metrics.value("pgsemaphore_leased_permits_total") >= 2.0);
    let retired = |reason| metrics.value(&format!("pgsemaphore_leases_retired_total{{reason=\"{reason}\"}}"));
    assert_eq!((retired("given_back"), retired("not_eligible"), retired("silent")), (1.0, 1.0, 0.0));
}

#[tokio::test]
async fn parked_calls_are_counted_while_they_last_and_a_caller_that_hangs_up_once() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("k", policy(0)).await;
    let caller = holder.caller();
    let waiting = tokio::spawn(async move {
        let wants = message("w", json!({"demand": [{"group": "", "count": 1}], "wait_ms": 60_000}));
        caller.request("k", &wants).await
    });
    let gauges = async || {
        let metrics = Metrics::of(holder.url()).await;
        let gauge = |name| metrics.value(name);
        (gauge("pgsemaphore_waiting_requests"), gauge("pgsemaphore_parked_calls"))
    };
    until("it is parked", async || gauges().await == (1.0, 1.0)).await;
    waiting.abort();
    until("it is gone", async || gauges().await == (0.0, 0.0)).await;
    let metrics = Metrics::of(holder.url()).await;
    assert_eq!(metrics.value("pgsemaphore_requests_total{call=\"request\",status=\"499\"}"), 1.0);
}

#[tokio::test]
async fn a_transaction_that_loses_its_connection_counts_as_a_retry() {
    let db = Db::new().await;
    let proxy = Proxy::before(db.url()).await;
    let holder = InProcess::start(&proxy.through(db.url())).await;
    holder.policy("k", policy(1)).await;
    proxy.trap(b"UPDATE pgsemaphore_data.semaphores", Act::CutBefore, 1);
    holder.caller().insist("k", &Worker::new("w").wants(1)).await;
    assert_eq!(proxy.sprung(), 1);
    let metrics = Metrics::of(holder.url()).await;
    assert!(metrics.value("pgsemaphore_transaction_retries_total{reason=\"connection\"}") >= 1.0);
}

#[tokio::test]
async fn the_database_as_a_whole_is_looked_at_and_keys_that_are_listed() {
    let db = Db::new().await;
    let settings = Settings {
        self_check_every: Duration::from_millis(200),
        metrics_keys: vec!["listed".to_owned(), "unused".to_owned()],
        ..Settings::default()
    };
    let holder = InProcess::start_checking(db.url(), settings).await;
    let other = InProcess::start(db.url()).await;
    holder.policy("*", policy(7)).await;
    let caller = holder.caller();
    caller.insist("listed", &Worker::new("w").wants(9)).await;
    caller.insist("other", &Worker::new("gone").wants(2)).await;
    let silence = "UPDATE pgsemaphore_data.clients SET last_seen = now() - interval '11 minutes' WHERE client_id = 'gone'";
    sqlx::query(silence).execute(db.pool()).await.expect("silence");

    let metrics = until_some("it has looked", async || {
        let metrics = Metrics::of(holder.url()).await;
        let all = metrics.value("pgsemaphore_unheard_permits") == 2.0
            && metrics.value("pgsemaphore_live_holders") == 2.0
            && metrics.value("pgsemaphore_audited_keys_total") >= 2.0
            && metrics.find("pgsemaphore_key_contended{key=\"listed\"}") == Some(1.0);
        all.then_some(metrics)
    })
    .await;
    for (series, value) in [
        ("pgsemaphore_key_limit{key=\"listed\"}", 7.0),
        ("pgsemaphore_key_permits{key=\"listed\",kind=\"grants\"}", 7.0),
        ("pgsemaphore_key_permits{key=\"listed\",kind=\"leases\"}", 0.0),
        ("pgsemaphore_drift_counters", 0.0),
    ] {
        assert_eq!(metrics.value(series), value, "{series}");
    }
    assert_eq!(metrics.value("pgsemaphore_key_permits{key=\"unused\",kind=\"grants\"}"), 0.0);
    let keys = metrics.series().filter(|series| series.contains("key=")).count();
    assert_eq!(keys, 7, "no other key has a series, and the limit of one that nobody uses is not known");
    drop(other);
}

/// A long name.
fn key(n: usize) -> String {
    format!("{n:0>200}")
}

/// Series of labels out of fixed lists that load brings up, like a reason why transactions were repeated.
const NEW_LABELS: usize = 20;

/// Case 8: 2,000 keys, or as many as are asked for, are used once each; one of them is listed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_number_of_series_does_not_depend_on_what_is_in_use_and_memory_comes_back() {
    let keys: usize = std::env::var("KEYS").ok().and_then(|keys| keys.parse().ok()).unwrap_or(2_000);
    let (db, collector) = (Db::new().await, Collector::start().await);
    let (listed, first) = (key(keys / 2), key(0));
    let options = ["--database-url", db.url(), "--self-check-every", "500ms", "--metrics-key", &listed];
    let variables = [
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", collector.url()),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "500"),
    ];
    let holder = Serve::start_in(&options, &variables).await;
    let caller = Caller::of(holder.url());
    caller.policy("*", &policy(10)).await;
    let permits = format!("pgsemaphore_key_permits{{key=\"{listed}\",kind=\"grants\"}}");
    let idle = async || {
        until("no key is in memory", async || {
            let metrics = Metrics::of(holder.url()).await;
            metrics.value("pgsemaphore_active_keys") == 0.0 && metrics.find(&permits) == Some(0.0)
        })
        .await;
    };
    caller.insist(&first, &wants_of_groups("other")).await;
    let groups = "SELECT count(*) FROM pgsemaphore.group_usage WHERE key = $1 AND grants = 1";
    let groups: i64 = sqlx::query_scalar(groups).bind(&first).fetch_one(db.pool()).await.expect("the view");
    assert_eq!(groups, 3, "what a key holds is in SQL");
    use_keys(&caller, 0..keys / 10).await;
    use_keys(&caller, keys / 2..keys / 2 + 1).await;
    idle().await;
    let few = Metrics::of(holder.url()).await.series().count();
    let before = holder.resident();

    use_keys(&caller, keys / 10..keys).await;
    let busy = Metrics::of(holder.url()).await;
    assert!(busy.series().count() <= few + NEW_LABELS);
    idle().await;
    until("its memory is within 20 % of what it was", async || holder.resident() * 100 / before <= 120).await;
    let metrics = Metrics::of(holder.url()).await;
    assert!(metrics.series().count() <= few + NEW_LABELS);
    assert_eq!(
        metrics.series().filter(|series| series.contains("key=") && !series.contains(&listed)).count(),
        0
    );
    assert!(few < 1000, "{few} series");
    println!("{few} series; {keys} keys: {before} bytes before, {} after", holder.resident());
    let sent = collector.series();
    let hidden: Vec<_> =
        sent.iter().filter(|series| series.attributes.contains_key("otel.metric.overflow")).collect();
    assert_eq!((hidden, sent.len() < few), (vec![], true), "distributions are many series at /metrics");
    let named: BTreeSet<_> = sent.iter().filter_map(|series| series.attributes.get("key")).collect();
    assert_eq!(named, BTreeSet::from([&listed]));
}

/// A client wants one permit in each of three groups.
fn wants_of_groups(client: &str) -> Value {
    let demand = ["a", "b", "c"].map(|group| json!({"group": group, "count": 1}));
    message(client, json!({"demand": demand}))
}

/// An item in each of three groups, of a client of its own, on each of these keys.
async fn use_keys(caller: &Caller, keys: std::ops::Range<usize>) {
    use futures_util::StreamExt as _;
    let items = futures_util::stream::iter(keys).map(|n| async move {
        let (key, mut worker) = (key(n), Worker::new(format!("client:{n}")));
        worker.hear(&caller.insist(&key, &wants_of_groups(&format!("client:{n}"))).await);
        assert_eq!(worker.permits(), 3);
        worker.release();
        worker.hear(&caller.insist_sync(&key, &worker.reports()).await);
        assert_eq!(worker.blocks.len(), 0);
    });
    items.buffer_unordered(32).collect::<Vec<()>>().await;
}

/// Debian's Prometheus, with one target; it ends with this value.
struct Prometheus {
    process: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    async fn start(target: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let address = format!("127.0.0.1:{}", free_port().expect("a free port"));
        let config = folder.path().join("prometheus.yml");
        let content = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs: [{{job_name: pgsemaphore, static_configs: [{{targets: ['{target}']}}]}}]\n"
        );
        std::fs::write(&config, content).expect("its configuration");
        let process = Command::new(program("prometheus"))
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("Prometheus runs");
        Self { process, url: format!("http://{address}"), _folder: folder }
    }

    /// The value that a query has, if it has one.
    async fn query(&self, query: &str) -> Option<String> {
        let url = format!("{}/api/v1/query?query={}", self.url, encode(query));
        let request = pgsemaphore_tests::client().get(url);
        let answer: Value = request.send().await.ok()?.json().await.ok()?;
        answer["data"]["result"][0]["value"][1].as_str().map(str::to_owned)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
#[ignore = "needs Prometheus: `make check` installs it and runs this test"]
async fn prometheus_reads_them_and_answers_questions() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("*", policy(5)).await;
    holder.caller().insist("k", &Worker::new("w").wants(4)).await;
    let target = holder.url().trim_start_matches("http://").to_owned();
    let prometheus = Prometheus::start(&target).await;
    for (query, expected) in [
        ("up{job=\"pgsemaphore\"}", "1"),
        ("pgsemaphore_permits_granted_total", "4"),
        ("sum(pgsemaphore_rounds_total{kind=\"round\",outcome=\"committed\"})", "1"),
        ("histogram_quantile(0.99, pgsemaphore_wait_seconds_bucket) <= bool 60", "1"),
        ("count(pgsemaphore_build_info)", "1"),
    ] {
        let answered = async || prometheus.query(query).await.as_deref() == Some(expected);
        within_reason(query, until(query, answered)).await;
    }
}

/// Every name in this text that could be a metric's.
fn names_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let starts = text.match_indices("pgsemaphore_").map(|(at, _)| at);
    starts.map(|at| text[at..].chars().take_while(|c| is_part(*c)).collect()).collect()
}

#[tokio::test]
async fn alerts_dashboard_and_documents_name_metrics_that_there_are() {
    let db = Db::new().await;
    let often = Duration::from_millis(200);
    let settings =
        Settings { self_check_every: often, metrics_keys: vec!["k".to_owned()], ..Settings::default() };
    let holder = InProcess::start_checking(db.url(), settings).await;
    holder.policy("k", policy(1)).await;
    holder.caller().insist("k", &Worker::new("w").wants(1)).await;
    let metrics = until_some("the key is looked at", async || {
        let metrics = Metrics::of(holder.url()).await;
        metrics.find("pgsemaphore_key_limit{key=\"k\"}").is_some().then_some(metrics)
    })
    .await;
    let there_are: BTreeSet<String> = metrics.names().into_iter().map(str::to_owned).collect();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    for file in
        ["helm/pgsemaphore/files/alerts.yaml", "helm/pgsemaphore/files/dashboard.json", "docs/operations.md"]
    {
        let text = std::fs::read_to_string(format!("{root}/{file}")).expect(file);
        // Roles of the database begin like metrics.
        let roles = ["pgsemaphore_data", "pgsemaphore_holder", "pgsemaphore_admin", "pgsemaphore_reader"];
        let named = names_in(&text).into_iter().filter(|name| !roles.contains(&name.as_str()));
        let unknown: Vec<_> = named.filter(|name| !is_there(name, &there_are)).collect();
        assert_eq!(unknown, Vec::<String>::new(), "{file}");
    }
    let documented =
        names_in(&std::fs::read_to_string(format!("{root}/docs/telemetry.md")).expect("the document"));
    let base = |name: &String| {
        let parts = ["_bucket", "_sum", "_count"];
        let part =
            parts.iter().find_map(|part| name.strip_suffix(part)).filter(|base| base.ends_with("_seconds"));
        part.map_or(name.clone(), str::to_owned)
    };
    let there_are: BTreeSet<String> = there_are.iter().map(base).collect();
    assert_eq!(documented, there_are);
}

fn is_there(name: &str, there_are: &BTreeSet<String>) -> bool {
    there_are.contains(name) || there_are.contains(&format!("{name}_bucket"))
}
