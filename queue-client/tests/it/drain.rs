use queue_client::wire::Code;
use queue_client::{AcquireError, CallError, Endpoint, Permit, QueueClient, Semaphore};

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

fn drain(client: &QueueClient) -> tokio::task::JoinHandle<Result<(), queue_client::DrainError>> {
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
    assert_eq!((error.key.as_str(), error.problem.status), ("account:42", 401));

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
