//! Callers that go away, and answers that never arrive: nobody's permits are lost, and nobody runs too many.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pgsemaphore_allocation::SemaphoreKey;
use pgsemaphore_tests::{
    Caller, Db, InProcess, Mode, Proxy, Truth, Worker, faults, until, verify, within_reason,
};
use queue_client::QueueClient;
use serde_json::{Value, json};

fn policy(limit: u64, round_wait_ms: u64) -> Value {
    json!({
        "limit": limit, "round_wait_ms": round_wait_ms, "round_period_ms": 0, "grant_timeout_ms": 3_600_000
    })
}

/// Permits that count for a client.
async fn held(db: &Db, client_id: &str) -> i64 {
    let query =
        "SELECT coalesce(sum(permits - released), 0)::bigint FROM pgsemaphore.grants WHERE client_id = $1";
    sqlx::query_scalar(query).bind(client_id).fetch_one(db.pool()).await.expect("the view")
}

#[tokio::test]
async fn a_caller_that_hangs_up_while_it_waits_takes_no_permits_and_reports_nothing() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let caller = holder.caller();
    holder.policy("*", policy(9, 300)).await;
    // How soon the end of a connection is noticed is nobody's promise, so this is tried until it was soon enough.
    let attempt = AtomicU64::new(0);
    until("a round without those who hung up", async || {
        let attempt = attempt.fetch_add(1, Ordering::SeqCst);
        let [mut gone, mut reporter, mut stays] =
            ["gone", "reporter", "stays"].map(|name| Worker::new(format!("{name}-{attempt}")));
        reporter.hear(&caller.insist("k", &reporter.wants(1)).await);
        reporter.claim();
        for message in [gone.wants(2), reporter.wants(1)] {
            let caller = caller.clone();
            let call = tokio::spawn(async move { caller.request("k", &message).await });
            tokio::time::sleep(Duration::from_millis(50)).await;
            call.abort();
        }
        stays.hear(&caller.insist("k", &stays.wants(1)).await);
        let query = "SELECT coalesce(sum(claimed), 0)::bigint FROM pgsemaphore.grants WHERE client_id = $1";
        let query = sqlx::query_scalar(query).bind(&reporter.client_id);
        let claimed: i64 = query.fetch_one(db.pool()).await.expect("the view");
        let in_time = held(&db, &gone.client_id).await == 0 && claimed == 0;
        // Who hung up too late was in the round; it hears of that when it speaks again.
        for worker in [&mut gone, &mut reporter, &mut stays] {
            worker.hear(&caller.insist_sync("k", &worker.reports()).await);
            worker.release();
            worker.hear(&caller.insist_sync("k", &worker.reports()).await);
        }
        assert_eq!(caller.usage("k").await["grants"], 0);
        in_time
    })
    .await;
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn a_future_that_is_dropped_while_it_waits_takes_no_permits() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("*", policy(9, 300)).await;
    let message = |client: &str| serde_json::from_value(Worker::new(client).wants(2)).expect("a message");
    let key = || pgsemaphore_allocation::SemaphoreKey::new("k");
    let mut gone = Box::pin(holder.holder().request(key(), message("gone")));
    let mut stays = Box::pin(holder.holder().request(key(), message("stays")));
    assert!(futures_util::poll!(&mut gone).is_pending());
    assert!(futures_util::poll!(&mut stays).is_pending());
    drop(gone);
    let reply = within_reason("the round", stays).await.expect("a reply");
    assert_eq!(reply.grants.len(), 1);
    assert_eq!((held(&db, "gone").await, held(&db, "stays").await), (0, 2));
}

/// O-16: neither an eager round nor an ordinary one gives permits to a caller that hung up while the round waited for
/// the key's row.
#[tokio::test]
async fn a_caller_that_hangs_up_while_its_round_waits_for_the_row_takes_no_permits() {
    for eager in [true, false] {
        let db = Db::new().await;
        let holder = InProcess::start(db.url()).await;
        let mut policy = policy(5, 0);
        policy["eager"] = json!(eager);
        holder.policy("*", policy).await;
        let asked = |client: &str, count| {
            let message = serde_json::from_value(Worker::new(client).wants(count)).expect("a message");
            let holder = holder.holder().clone();
            tokio::spawn(async move { holder.request(SemaphoreKey::new("k"), message).await })
        };
        asked("stays", 0).await.expect("no panic").expect("the key's row");

        let lock = faults::RowLock::hold(db.url(), "k").await;
        let gone = asked("gone", 3);
        faults::until_locked_out(db.pool(), 1).await;
        gone.abort();
        assert!(gone.await.is_err(), "the caller hung up");
        lock.release().await;
        let reply = asked("stays", 4).await.expect("no panic").expect("a reply");
        assert_eq!(reply.grants[0].permits, Some(4), "eager: {eager}");
        assert_eq!(held(&db, "gone").await, 0, "eager: {eager}");
        assert_eq!(verify(&db).await, []);
    }
}

#[tokio::test]
async fn a_round_that_has_begun_goes_on_without_its_caller_and_is_delivered_later() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let caller = holder.caller();
    holder.policy("*", policy(5, 0)).await;
    let mut worker = Worker::new("w");
    let _ = caller.insist("k", &worker.wants(0)).await;

    let lock = faults::RowLock::hold_client(db.url(), "k", "w").await;
    let (message, impatient) = (worker.wants(3), caller.clone());
    let call = tokio::spawn(async move { impatient.request("k", &message).await });
    faults::until_locked_out(db.pool(), 1).await;
    call.abort();
    let _ = call.await;
    lock.release().await;
    until("the round is committed", async || held(&db, "w").await == 3).await;

    worker.hear(&caller.insist("k", &worker.wants(3)).await);
    assert_eq!(worker.permits(), 3, "the same permits, not others");
    assert_eq!(caller.usage("k").await["grants"], 3);
    assert_eq!(verify(&db).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_crate_survives_lost_answers() {
    lose_answers(json!({})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_with_leases_too() {
    lose_answers(json!({"provisioning": "strict", "permits_per_lease": 2, "lease_ttl_ms": 3000})).await;
}

/// Of a hundred answers thirty are lost, after COMMIT, and the clients' calls with them.
async fn lose_answers(leases: Value) {
    const LIMIT: usize = 4;
    const WAVES: usize = 15;
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let caller: Caller = holder.caller();
    let mut policy = policy(LIMIT as u64, 10);
    policy.as_object_mut().expect("an object").extend(leases.as_object().expect("an object").clone());
    holder.policy("*", policy).await;
    let proxy = Proxy::of_http1(holder.url()).await;
    proxy.lose_answers(30);
    let truth = Truth::default();
    truth.limit("k", None, LIMIT as u64);

    let clients: Vec<QueueClient> = (0..3)
        .map(|n| QueueClient::builder().url(proxy.through(holder.url())).client_id(format!("c{n}")).build())
        .collect::<Result<_, _>>()
        .expect("clients");
    // An item ends when it is let go, so all of the budget is in use again and again, or this never ends.
    let ends = Arc::new(tokio::sync::Semaphore::new(0));
    let mut items = tokio::task::JoinSet::new();
    for n in 0..WAVES * LIMIT {
        let (semaphore, truth, ends) = (clients[n % 3].semaphore("k"), truth.clone(), ends.clone());
        items.spawn(async move {
            let permit = semaphore.acquire(if n % 2 == 0 { "" } else { "g" }).await.expect("a permit");
            let running = truth.start("k", permit.group());
            ends.acquire().await.expect("it is let go").forget();
            drop(running);
            drop(permit);
        });
    }
    for _ in 0..WAVES {
        until("all of the budget is in use", async || truth.running("k", None).len() == LIMIT).await;
        ends.add_permits(LIMIT);
        until("the items end", async || ends.available_permits() == 0).await;
    }
    proxy.lose_answers(0);
    within_reason("all items end", items.join_all()).await;
    for client in &clients {
        within_reason("everything is given back", client.drain()).await.expect("drained");
    }
    assert_eq!(truth.violations(), [] as [String; 0]);
    assert_eq!(truth.started(), (WAVES * LIMIT) as u64);
    let usage = caller.usage("k").await;
    assert_eq!((&usage["grants"], &usage["leases"]), (&json!(0), &json!(0)));
    assert_eq!(verify(&db).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_dropped_while_no_holder_answers_are_released_when_one_does() {
    const ITEMS: usize = 20;
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let caller = holder.caller();
    holder.policy("*", policy(20, 0)).await;
    let proxy = Proxy::of_http1(holder.url()).await;
    let client = QueueClient::builder().url(proxy.through(holder.url())).build().expect("a client");
    for fault in [Mode::Cut, Mode::Drop] {
        let semaphore = client.semaphore("k");
        let mut permits = Vec::new();
        for _ in 0..ITEMS {
            permits.push(within_reason("a permit", semaphore.acquire("")).await.expect("a permit"));
        }
        assert_eq!(caller.usage("k").await["grants"], ITEMS);
        proxy.set(fault);
        let last = permits.pop().expect("a permit");
        permits.clear();
        let panics = tokio::spawn(async move {
            let _last = last;
            panic!("an item that fails, as is meant here");
        });
        assert!(panics.await.is_err());
        assert_eq!(caller.usage("k").await["grants"], ITEMS, "nothing has arrived, so all of it counts");
        proxy.set(Mode::Pass);
        proxy.cut_open_connections();
        until("all permits come back", async || caller.usage("k").await["grants"] == 0).await;
    }
    within_reason("nothing is left", client.drain()).await.expect("drained");
    assert_eq!(verify(&db).await, []);
}
