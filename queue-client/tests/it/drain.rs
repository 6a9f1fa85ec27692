use std::time::Duration;

use queue_client::wire::Code;
use queue_client::{AcquireError, CallError, DrainError, Endpoint, Permit, QueueClient, Semaphore};

use crate::scripted::{Holder, client, problem};

async fn one_running() -> (QueueClient, Semaphore, Holder, Permit) {
    let (client, semaphore, mut holder) = client();
    let acquire = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire("").await }
    });
    holder.request_of(1).await.answer(holder.grant("a", "", 1));
    holder.confirm_next().await;
    (client, semaphore, holder, acquire.await.unwrap().unwrap())
}

fn drain(client: &QueueClient) -> tokio::task::JoinHandle<Result<(), DrainError>> {
    let client = client.clone();
    tokio::spawn(async move { client.drain().await })
}

#[tokio::test(start_paused = true)]
async fn drain_waits_for_what_runs_and_for_the_holder() {
    let (client, semaphore, mut holder, permit) = one_running().await;
    let waiting = tokio::spawn(async move { semaphore.acquire("").await });
    let request = holder.request_of(1).await;
    let drained = drain(&client);
    assert_eq!(waiting.await.unwrap().unwrap_err(), AcquireError::Draining);

    let cleared = holder.expect(Endpoint::Request).await;
    assert_eq!(cleared.demand(), []);
    request.answer(Err(CallError::Superseded));
    cleared.answer(holder.grant("late", "", 2));
    let unused = holder.expect(Endpoint::Sync).await;
    assert_eq!(unused.reports(), [("late", 2, 2)], "what comes too late goes back at once");
    let confirmed = holder.confirm(&unused);
    unused.answer(confirmed);
    assert!(holder.is_quiet().await && !drained.is_finished());

    drop(permit);
    let last = holder.expect(Endpoint::Sync).await;
    assert_eq!(last.reports(), [("a", 1, 1)]);
    assert!(!drained.is_finished());
    let confirmed = holder.confirm(&last);
    last.answer(confirmed);
    drained.await.unwrap().unwrap();
    assert!(holder.is_quiet().await);
    assert_eq!(client.semaphore("another").acquire("").await.unwrap_err(), AcquireError::Draining);
}

#[tokio::test(start_paused = true)]
async fn an_idle_client_is_drained_at_once() {
    let (client, semaphore, mut holder) = client();
    client.drain().await.unwrap();
    assert_eq!(semaphore.acquire("").await.unwrap_err(), AcquireError::Draining);
    assert!(semaphore.try_acquire("").is_none());
    assert!(holder.is_quiet().await);
}

#[tokio::test(start_paused = true)]
async fn a_refused_drain_can_be_tried_again() {
    let (client, _semaphore, mut holder, permit) = one_running().await;
    drop(permit);
    let drained = drain(&client);
    let report = holder.expect(Endpoint::Sync).await;
    report.answer(Err(CallError::Refused(problem(401, Code::Unauthenticated))));
    let error = drained.await.unwrap().unwrap_err();
    let DrainError::Refused { key, problem } = error else { panic!("{error}") };
    assert_eq!((key.as_str(), problem.status), ("account:42", 401));

    let drained = drain(&client);
    holder.confirm_next().await;
    drained.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_semaphore_that_nobody_refers_to_goes_on_where_it_was() {
    let (client, semaphore, mut holder, permit) = one_running().await;
    drop((semaphore, permit));
    let last = holder.expect(Endpoint::Sync).await;
    let (number, confirmed) = (last.message.call, holder.confirm(&last));
    last.answer(confirmed);
    assert!(holder.is_quiet().await);
    let semaphore = client.semaphore("account:42");
    tokio::spawn(async move { semaphore.acquire("").await.map(drop) });
    assert!(holder.request_of(1).await.message.call > number);
}

#[tokio::test(start_paused = true)]
async fn a_drain_whose_time_is_over_says_what_is_left_and_goes_on() {
    let (client, _semaphore, mut holder, permit) = one_running().await;
    let limit = Duration::from_secs(5);
    let error = client.drain_timeout(limit).await.unwrap_err();
    let DrainError::TimedOut { left, .. } = &error else { panic!("{error}") };
    assert_eq!((left[0].key.as_str(), left[0].running, left[0].unconfirmed), ("account:42", 1, 0));
    assert!(error.to_string().contains("\"account:42\": 1 permits in use"), "{error}");

    drop(permit);
    let unanswered = holder.expect(Endpoint::Sync).await;
    let error = client.drain_timeout(limit).await.unwrap_err();
    let DrainError::TimedOut { left, .. } = error else { panic!("{error}") };
    assert_eq!((left[0].running, left[0].unconfirmed, left[0].unreachable), (0, 1, false));

    unanswered.answer(Err(CallError::Unreachable("no route".into())));
    let again = holder.expect(Endpoint::Sync).await;
    let error = client.drain_timeout(limit).await.unwrap_err();
    assert!(error.to_string().contains("1 given back and not confirmed, and no holder answers"), "{error}");
    let confirmed = holder.confirm(&again);
    again.answer(confirmed);
    client.drain_timeout(limit).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_drain_of_leases_says_what_is_not_confirmed() {
    let (client, semaphore, mut holder) = client();
    let acquire = tokio::spawn(async move { semaphore.acquire("g").await });
    holder.request_of(1).await.answer(holder.lend(&[("l", "g", 10)]));
    let permit = acquire.await.unwrap().unwrap();
    let error = client.drain_timeout(Duration::from_secs(1)).await.unwrap_err();
    let DrainError::TimedOut { left, .. } = error else { panic!("{error}") };
    assert_eq!((left[0].running, left[0].unconfirmed), (1, 9));
    drop(permit);
}
