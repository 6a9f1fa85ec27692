//! Processes that follow each other under one `client_id`, and permits that outlive them.

use std::time::Duration;

use queue_client::wire::{
    Code, FencedKey, GrantVerdict, LeaseVerdict, Reply, Status, TakenOver, TakenOverKey,
};
use queue_client::{AcquireError, BuildError, CallError, DetachedPermit, Endpoint, Permit, QueueClient};

use crate::scripted::{Holder, client, client_of, lease, problem};

const KEY: &str = "account:42";

fn worker(generation: u64) -> queue_client::Builder {
    QueueClient::builder().client_id("worker").generation(generation)
}

fn fenced(generation: u64) -> CallError {
    CallError::Fenced { generation: Some(generation) }
}

/// A client with one item that runs on a permit of grant `a`.
async fn one_running(builder: queue_client::Builder) -> (QueueClient, Holder, Permit) {
    let (client, mut holder) = client_of(builder);
    let semaphore = client.semaphore(KEY);
    let acquire = tokio::spawn(async move { semaphore.acquire("g").await });
    holder.request_of(1).await.answer(holder.grant("a", "g", 1));
    holder.confirm_next().await;
    (client, holder, acquire.await.unwrap().unwrap())
}

/// What the first call of a successor is told of a grant of an earlier process.
fn left(id: &str, permits: u64) -> Result<Reply, CallError> {
    let grant = GrantVerdict {
        id: id.to_owned(),
        status: Status::Active,
        round: Some(1),
        group: Some("g".to_owned()),
        permits: Some(permits),
        claimed: Some(permits),
        released: Some(0),
        claim_within_ms: Some(0),
    };
    Ok(Reply { v: 1, round: 5, grants: vec![grant], ..Reply::default() })
}

#[tokio::test(start_paused = true)]
async fn every_message_says_which_start_it_is() {
    let (_client, mut holder, permit) = one_running(worker(7)).await;
    drop(permit);
    let release = holder.expect(Endpoint::Sync).await.message;
    assert_eq!((release.generation, release.process.map(|process| process.len())), (7, Some(32)));

    let (_client, semaphore, mut holder) = client();
    tokio::spawn(async move { semaphore.acquire("").await.map(drop) });
    let first = holder.request_of(1).await.message;
    let year_2020_in_ms = 1_577_836_800_000;
    assert!(first.generation > year_2020_in_ms && !first.resume, "the time of its start");
}

#[tokio::test(start_paused = true)]
async fn a_start_whose_clock_is_behind_takes_the_generation_that_it_is_told_once_for_all_keys() {
    let (client, mut holder) = client_of(worker(7));
    let semaphores = [client.semaphore("k1"), client.semaphore("k2")];
    let [one, two] = semaphores.map(|semaphore| tokio::spawn(async move { semaphore.acquire("").await }));
    let (first, second) = (holder.request_of(1).await, holder.request_of(1).await);
    first.answer(Err(fenced(20)));
    let again = holder.request_of(1).await;
    assert_eq!(again.message.generation, 20);
    // An answer of before: what it brought is settled by the generation that has risen.
    let (key, late) = (second.key.clone(), holder.grant("late", "", 1));
    second.answer(late);
    let other = holder.request_of(1).await;
    assert_eq!((other.key, other.message.generation), (key, 20));
    again.answer(Err(fenced(30)));
    let shut_out = one.await.unwrap().unwrap_err();
    assert_eq!(shut_out, AcquireError::Fenced { generation: Some(30) }, "once");
    assert!(shut_out.to_string().contains("at least 30"), "{shut_out}");
    assert!(!two.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_process_that_a_successor_took_over_from_is_told() {
    let (client, mut holder, permit) = one_running(worker(7)).await;
    assert!(permit.is_counted());
    let semaphore = client.semaphore(KEY);
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire("g").await }
    });
    let watched = tokio::spawn(async move {
        permit.uncounted().await;
        permit
    });
    holder.request_of(1).await.answer(Err(fenced(9)));
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error, AcquireError::Fenced { generation: Some(9) });
    assert_eq!(semaphore.acquire("g").await.unwrap_err(), error);
    let permit = watched.await.unwrap();
    assert!(!permit.is_counted() && semaphore.try_acquire("g").is_none());

    let drained = tokio::spawn(async move { client.drain().await });
    assert!(holder.is_quiet().await && !drained.is_finished(), "what runs may end");
    drop(permit);
    drained.await.unwrap().unwrap();
    assert!(holder.is_quiet().await, "nothing more is said");
}

#[tokio::test(start_paused = true)]
async fn one_key_that_is_fenced_leaves_the_others_alone() {
    let (client, mut holder, permit) = one_running(worker(7)).await;
    let other = client.semaphore("other");
    let acquire = tokio::spawn(async move { other.acquire("").await });
    holder.request_of(1).await.answer(Err(fenced(9)));
    assert!(matches!(acquire.await.unwrap(), Err(AcquireError::Fenced { .. })));
    assert!(permit.is_counted());
    drop(permit);
    assert_eq!(holder.expect_of(KEY, Endpoint::Sync).await.reports(), [("a", 1, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_detached_permit_is_released_when_it_was_resumed_and_dropped() {
    let (client, mut holder, permit) = one_running(worker(7)).await;
    let detached = permit.detach();
    assert_eq!((detached.key(), detached.group(), detached.client_id()), (KEY, "g", "worker"));
    assert!(holder.is_quiet().await);
    client.drain().await.unwrap();
    let heartbeat = holder.expect(Endpoint::Sync).await;
    assert_eq!(heartbeat.reports(), [("a", 1, 0)], "it counts, and its client is heard");
    let confirmed = holder.confirm(&heartbeat);
    heartbeat.answer(confirmed);
    let permit = client.resume(&detached).unwrap();
    assert!(permit.is_counted() && permit.group() == "g");
    let error = client.resume(&detached).unwrap_err();
    assert!(error.to_string().contains("resumed before"), "{error}");
    drop(permit);
    holder.confirm_next().await;
    client.drain().await.unwrap();
}

/// As an application stores it, in the process before.
async fn stored() -> String {
    let (_client, _holder, permit) = one_running(worker(7)).await;
    serde_json::to_string(&permit.detach()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_what_was_declared_stays_and_the_rest_goes_back() {
    let detached: DetachedPermit = serde_json::from_str(&stored().await).unwrap();
    let (client, mut holder) = client_of(worker(8).resume([detached.clone()]));
    let first = holder.expect_of(KEY, Endpoint::Sync).await;
    assert!(first.message.resume && first.message.generation == 8 && first.message.seen == 0);
    let permit = client.resume(&detached).unwrap();
    assert!(permit.is_counted(), "as far as is known");
    first.answer(left("a", 3));
    let release = holder.expect(Endpoint::Sync).await;
    assert_eq!(release.reports(), [("a", 3, 2)], "one of three runs");
    release.answer(left("a", 3));
    drop(permit);
    let last = loop {
        let asked = holder.expect(Endpoint::Sync).await;
        if asked.reports() == [("a", 3, 3)] {
            break asked;
        }
    };
    let confirmed = holder.confirm(&last);
    last.answer(confirmed);
    client.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_an_earlier_process_is_stopped_with_what_was_declared() {
    let detached: DetachedPermit = serde_json::from_str(&stored().await).unwrap();
    let (client, mut holder) = client_of(worker(8).resume([detached.clone()]));
    let first = holder.expect_of(KEY, Endpoint::Sync).await;
    let retired = LeaseVerdict {
        round: Some(1),
        group: Some("g".to_owned()),
        permits: Some(9),
        drawn: Some(0),
        released: Some(0),
        ttl_ms: Some(0),
        ..lease("a", Status::Retired)
    };
    first.answer(Ok(Reply { v: 1, round: 5, leases: vec![retired], ..Reply::default() }));
    let stop = holder.plain().await;
    assert_eq!(stop.leases(), [("a", 1, 0, true)]);
    assert!(client.semaphore(KEY).try_acquire("g").is_none());
    let heard = holder.hear(&stop);
    stop.answer(Ok(heard));
    drop(client.resume(&detached).unwrap());
    let last = holder.plain().await;
    assert_eq!(last.leases(), [("a", 1, 1, true)]);
    let heard = holder.hear(&last);
    last.answer(Ok(heard));
    client.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_declared_permit_that_is_not_counted_says_so() {
    let detached: DetachedPermit = serde_json::from_str(&stored().await).unwrap();
    let (client, mut holder) = client_of(worker(8).resume([detached.clone()]));
    let permit = client.resume(&detached).unwrap();
    let watched = tokio::spawn(async move {
        permit.uncounted().await;
        assert!(!permit.is_counted());
    });
    holder.expect_of(KEY, Endpoint::Sync).await.answer(holder.nothing(0));
    watched.await.unwrap();
    client.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_successor_takes_over_on_keys_that_it_does_not_use() {
    let (client, mut holder) = client_of(worker(8).resume([]));
    let asked = holder.takeover().await;
    assert_eq!((asked.client_id.as_str(), asked.takeover.generation), ("worker", 8));
    assert!(asked.takeover.resume);
    asked.answer(Err(CallError::Unreachable("no route".into())));
    let asked = holder.takeover().await;
    let key = TakenOverKey { key: "unused".to_owned(), grants: 1, leases: 0 };
    asked.answer(Ok(TakenOver { v: 1, keys: vec![key], fenced: vec![] }));
    holder.expect_of("unused", Endpoint::Sync).await.answer(left("z", 1));
    let release = holder.expect_of("unused", Endpoint::Sync).await;
    assert_eq!(release.reports(), [("z", 1, 1)]);
    let confirmed = holder.confirm(&release);
    release.answer(confirmed);
    assert!(holder.is_quiet().await);
    client.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_takeover_says_where_it_is_shut_out() {
    let (client, mut holder) = client_of(worker(8));
    let shut_out =
        || TakenOver { v: 1, keys: vec![], fenced: vec![FencedKey { key: KEY.to_owned(), generation: 12 }] };
    let taking = tokio::spawn({
        let client = client.clone();
        async move { client.take_over().await }
    });
    holder.takeover().await.answer(Ok(shut_out()));
    let again = holder.takeover().await;
    assert_eq!((again.takeover.generation, again.takeover.resume), (12, false), "nothing was accepted yet");
    again.answer(Ok(TakenOver {
        fenced: vec![FencedKey { key: KEY.to_owned(), generation: 13 }],
        ..shut_out()
    }));
    assert_eq!(taking.await.unwrap().unwrap().fenced[0].generation, 13);

    let taking = tokio::spawn(async move { client.take_over().await });
    holder.takeover().await.answer(Err(CallError::Refused(problem(403, Code::Forbidden))));
    assert!(taking.await.unwrap().unwrap_err().to_string().contains("403"));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_resumed_is_refused() {
    let detached: DetachedPermit = serde_json::from_str(&stored().await).unwrap();
    let url = "http://127.0.0.1:1";
    let other = QueueClient::builder().client_id("other").url(url).resume([detached]).build().unwrap_err();
    assert!(matches!(&other, BuildError::ForeignPermit { of } if of == "worker"), "{other}");
    let zero = QueueClient::builder().url(url).generation(0).build().unwrap_err();
    assert!(matches!(zero, BuildError::InvalidGeneration(0)));
}

#[test]
fn a_client_that_resumes_needs_a_runtime() {
    let resumed = QueueClient::builder().url("http://127.0.0.1:1").resume([]).build();
    assert!(matches!(resumed, Err(BuildError::NoRuntime)));
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_at_the_holder() {
    let (_client, semaphore, mut holder) = client();
    let waiting = tokio::spawn(async move { semaphore.acquire("").await });
    let request = holder.request_of(1).await;
    let wait = Duration::from_millis(request.message.wait_ms);
    assert!(wait >= Duration::from_secs(20), "{wait:?}");
    tokio::time::advance(wait).await;
    let over = tokio::time::Instant::now();
    request.answer(holder.nothing(1));
    let again = holder.request_of(1).await;
    assert!(over.elapsed() < Duration::from_millis(100), "at once, so that it is never out of the queue");
    again.answer(holder.nothing(1));
    let early = tokio::time::Instant::now();
    let again = holder.request_of(1).await;
    assert!(early.elapsed() >= Duration::from_millis(250), "a holder that doesn't keep it is not flooded");
    again.answer(holder.grant("a", "", 1));
    holder.confirm_next().await;
    drop(waiting.await.unwrap().unwrap());
}
