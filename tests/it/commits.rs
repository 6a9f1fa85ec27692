//! The connection to PostgreSQL fails at the worst moments: around COMMIT, and without anybody being told.
//!
//! Whatever is lost, the caller gets an answer, nothing is granted twice, and what is counted is what clients hold.

use pgsemaphore_tests::{
    Act, COMMIT, Caller, Db, InProcess, Mode, Proxy, Way, Worker, faults, until, verify,
};
use serde_json::{Value, json};

fn policy() -> Value {
    json!({"limit": 5, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000})
}

/// A holder that reaches PostgreSQL through a proxy, with a policy for all keys.
async fn holder_behind_proxy() -> (Db, Proxy, InProcess) {
    let db = Db::new().await;
    let proxy = Proxy::before(db.url()).await;
    let holder = InProcess::start(&proxy.through(db.url())).await;
    holder.policy("*", policy()).await;
    (db, proxy, holder)
}

/// After a fault, `worker` has exactly 3 permits; who comes next gets the other 2; all that is held can be given back.
async fn must_have_granted_once(db: &Db, caller: &Caller, key: &str, reply: &Value) {
    let mut first = Worker::new("first");
    first.hear(reply);
    assert_eq!(first.permits(), 3, "{reply}");
    assert_eq!(caller.usage(key).await["grants"], 3);
    let mut second = Worker::new("second");
    second.hear(&caller.insist(key, &second.wants(5)).await);
    assert_eq!(second.permits(), 2);
    for worker in [&mut first, &mut second] {
        worker.claim();
        worker.hear(&caller.insist_sync(key, &worker.reports()).await);
        assert_eq!(worker.running(), worker.permits());
        worker.release();
        worker.hear(&caller.insist_sync(key, &worker.reports()).await);
        assert_eq!(worker.blocks.len(), 0);
    }
    assert_eq!(caller.usage(key).await["grants"], 0);
    assert_eq!(verify(db).await, []);
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_answered_and_grants_once() {
    let (db, proxy, holder) = holder_behind_proxy().await;
    let caller = holder.caller();
    proxy.trap(COMMIT, Act::CutAnswer, 1);
    let heard = caller.request("k", &Worker::new("first").wants(3)).await.expect("an answer");
    assert_eq!(proxy.sprung(), 1);
    // The key's row says that the transaction went through, so the holder knows and need not say 503.
    must_have_granted_once(&db, &caller, "k", &heard.ok()).await;
}

#[tokio::test]
async fn a_commit_that_never_arrived_is_repeated_and_grants_once() {
    let (db, proxy, holder) = holder_behind_proxy().await;
    let caller = holder.caller();
    proxy.trap(COMMIT, Act::CutBefore, 1);
    let heard = caller.request("k", &Worker::new("first").wants(3)).await.expect("an answer");
    assert_eq!(proxy.sprung(), 1);
    must_have_granted_once(&db, &caller, "k", &heard.ok()).await;
}

#[tokio::test]
async fn a_commit_whose_answer_is_swallowed_is_answered_in_bounded_time_and_grants_once() {
    let (db, proxy, holder) = holder_behind_proxy().await;
    let caller = holder.caller();
    proxy.trap(COMMIT, Act::SwallowAnswer, 1);
    let reply = caller.insist("k", &Worker::new("first").wants(3)).await;
    assert_eq!(proxy.sprung(), 1);
    must_have_granted_once(&db, &caller, "k", &reply).await;
}

#[tokio::test]
async fn commits_that_fail_for_ever_are_a_503_and_what_they_did_is_delivered_later() {
    let (db, proxy, holder) = holder_behind_proxy().await;
    let caller = holder.caller();
    for act in [Act::CutAnswer, Act::CutBefore] {
        let key = format!("{act:?}");
        proxy.trap(COMMIT, act, u64::MAX);
        let heard = caller.request(&key, &Worker::new("first").wants(3)).await.expect("an answer");
        if act == Act::CutBefore {
            heard.must_be_unavailable();
        }
        proxy.trap(COMMIT, act, 0);
        let reply = caller.insist(&key, &Worker::new("first").wants(3)).await;
        must_have_granted_once(&db, &caller, &key, &reply).await;
    }
}

#[tokio::test]
async fn a_claim_whose_commit_answer_is_lost_stays_one_claim() {
    let (db, proxy, holder) = holder_behind_proxy().await;
    let caller = holder.caller();
    for act in [Act::CutAnswer, Act::CutBefore] {
        let key = format!("{act:?}");
        let mut worker = Worker::new("w");
        worker.hear(&caller.insist(&key, &worker.wants(4)).await);
        for step in [Worker::claim, Worker::release] {
            step(&mut worker);
            proxy.trap(COMMIT, act, 1);
            worker.hear(&caller.sync(&key, &worker.reports()).await.expect("an answer").ok());
            assert_eq!(caller.usage(&key).await["grants"], worker.permits());
        }
        assert_eq!(worker.blocks.len(), 0, "what the repeated transaction settled is said to be settled");
    }
    assert_eq!(proxy.sprung(), 4);
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn a_black_hole_before_postgresql_is_a_503_and_then_nothing() {
    let (db, proxy, holder) = holder_behind_proxy().await;
    let caller = holder.caller();
    let mut worker = Worker::new("w");
    worker.hear(&caller.insist("k", &worker.wants(1)).await);
    worker.claim();
    proxy.set(Mode::Drop);
    let (request, sync, usage) = tokio::join!(
        async { caller.request("k", &Worker::new("other").wants(1)).await.expect("an answer") },
        async { caller.sync("k", &worker.reports()).await.expect("an answer") },
        async {
            let usage = caller.call(reqwest::Method::GET, "/v1/semaphores/k", &Value::Null).await;
            usage.expect("an answer")
        },
    );
    request.must_be_unavailable();
    sync.must_be_unavailable();
    usage.must_be_unavailable();
    let ready = caller.call(reqwest::Method::GET, "/readyz", &Value::Null).await.expect("an answer");
    assert_eq!(ready.status, 503);
    proxy.set(Mode::Pass);
    // The connections from before are dead for good, as after a failover; the holder makes new ones.
    proxy.cut_open_connections();
    worker.hear(&caller.insist_sync("k", &worker.reports()).await);
    assert_eq!(worker.running(), 1);
    let mut other = Worker::new("other");
    other.hear(&caller.insist("k", &other.wants(1)).await);
    assert_eq!(other.permits(), 1);
    assert_eq!(caller.usage("k").await["grants"], 2);
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn sessions_that_an_operator_ends_cost_no_more_than_a_503() {
    let (db, _proxy, holder) = holder_behind_proxy().await;
    let caller = holder.caller();
    let mut worker = Worker::new("w");
    for _ in 0..20 {
        faults::terminate_sessions(db.pool()).await;
        worker.hear(&caller.insist("k", &worker.wants(3)).await);
        worker.claim();
        faults::terminate_sessions(db.pool()).await;
        worker.hear(&caller.insist_sync("k", &worker.reports()).await);
        assert_eq!(worker.running(), 3);
        worker.release();
    }
    worker.hear(&caller.insist_sync("k", &worker.reports()).await);
    assert_eq!(caller.usage("k").await["grants"], 0);
    assert_eq!(caller.unanswered(), 0);
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn a_slow_connection_changes_nothing_but_the_time() {
    let (db, proxy, holder) = holder_behind_proxy().await;
    let caller = holder.caller();
    for mode in [Mode::Delay(std::time::Duration::from_millis(5)), Mode::Throttle(512)] {
        proxy.set(mode);
        let reply = caller.request("k", &Worker::new("first").wants(3)).await.expect("an answer").ok();
        must_have_granted_once(&db, &caller, "k", &reply).await;
    }
}

#[tokio::test]
async fn connections_that_break_anywhere_in_a_transaction_lose_nothing() {
    let (db, proxy, holder) = holder_behind_proxy().await;
    let caller = holder.caller();
    let mut worker = Worker::new("w");
    // Each connection ends a little later than those before: in the handshake, in a statement, in an answer.
    for bytes in (200..6000).step_by(400) {
        proxy.set_way(Way::ToCaller, Mode::CutAfter(bytes));
        worker.release();
        if let Some(heard) = caller.request("k", &worker.wants(2)).await.filter(|heard| heard.status == 200) {
            worker.hear(&heard.body);
        }
        proxy.set_way(Way::ToCaller, Mode::Pass);
        worker.hear(&caller.insist("k", &worker.wants(2)).await);
        until("what is held is counted, once", async || {
            caller.usage("k").await["grants"] == worker.permits()
        })
        .await;
        assert!(worker.permits() <= 5);
    }
    assert_eq!(verify(&db).await, []);
}
