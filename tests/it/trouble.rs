//! The database, or the way to it, is in trouble: the holder says so, bounds what waits for it, and comes back by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pgsemaphore::embedded::StopMode;
use pgsemaphore_tests::{
    Act, Api, COMMIT, Caller, Db, InProcess, Metrics, Mode, Process, Proxy, Serve, Standby, Worker, key_at,
    private_cluster, until, until_acquainted, verify, within_reason,
};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection, PgPool};

/// Of a holder that commits nothing but what it is asked for.
const QUIET: [&str; 2] = ["--self-check-every", "1h"];
/// The beginning of the statement that writes what a round decided.
const APPLY: &[u8] = b"-- Writes a plan in one statement";

fn policy(limit: u64) -> Value {
    json!({"limit": limit, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000})
}

/// Until it is ready, or not ready for a reason that says this.
async fn until_ready(holder: &Serve, reason: Option<&str>) {
    let api = Api::new(holder.url());
    until("readiness turns", async || {
        let answer = api.get("/readyz").await;
        match reason {
            None => answer.status == 200,
            Some(reason) => {
                let told = answer.body["detail"].as_str().is_some_and(|detail| detail.contains(reason));
                answer.code() == (503, "unavailable") && told
            }
        }
    })
    .await;
    assert_eq!(api.get("/healthz").await.status, 200, "the process lives whatever the database does");
}

/// It stops in the middle of a transaction, with its sessions open. Callers of its keys are served by another holder; and
/// when it goes on, it answers from a transaction that it repeats, not from what it computed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_frozen_in_a_transaction_gives_its_locks_up() {
    for statement in [APPLY, COMMIT] {
        freeze_before(statement).await;
    }
}

async fn freeze_before(statement: &[u8]) {
    let db = Db::new().await;
    let proxy = Proxy::before(db.url()).await;
    let frozen = Serve::start_with(&proxy.through(db.url()), &QUIET).await;
    let holder = InProcess::start(db.url()).await;
    let caller = holder.caller();
    holder.policy("*", policy(5)).await;
    until_acquainted(db.pool(), 2).await;
    let key = key_at(db.pool(), frozen.url()).await;
    proxy.trap(statement, Act::Hold, 1);
    let (first, message) = (Caller::of(frozen.url()), Worker::new("first").wants(3));
    let call = tokio::spawn({
        let (first, key, message) = (first.clone(), key.clone(), message.clone());
        async move { first.request(&key, &message).await }
    });
    until("the round is about to send it", async || proxy.sprung() == 1).await;
    frozen.freeze();
    let mut second = Worker::new("second");
    second.hear(&caller.request(&key, &second.wants(4)).await.expect("an answer").ok());
    assert_eq!(second.permits(), 4, "what was not committed is not counted");
    frozen.thaw();
    let heard = within_reason("its caller is answered", call).await.expect("no panic");
    let mut worker = Worker::new("first");
    worker.hear(&heard.expect("an answer").ok());
    assert_eq!(worker.permits(), 1, "not the 3 that it computed before it froze");
    assert_eq!(verify(&db).await, []);
}

/// Case 19.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_under_load_is_a_line_a_second_and_ends_by_itself() {
    const CALLERS: usize = 20;
    let db = Db::new().await;
    let proxy = Proxy::before(db.url()).await;
    let mut holder = Serve::start(&proxy.through(db.url())).await;
    let caller = Caller::of(holder.url());
    caller.policy("*", &policy(5)).await;
    let recovered =
        |holder: &Serve| holder.stderr().lines().filter(|line| line.contains("is written again")).count();
    for (outages, mode) in [Mode::Cut, Mode::Drop].into_iter().enumerate() {
        let stop = Arc::new(AtomicBool::new(false));
        let calls: Vec<_> = (0..CALLERS)
            .map(|n| {
                let (caller, stop) = (caller.clone(), stop.clone());
                tokio::spawn(async move {
                    while !stop.load(Ordering::SeqCst) {
                        let heard = caller.request(&format!("k{n}"), &Worker::new("w").wants(0)).await;
                        if heard.expect("the holder lives").status != 200 {
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                    }
                })
            })
            .collect();
        let (lines, refused, began) = (holder.stderr().lines().count(), caller.refused(), Instant::now());
        proxy.set(mode);
        until("many calls fail", async || caller.refused() > refused + 5 * CALLERS as u64).await;
        until_ready(&holder, Some("unavailable")).await;
        until("it counts as away", async || {
            Metrics::of(holder.url()).await.value("pgsemaphore_database_up") == 0.0
        })
        .await;
        let lines = holder.stderr().lines().count() - lines;
        let seconds = usize::try_from(began.elapsed().as_secs()).expect("a short time");
        assert!((1..=seconds + 2).contains(&lines), "{lines} lines in {seconds} s: {}", holder.stderr());
        proxy.set(Mode::Pass);
        until_ready(&holder, None).await;
        stop.store(true, Ordering::SeqCst);
        for call in calls {
            within_reason("the caller is served", call).await.expect("no panic");
        }
        assert_eq!(caller.request("k", &Worker::new("w").wants(1)).await.expect("an answer").status, 200);
        until("it says that it has recovered", async || recovered(&holder) > outages).await;
        assert_eq!(recovered(&holder), outages + 1, "once: {}", holder.stderr());
    }
    holder.terminate();
    assert_eq!(within_reason("its end", holder.code()).await, 0);
    assert_eq!(recovered(&holder), 2, "{}", holder.stderr());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_becomes_read_only_is_told_apart_and_waited_for() {
    let cluster = private_cluster().await;
    let admin = PgPool::connect(&cluster.url()).await.expect("a session");
    let set = async |statement: &'static str| {
        sqlx::raw_sql(statement).execute(&admin).await.expect("the setting");
        sqlx::raw_sql("SELECT pg_reload_conf()").execute(&admin).await.expect("the reload");
    };
    let holder = Serve::start(&cluster.url()).await;
    let caller = Caller::of(holder.url());
    caller.policy("*", &policy(5)).await;
    let mut worker = Worker::new("w");
    worker.hear(&caller.insist("k", &worker.wants(3)).await);
    set("ALTER SYSTEM SET default_transaction_read_only = on").await;
    until_ready(&holder, Some("read-only")).await;
    caller.request("k", &worker.wants(1)).await.expect("an answer").must_be_unavailable();
    let set_policy = caller.call(reqwest::Method::PUT, "/v1/policies/k", &policy(6)).await;
    set_policy.expect("an answer").must_be_unavailable();
    set("ALTER SYSTEM RESET default_transaction_read_only").await;
    until_ready(&holder, None).await;
    worker.claim();
    worker.hear(&caller.insist_sync("k", &worker.reports()).await);
    assert_eq!(worker.running(), 3);
}

/// The address leads to the standby for a while before that is promoted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_a_holder_comes_back_and_what_was_counted_still_is() {
    let mut primary = private_cluster().await;
    let standby = Standby::of(&primary).await;
    let address = Proxy::before(&primary.url()).await;
    let url = address.through(&primary.url());
    let holder = Serve::start(&url).await;
    let caller = Caller::of(holder.url());
    caller.policy("*", &policy(5)).await;
    let mut worker = Worker::new("w");
    worker.hear(&caller.insist("k", &worker.wants(3)).await);
    worker.claim();
    worker.hear(&caller.insist_sync("k", &worker.reports()).await);

    primary.stop(StopMode::Kill).expect("it can be killed");
    address.retarget(&standby.url());
    until_ready(&holder, Some("standby")).await;
    let mut other = Worker::new("other");
    let (wants, reports) = (other.wants(5), worker.reports());
    let (request, sync) = tokio::join!(caller.request("k", &wants), caller.sync("k", &reports));
    request.expect("an answer").must_be_unavailable();
    sync.expect("an answer").must_be_unavailable();
    let (code, _, stderr) = Process::run(["serve", "--listen", "127.0.0.1:0", "--database-url", &url]).await;
    assert_eq!(code, 1);
    assert!(stderr.contains("standby"), "{stderr}");

    standby.promote().await;
    until_ready(&holder, None).await;
    worker.hear(&caller.insist_sync("k", &worker.reports()).await);
    assert_eq!(worker.running(), 3, "what was confirmed runs on");
    other.hear(&caller.insist("k", &other.wants(5)).await);
    assert_eq!(other.permits(), 2, "and is still counted");
    let mut admin = PgConnection::connect(&standby.url()).await.expect("the new primary");
    let query = sqlx::query_scalar("SELECT count(*) FROM pgsemaphore.verify(NULL)");
    let differences: i64 = query.fetch_one(&mut admin).await.expect("verify");
    assert_eq!(differences, 0);
}
