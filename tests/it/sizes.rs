//! The largest messages, and a database that is asked as often for one request as for hundreds.

use pgsemaphore_tests::{Db, InProcess, Proxy, Worker, message, verify};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const FORGET: Duration = Duration::from_secs(600);

fn policy(limit: u64, round_wait_ms: u64) -> Value {
    json!({
        "limit": limit, "round_wait_ms": round_wait_ms, "round_period_ms": 0, "grant_timeout_ms": 3_600_000
    })
}

#[tokio::test]
async fn ten_thousand_reports_are_applied_and_one_more_is_refused() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let caller = holder.caller();
    holder.policy("*", policy(10_000, 0)).await;
    let demand: Vec<Value> = (0..1000).map(|n| json!({"group": format!("g{n}"), "count": 1})).collect();
    let mut worker = Worker::new("w");
    for _ in 0..10 {
        worker.hear(&caller.insist("k", &message("w", json!({"seen": worker.seen, "demand": demand}))).await);
    }
    assert_eq!((worker.blocks.len(), worker.permits()), (10_000, 10_000));

    worker.claim();
    let mut too_many = worker.reports();
    let reports = too_many["grants"].as_array_mut().expect("reports");
    reports.push(json!({"id": "one-more", "claimed": 1}));
    let heard = caller.sync("k", &too_many).await.expect("an answer");
    assert_eq!(
        (heard.status, &heard.body["code"], &heard.body["field"]),
        (400, &json!("invalid_request"), &json!("/grants"))
    );

    worker.hear(&caller.sync("k", &worker.reports()).await.expect("an answer").ok());
    assert_eq!(worker.running(), 10_000);
    worker.release();
    worker.hear(&caller.sync("k", &worker.reports()).await.expect("an answer").ok());
    assert_eq!(worker.blocks.len(), 0, "each of them is settled");
    assert_eq!(caller.usage("k").await["grants"], 0);
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn a_bad_report_among_thousands_loses_none_of_the_others() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let caller = holder.caller();
    holder.policy("*", policy(10, 0)).await;
    let mut worker = Worker::new("w");
    worker.hear(&caller.insist("k", &worker.wants(3)).await);
    worker.claim();
    let mut reports = worker.reports();
    let list = reports["grants"].as_array_mut().expect("reports");
    list.extend((0..5000).map(|n| json!({"id": format!("no-block-{n}"), "claimed": 1})));
    let reply = caller.sync("k", &reports).await.expect("an answer").ok();
    let verdicts = reply["grants"].as_array().expect("verdicts");
    assert_eq!(verdicts.len(), 5001);
    assert_eq!(verdicts.iter().filter(|verdict| verdict["status"] == "not_found").count(), 5000);
    worker.hear(&reply);
    assert_eq!(worker.running(), 3);
}

/// Round trips within the transactions of `clients` requests, and the rounds that served them.
async fn trips(proxy: &Proxy, holder: &InProcess, clients: usize) -> (u64, u64) {
    let caller = holder.caller();
    let before = proxy.round_trips_in_transactions();
    let requests = (0..clients).map(|n| {
        let caller = caller.clone();
        async move {
            let mut worker = Worker::new(format!("c{n}"));
            // The same of each: it wants one permit, and has heard of everything.
            let reply = caller
                .insist(
                    "k",
                    &message(
                        &worker.client_id,
                        json!({
                            "seen": 1, "demand": [{"group": format!("g{}", n % 20), "count": 1}]
                        }),
                    ),
                )
                .await;
            worker.hear(&reply);
            (worker, reply["round"].as_u64().expect("a round"))
        }
    });
    let served = futures_util::future::join_all(requests).await;
    let trips = proxy.round_trips_in_transactions() - before;
    let rounds: BTreeSet<u64> = served.iter().map(|(_, round)| *round).collect();
    let given_back = served.into_iter().map(|(mut worker, _)| {
        let caller = caller.clone();
        async move {
            worker.release();
            worker.hear(&caller.insist_sync("k", &worker.reports()).await);
            assert_eq!(worker.blocks.len(), 0);
        }
    });
    futures_util::future::join_all(given_back).await;
    assert_eq!(caller.refused(), 0);
    (trips, u64::try_from(rounds.len()).expect("few rounds"))
}

#[tokio::test]
async fn a_round_asks_the_database_as_often_for_one_request_as_for_three_hundred() {
    let db = Db::new().await;
    let proxy = Proxy::before(db.url()).await;
    // One connection, so that each statement is prepared once.
    let holder = InProcess::start_with(&proxy.through(db.url()), 1, FORGET).await;
    holder.policy("*", policy(1000, 1000)).await;
    // Rows are made, and statements are prepared, the first time.
    for clients in [300, 300, 1] {
        trips(&proxy, &holder, clients).await;
    }
    let (of_one, rounds) = trips(&proxy, &holder, 1).await;
    assert_eq!(rounds, 1);
    let (of_many, rounds) = trips(&proxy, &holder, 300).await;
    assert!(rounds < 30, "300 requests took {rounds} rounds");
    // One more where the free rows that the key's own row lists do not suffice; never one for each request.
    let (least, most) = (of_one * rounds, (of_one + 1) * rounds);
    assert!(
        (least..=most).contains(&of_many),
        "{of_many} of {rounds} rounds, {of_one} of a round of one request"
    );
}
