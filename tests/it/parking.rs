//! Parked requests: who got nothing is kept waiting, hears as soon as there is something, and who left takes nothing.

use std::time::Duration;

use crate::calls::{self, Call, heard, is_blocked};
use futures_util::FutureExt as _;
use pgsemaphore::Refusal;
use pgsemaphore_allocation::SemaphoreKey;
use pgsemaphore_tests::{Caller, Db, InProcess, Serve, Truth, Worker, message, until, verify, within_reason};
use serde_json::{Value, json};

const KEY: &str = "k";
/// Less than a holder lets pass before it looks at parked calls without being told.
const BEFORE_A_LOOK: u64 = 4000;

fn policy(limit: u64) -> Value {
    json!({"limit": limit, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000})
}

/// A database, a holder, a caller of it, and a worker that runs `limit` items.
async fn all_in_use(limit: u64) -> (Db, InProcess, Caller, Worker) {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("*", policy(limit)).await;
    let caller = holder.caller();
    let mut busy = Worker::new("busy");
    take(&caller, &mut busy, limit).await;
    (db, holder, caller, busy)
}

/// Asks for permits, which must be there, and uses them.
async fn take(caller: &Caller, worker: &mut Worker, count: u64) {
    worker.hear(&caller.insist(KEY, &worker.wants(count)).await);
    worker.claim();
    worker.hear(&caller.insist_sync(KEY, &worker.reports()).await);
    assert_eq!(worker.running(), count);
}

async fn give_back(caller: &Caller, worker: &mut Worker) {
    worker.release();
    worker.hear(&caller.insist_sync(KEY, &worker.reports()).await);
}

/// What a worker says that wants one permit, and waits for it.
fn waits(worker: &Worker) -> Value {
    let mut message = worker.wants(1);
    message["wait_ms"] = json!(60_000);
    message
}

fn call(caller: &Caller, message: Value) -> Call {
    calls::call(caller, KEY, message)
}

async fn park(db: &Db, caller: &Caller, message: Value) -> Call {
    calls::park(db, caller, KEY, message).await
}

async fn reply(call: Call) -> Value {
    heard(call).await.ok()
}

fn is_admitted(reply: &Value) -> bool {
    reply["grants"].as_array().is_some_and(|grants| grants.iter().any(|grant| grant["claimed"] == 0))
}

/// How many transactions of the key were committed.
async fn version(db: &Db) -> i64 {
    let query = "SELECT version FROM pgsemaphore_data.semaphores WHERE key = $1";
    sqlx::query_scalar(query).bind(KEY).fetch_one(db.pool()).await.expect("the key's row")
}

/// Someone is parked, `free` lets permits come back, and it is answered before it would have been without being told.
/// How soon that is is nobody's promise, so it is tried until it was soon enough.
async fn wakes(limit: u64, mut free: impl AsyncFnMut(&Db, &Caller, &mut Worker)) {
    let (db, _holder, caller, mut busy) = all_in_use(limit).await;
    let mut attempt = 0;
    until("somebody parked is told", async || {
        attempt += 1;
        let mut waiter = Worker::new(format!("waiter-{attempt}"));
        let parked = park(&db, &caller, waits(&waiter)).await;
        free(&db, &caller, &mut busy).await;
        let reply = reply(parked).await;
        assert!(is_admitted(&reply), "{reply}");
        assert_eq!(reply["blocked"], json!([]));
        waiter.hear(&reply);
        give_back(&caller, &mut waiter).await;
        give_back(&caller, &mut busy).await;
        caller.policy("*", &policy(limit)).await;
        take(&caller, &mut busy, limit).await;
        reply["held_ms"].as_u64().expect("held_ms") < BEFORE_A_LOOK
    })
    .await;
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn a_release_wakes_who_is_parked() {
    wakes(1, async |_, caller, busy| give_back(caller, busy).await).await;
}

#[tokio::test]
async fn what_comes_back_is_given_on_in_the_same_transaction() {
    let (db, _holder, caller, mut busy) = all_in_use(1).await;
    let mut attempt = 0;
    // A look at who is parked may come in between.
    until("one transaction takes back and gives", async || {
        attempt += 1;
        let mut waiter = Worker::new(format!("waiter-{attempt}"));
        let parked = park(&db, &caller, waits(&waiter)).await;
        let before = version(&db).await;
        give_back(&caller, &mut busy).await;
        let reply = reply(parked).await;
        let transactions = version(&db).await - before;
        waiter.hear(&reply);
        give_back(&caller, &mut waiter).await;
        take(&caller, &mut busy, 1).await;
        transactions == 1
    })
    .await;
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn what_comes_back_is_not_kept_waiting_for_more_requests() {
    wakes(1, async |db, caller, busy| {
        let mut patient = policy(1);
        patient["round_wait_ms"] = json!(60_000);
        let before = version(db).await;
        caller.policy("*", &patient).await;
        until("it is looked whether that helps", async || version(db).await > before).await;
        give_back(caller, busy).await;
    })
    .await;
}

#[tokio::test]
async fn a_policy_changed_over_http_wakes_who_is_parked() {
    wakes(0, async |_, caller, _| caller.policy("*", &policy(1)).await).await;
}

#[tokio::test]
async fn a_limit_set_in_sql_wakes_who_is_parked() {
    wakes(0, async |db, _, _| {
        let query = sqlx::query("SELECT pgsemaphore.set_limit('*', 1)").execute(db.pool());
        query.await.expect("a limit");
    })
    .await;
}

#[tokio::test]
async fn a_release_told_to_another_holder_wakes_who_is_parked() {
    let other = tokio::sync::OnceCell::new();
    wakes(1, async |db, _, busy| {
        let other: &InProcess = other.get_or_init(|| InProcess::start(db.url())).await;
        give_back(&other.caller(), busy).await;
    })
    .await;
}

#[tokio::test]
async fn permits_that_nobody_claims_go_to_who_is_parked() {
    let (db, holder, caller, mut busy) = all_in_use(1).await;
    give_back(&caller, &mut busy).await;
    let mut impatient = policy(1);
    impatient["grant_timeout_ms"] = json!(500);
    holder.policy("*", impatient).await;
    let granted = caller.insist(KEY, &Worker::new("silent").wants(1)).await;
    assert!(is_admitted(&granted));
    let reply = reply(call(&caller, waits(&Worker::new("waiter")))).await;
    assert!(is_admitted(&reply), "{reply}");
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn a_parked_sync_hears_from_another_holder_that_permits_are_lacking() {
    let (db, _holder, caller, _busy) = all_in_use(1).await;
    let holder = InProcess::start(db.url()).await;
    let (other, wanting) = (holder.caller(), Worker::new("wanting"));
    until("it is told", async || {
        let known = caller.insist_sync(KEY, &message("idle", json!({}))).await;
        assert_eq!(known["contended"], false);
        let before = version(&db).await;
        let wait = message("idle", json!({"wait_ms": 60_000, "known_state": known["state"]}));
        let caller = caller.clone();
        let parked = tokio::spawn(async move { caller.sync(KEY, &wait).await });
        until("it is parked", async || version(&db).await > before).await;
        other.insist(KEY, &wanting.wants(1)).await;
        let told = reply(parked).await;
        assert_eq!(told["contended"], true);
        other.insist(KEY, &wanting.reports()).await;
        told["held_ms"].as_u64().expect("held_ms") < BEFORE_A_LOOK
    })
    .await;
}

#[tokio::test]
async fn a_newer_request_of_the_process_supersedes_a_parked_one() {
    let (db, _holder, caller, mut busy) = all_in_use(1).await;
    let waiter = Worker::new("waiter");
    let mut message = waits(&waiter);
    message["process"] = json!("p");
    message["call"] = json!(2);
    let older = park(&db, &caller, message.clone()).await;
    message["call"] = json!(1);
    let stale = heard(call(&caller, message.clone())).await;
    assert_eq!((stale.status, &stale.body["code"]), (409, &json!("superseded")));
    message["call"] = json!(3);
    let newer = call(&caller, message);
    let older = heard(older).await;
    assert_eq!((older.status, &older.body["code"]), (409, &json!("superseded")));
    give_back(&caller, &mut busy).await;
    assert!(is_admitted(&reply(newer).await));
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn the_newest_request_of_a_process_supersedes_all_that_wait() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("*", json!({"limit": 1, "round_wait_ms": 60_000})).await;
    let request = |generation: u64, call: u64| {
        let message = message("w", json!({"generation": generation, "process": "p", "call": call}));
        let message = serde_json::from_value(message).expect("a message");
        let mut request = Box::pin(holder.holder().request(SemaphoreKey::new(KEY), message));
        assert!((&mut request).now_or_never().is_none());
        request
    };
    // One of before the process took a higher generation comes late.
    let (older, late) = (request(2, 15), request(1, 5));
    let (newer, newest) = (request(2, 16), request(2, 17));
    for superseded in [older, late, newer] {
        assert_eq!(within_reason("it is superseded", superseded).await, Err(Refusal::Superseded));
    }
    assert!(futures_util::poll!(newest).is_pending());
}

#[tokio::test]
async fn who_hangs_up_while_parked_takes_no_permit() {
    let (db, _holder, caller, mut busy) = all_in_use(1).await;
    let mut attempt = 0;
    // How soon the end of a connection is noticed is nobody's promise, so this is tried until it was soon enough.
    until("a permit goes to who stayed", async || {
        attempt += 1;
        let [mut gone, mut stays] = ["gone", "stays"].map(|name| Worker::new(format!("{name}-{attempt}")));
        let parked = park(&db, &caller, waits(&gone)).await;
        let staying = park(&db, &caller, waits(&stays)).await;
        parked.abort();
        let _ = parked.await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        give_back(&caller, &mut busy).await;
        let held = caller.insist_sync(KEY, &gone.reports()).await;
        let in_time = !is_admitted(&held);
        gone.hear(&held);
        give_back(&caller, &mut gone).await;
        stays.hear(&reply(staying).await);
        assert_eq!(stays.permits(), 1);
        give_back(&caller, &mut stays).await;
        take(&caller, &mut busy, 1).await;
        in_time
    })
    .await;
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn at_the_end_of_its_wait_a_parked_request_hears_why_it_got_nothing() {
    let (db, _holder, caller, busy) = all_in_use(1).await;
    let mut message = waits(&Worker::new("waiter"));
    message["wait_ms"] = json!(1500);
    let before = version(&db).await;
    let parked = park(&db, &caller, message).await;
    let reply = reply(parked).await;
    assert_eq!(reply["blocked"], json!([{"group": "", "count": 1, "reason": "limit"}]));
    assert_eq!((&reply["grants"], &reply["contended"]), (&json!([]), &json!(true)));
    assert_eq!(version(&db).await - before, 1, "nothing happened, so there was no second round");
    assert_eq!(busy.running(), 1);
}

#[tokio::test]
async fn no_round_starts_within_the_period_for_who_is_parked() {
    let (db, holder, caller, mut busy) = all_in_use(1).await;
    let mut message = waits(&Worker::new("waiter"));
    message["wait_ms"] = json!(3000);
    let parked = park(&db, &caller, message).await;
    let mut rare = policy(1);
    rare["round_period_ms"] = json!(3_600_000);
    holder.policy("*", rare).await;
    give_back(&caller, &mut busy).await;
    let reply = reply(parked).await;
    assert_eq!((&reply["grants"], &reply["blocked"][0]["reason"]), (&json!([]), &json!("limit")));
    assert_eq!(caller.usage(KEY).await["grants"], 0);
}

#[tokio::test]
async fn without_demand_no_request_is_parked() {
    let (_db, _holder, caller, _busy) = all_in_use(1).await;
    let mut nothing = waits(&Worker::new("content"));
    nothing["demand"] = json!([{"group": "", "count": 0}]);
    let reply = reply(call(&caller, nothing)).await;
    assert_eq!((&reply["grants"], &reply["blocked"]), (&json!([]), &json!([])));
}

#[tokio::test]
async fn of_those_who_wait_the_oldest_is_next_parked_or_not() {
    let (db, _holder, caller, mut busy) = all_in_use(1).await;
    let [mut first, mut oldest, mut last] = ["first", "oldest", "last"].map(Worker::new);
    let parked_first = park(&db, &caller, waits(&first)).await;
    let mut aged = waits(&oldest);
    aged["demand"][0]["oldest_age_ms"] = json!(600_000);
    let parked_oldest = park(&db, &caller, aged).await;
    let new = call(&caller, waits(&last));

    give_back(&caller, &mut busy).await;
    oldest.hear(&reply(parked_oldest).await);
    assert_eq!(oldest.permits(), 1);
    assert!(!parked_first.is_finished());
    until("the last one's first round is over", async || is_blocked(&db, "last").await).await;
    give_back(&caller, &mut oldest).await;
    first.hear(&reply(parked_first).await);
    assert_eq!(first.permits(), 1);
    assert!(!new.is_finished());
    give_back(&caller, &mut first).await;
    last.hear(&reply(new).await);
    assert_eq!(last.permits(), 1);
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn reports_of_a_parked_request_are_applied_once() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let mut lends = policy(3);
    lends["provisioning"] = json!("strict");
    holder.policy("*", lends).await;
    let caller = holder.caller();
    let demand = json!([{"group": "", "count": 1}]);
    let first = caller.insist(KEY, &message("a", json!({"demand": demand, "leases": []}))).await;
    let reports = json!({
        "seen": first["round"],
        "wait_ms": 60_000,
        "demand": [{"group": "other", "count": 1}],
        "grants": [{"id": first["grants"][0]["id"], "claimed": 1}],
        "leases": [{"id": first["leases"][0]["id"], "drawn": 1}],
    });
    let parked = park(&db, &caller, message("a", reports)).await;
    let applied = last_report(&db).await;
    for _ in 0..3 {
        let reply = caller.insist(KEY, &Worker::new("b").wants(1)).await;
        assert_eq!(reply["blocked"][0]["reason"], "limit");
    }
    assert_eq!(last_report(&db).await, applied, "only what it said on arrival is a heartbeat");

    let stop = json!([{"id": first["leases"][0]["id"], "drawn": 1, "stopped": true}]);
    caller.insist_sync(KEY, &message("a", json!({"seen": first["round"], "leases": stop}))).await;
    let reply = reply(parked).await;
    assert!(is_admitted(&reply), "{reply}");
    assert_eq!(reply["leases"][0]["status"], "retired", "{reply}");
    assert_eq!(verify(&db).await, []);
}

/// When the one lease was last reported, in seconds, and how much of it is drawn.
async fn last_report(db: &Db) -> (f64, i32) {
    let query = "SELECT extract(epoch FROM last_report)::float8, drawn::int FROM pgsemaphore.leases";
    sqlx::query_as(query).fetch_one(db.pool()).await.expect("one lease")
}

#[tokio::test]
async fn a_block_whose_delivery_was_lost_is_answered_at_once() {
    let (db, _holder, caller, mut busy) = all_in_use(1).await;
    give_back(&caller, &mut busy).await;
    let waiter = Worker::new("waiter");
    let lost = caller.insist(KEY, &waiter.wants(1)).await;
    let again = reply(call(&caller, waits(&waiter))).await;
    assert_eq!(again["grants"][0]["id"], lost["grants"][0]["id"]);
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn a_reported_block_that_is_not_active_any_more_is_answered() {
    let (_db, holder, caller, mut busy) = all_in_use(2).await;
    give_back(&caller, &mut busy).await;
    let mut impatient = policy(2);
    impatient["grant_timeout_ms"] = json!(500);
    holder.policy("*", impatient).await;
    let mut half = Worker::new("half");
    half.hear(&caller.insist(KEY, &half.wants(2)).await);
    half.blocks.values_mut().for_each(|held| held.claimed = 1);
    let reply = reply(call(&caller, waits(&half))).await;
    let statuses: Vec<_> = reply["grants"].as_array().expect("grants").iter().map(|g| &g["status"]).collect();
    assert_eq!(statuses, ["expired", "active"], "what it did not claim came back, and went to it anew");
}

#[tokio::test]
async fn a_group_without_room_keeps_its_own_waiting_and_nobody_else() {
    let (db, holder, caller, mut busy) = all_in_use(2).await;
    give_back(&caller, &mut busy).await;
    let mut closed = policy(2);
    closed["group_limits"] = json!({"": 0});
    holder.policy("*", closed).await;
    let parked = park(&db, &caller, waits(&Worker::new("waiter"))).await;
    let other = message("other", json!({"demand": [{"group": "open", "count": 1}]}));
    assert!(is_admitted(&caller.insist(KEY, &other).await));
    assert!(!parked.is_finished());
    let path = "/v1/policies/%2A/groups/";
    let set = holder.send(reqwest::Method::PUT, path, &json!({"limit": 1})).await;
    assert_eq!(set.0, 200, "{}", set.1);
    assert!(is_admitted(&reply(parked).await));
}

#[tokio::test]
async fn without_a_policy_nobody_stays_parked() {
    let (db, holder, caller, _busy) = all_in_use(1).await;
    let parked = park(&db, &caller, waits(&Worker::new("waiter"))).await;
    let gone = holder.send(reqwest::Method::DELETE, "/v1/policies/%2A", &Value::Null).await;
    assert_eq!(gone.0, 204);
    let refused = heard(parked).await;
    assert_eq!((refused.status, &refused.body["code"]), (404, &json!("semaphore_not_found")));
}

#[tokio::test]
async fn a_holder_that_stops_refuses_who_is_parked() {
    let (db, holder, caller, _busy) = all_in_use(1).await;
    let parked = park(&db, &caller, waits(&Worker::new("waiter"))).await;
    holder.holder().stop().await;
    let refused = heard(parked).await;
    assert_eq!((refused.status, &refused.body["code"]), (503, &json!("shutting_down")));
    assert!(refused.retry_after.is_some());
}

/// Nobody is forgotten and no permit is given twice, whoever asks where.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_park_at_two_holders_are_all_served() {
    const LIMIT: u64 = 2;
    const WORKERS: usize = 8;
    const ITEMS: usize = 5;
    let (db, holder, caller, mut busy) = all_in_use(LIMIT).await;
    let other = InProcess::start(db.url()).await;
    let truth = Truth::default();
    truth.limit(KEY, None, LIMIT);
    let mut workers = tokio::task::JoinSet::new();
    for n in 0..WORKERS {
        let (callers, truth) = ([holder.caller(), other.caller()], truth.clone());
        workers.spawn(async move {
            let mut worker = Worker::new(format!("w{n}"));
            for item in 0..ITEMS {
                let [asks, tells] = [&callers[(n + item) % 2], &callers[n % 2]];
                while worker.permits() == 0 {
                    worker.hear(&asks.insist(KEY, &waits(&worker)).await);
                }
                worker.claim();
                worker.hear(&tells.insist_sync(KEY, &worker.reports()).await);
                drop(truth.start(KEY, ""));
                give_back(tells, &mut worker).await;
            }
        });
    }
    until("everybody waits", async || {
        caller.usage(KEY).await["blocked"].as_array().is_some_and(|blocked| blocked.len() == WORKERS)
    })
    .await;
    give_back(&caller, &mut busy).await;
    within_reason("all are served", async {
        while let Some(worker) = workers.join_next().await {
            worker.expect("no panic");
        }
    })
    .await;
    assert_eq!(truth.violations(), [] as [String; 0]);
    assert_eq!(truth.started(), (WORKERS * ITEMS) as u64);
    assert_eq!(caller.usage(KEY).await["grants"], 0);
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn who_is_parked_at_a_holder_that_is_killed_waits_at_another() {
    let (db, _holder, caller, mut busy) = all_in_use(1).await;
    let killed = Serve::start(db.url()).await;
    let waiter = Worker::new("waiter");
    let parked = park(&db, &Caller::of(killed.url()), waits(&waiter)).await;
    killed.kill();
    assert_eq!(within_reason("the end of the connection", parked).await.expect("no panic"), None);
    let again = call(&caller, waits(&waiter));
    give_back(&caller, &mut busy).await;
    assert!(is_admitted(&reply(again).await));
    assert_eq!(caller.usage(KEY).await["grants"], 1);
    assert_eq!(verify(&db).await, []);
}
