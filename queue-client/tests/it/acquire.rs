use std::time::Duration;

use queue_client::wire::{Code, Reason};
use queue_client::{AcquireError, CallError, Cause, Endpoint, Permit};

use crate::scripted::{Log, client, problem, waits};

#[tokio::test(start_paused = true)]
async fn a_permit_comes_when_its_claim_is_confirmed_and_goes_back_when_dropped() {
    let (_client, semaphore, mut holder) = client();
    let acquire = tokio::spawn(async move { semaphore.acquire("nightly").await });
    let request = holder.expect(Endpoint::Request).await;
    assert_eq!((request.key.as_str(), request.demand()), ("account:42", vec![("nightly", 1)]));
    assert_eq!(request.message.client_id, "worker");
    assert_eq!(request.message.leases, Some(vec![]), "this client can hold leases");
    request.answer(holder.grant("a", "nightly", 1));

    let claim = holder.expect(Endpoint::Sync).await;
    assert_eq!(claim.reports(), [("a", 1, 0)]);
    assert!(!acquire.is_finished());
    let confirmed = holder.confirm(&claim);
    claim.answer(confirmed);

    let permit: Permit = acquire.await.unwrap().unwrap();
    assert_eq!((permit.key(), permit.group()), ("account:42", "nightly"));
    assert!(holder.is_quiet().await);
    drop(permit);
    assert_eq!(holder.expect(Endpoint::Sync).await.reports(), [("a", 1, 1)]);
}

#[tokio::test(start_paused = true)]
async fn waiters_of_a_group_are_served_first_in_first_out() {
    let (_client, semaphore, mut holder) = client();
    let log = Log::default();
    for who in ["first", "second", "third"] {
        let (semaphore, log) = (semaphore.clone(), log.clone());
        tokio::spawn(async move {
            let permit = semaphore.acquire("").await.unwrap();
            log.add(who);
            drop(permit);
        });
        tokio::task::yield_now().await;
    }
    holder.request_of(3).await.answer(holder.grant("a", "", 1));
    holder.confirm_next().await;
    let waiting = holder.request_of(2).await;
    let released = holder.expect(Endpoint::Sync).await;
    assert_eq!(log.all(), ["first"]);
    let confirmed = holder.confirm(&released);
    released.answer(confirmed);
    waiting.answer(holder.grant("b", "", 2));
    holder.confirm_next().await;
    assert_eq!(holder.expect(Endpoint::Sync).await.reports(), [("b", 2, 2)]);
    assert_eq!(log.all(), ["first", "second", "third"]);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_gives_its_permit_to_the_next() {
    let (_client, semaphore, mut holder) = client();
    let mut leaves = Box::pin(semaphore.acquire(""));
    let mut stays = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut leaves).await && waits(&mut stays).await);
    holder.request_of(2).await.answer(holder.grant("a", "", 1));
    holder.confirm_next().await;
    assert!(holder.expect(Endpoint::Request).await.demand() == [("", 1)], "the permit is on its way");
    drop(leaves);
    let permit = stays.await.unwrap();
    assert_eq!(semaphore.try_acquire("").map(drop), None);
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_nobody_wants_any_more_goes_back_or_to_try_acquire() {
    let (_client, semaphore, mut holder) = client();
    assert!(semaphore.try_acquire("").is_none(), "states no demand");
    let mut leaves = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut leaves).await);
    holder.request_of(1).await.answer(holder.grant("a", "", 1));
    holder.confirm_next().await;
    assert!(holder.is_quiet().await);
    drop(leaves);
    let permit = semaphore.try_acquire("").unwrap();
    assert!(holder.is_quiet().await);
    drop(permit);
    assert_eq!(holder.expect(Endpoint::Sync).await.reports(), [("a", 1, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_superseded_by_one_that_says_more() {
    let (_client, semaphore, mut holder) = client();
    let mut first = Box::pin(semaphore.acquire("g"));
    assert!(waits(&mut first).await);
    let older = holder.expect(Endpoint::Request).await;
    let mut second = Box::pin(semaphore.acquire("h"));
    assert!(waits(&mut second).await);
    let newer = holder.expect(Endpoint::Request).await;
    assert_eq!(newer.demand(), [("g", 1), ("h", 1)]);
    assert!(newer.message.call > older.message.call);
    assert_eq!(newer.message.process, older.message.process);
    assert!(newer.message.demand[0].oldest_age_ms > older.message.demand[0].oldest_age_ms);

    let mut third = Box::pin(semaphore.acquire("h"));
    assert!(waits(&mut third).await);
    let newest = holder.expect(Endpoint::Request).await;
    assert_eq!(newest.demand(), [("g", 1), ("h", 2)]);
    assert!(older.is_given_up() && !newer.is_given_up(), "at most two are under way");
}

#[tokio::test(start_paused = true)]
async fn demand_goes_back_to_wait_at_once_when_the_answer_brought_other_news() {
    let (_client, semaphore, mut holder) = client();
    let mut first = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut first).await);
    holder.request_of(1).await.answer(holder.grant("a", "", 1));
    holder.confirm_next().await;
    drop(first.await.unwrap());
    let mut second = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut second).await);
    let release = holder.expect(Endpoint::Sync).await;
    let request = holder.request_of(1).await;
    assert_eq!(request.reports(), [("a", 1, 1)], "what is not confirmed is said again");
    let confirmed = holder.confirm(&request);
    request.answer(confirmed);
    let confirmed = holder.confirm(&release);
    release.answer(confirmed);

    let asked = tokio::time::Instant::now();
    let again = holder.request_of(1).await;
    assert_eq!(asked.elapsed(), Duration::ZERO);
    // Of who answers at once although there is nothing new, not too much is asked.
    again.answer(holder.nothing(1));
    holder.request_of(1).await;
    assert!(asked.elapsed() >= Duration::from_millis(250));
}

#[tokio::test(start_paused = true)]
async fn what_waiting_does_not_cure_fails_all_that_wait() {
    let (_client, semaphore, mut holder) = client();
    let (mut one, mut two) = (Box::pin(semaphore.acquire("")), Box::pin(semaphore.acquire("g")));
    assert!(waits(&mut one).await && waits(&mut two).await);
    let refusal = CallError::NotFound(problem(404, Code::SemaphoreNotFound));
    holder.request_of(2).await.answer(Err(refusal));
    let error = one.await.unwrap_err();
    assert_eq!(error, AcquireError::SemaphoreNotFound { key: "account:42".to_owned() });
    assert_eq!(two.await.unwrap_err(), error);

    let mut later = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut later).await);
    holder.request_of(1).await.answer(Err(CallError::Refused(problem(403, Code::Forbidden))));
    assert!(matches!(later.await.unwrap_err(), AcquireError::Refused(problem) if problem.status == 403));

    let mut fenced = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut fenced).await);
    holder.request_of(1).await.answer(Err(CallError::Fenced { generation: Some(1) }));
    let error = fenced.await.unwrap_err();
    assert_eq!(error, AcquireError::Fenced { generation: Some(1) });
    assert_eq!(semaphore.acquire("").await.unwrap_err(), error, "for good");
}

#[tokio::test(start_paused = true)]
async fn names_are_checked_here() {
    let (client, semaphore, mut holder) = client();
    let error = semaphore.acquire(&"g".repeat(257)).await.unwrap_err();
    assert!(error.to_string().contains("group must be 0 to 256 bytes"), "{error}");
    let error = client.semaphore("").acquire("").await.unwrap_err();
    assert!(error.to_string().contains("key must be 1 to 512 bytes"), "{error}");
    assert!(holder.is_quiet().await);
}

#[test]
fn a_permit_may_go_anywhere() {
    fn sendable<T: Send + Sync + 'static>() {}
    sendable::<Permit>();
}

#[tokio::test(start_paused = true)]
async fn an_acquire_whose_time_is_over_says_why_it_waited() {
    let (_client, semaphore, mut holder) = client();
    let limit = Duration::from_secs(3);
    let acquire = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire_timeout("", limit).await }
    });
    holder.request_of(1).await.answer(holder.nothing(1));
    let error = acquire.await.unwrap().unwrap_err();
    assert_eq!(error, AcquireError::TimedOut { cause: Some(Cause::Refused(Reason::Limit)) });
    assert!(error.to_string().contains("the shared limit is reached"), "{error}");
    holder.request_of(0).await.answer(holder.nothing(0));
    assert!(semaphore.blocked().is_empty() && holder.is_quiet().await, "its place is given up");
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_is_served_in_time_gets_its_permit() {
    let (_client, semaphore, mut holder) = client();
    let acquire = tokio::spawn(async move { semaphore.acquire_timeout("", Duration::from_secs(3)).await });
    holder.request_of(1).await.answer(holder.grant("a", "", 1));
    holder.confirm_next().await;
    drop(acquire.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_poller_gets_what_there_is_as_soon_as_there_is_one() {
    let (_client, semaphore, mut holder) = client();
    let mut polled = Box::pin(semaphore.acquire_up_to("", 5));
    assert!(waits(&mut polled).await);
    holder.request_of(5).await.answer(holder.grant("a", "", 3));
    holder.confirm_next().await;
    let more = holder.request_of(2).await;
    let permits = polled.await.unwrap();
    assert_eq!(permits.len(), 3);
    let cleared = holder.request_of(0).await;
    more.answer(Err(CallError::Superseded));
    cleared.answer(holder.nothing(0));
    drop(permits);
    assert_eq!(holder.expect(Endpoint::Sync).await.reports(), [("a", 3, 3)]);
}

#[tokio::test(start_paused = true)]
async fn a_poller_takes_no_more_than_it_wants_and_nobodys_turn() {
    let (_client, semaphore, mut holder) = client();
    assert_eq!(semaphore.acquire_up_to("", 0).await.unwrap().len(), 0);
    assert!(holder.is_quiet().await);
    let mut before = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut before).await);
    let mut polled = Box::pin(semaphore.acquire_up_to("", 2));
    assert!(waits(&mut polled).await);
    let mut after = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut after).await);
    holder.request_of(4).await.answer(holder.grant("a", "", 4));
    holder.confirm_next().await;
    let _permits = (before.await.unwrap(), after.await.unwrap());
    assert_eq!(polled.await.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_poller_draws_what_a_lease_has() {
    let (_client, semaphore, mut holder) = client();
    let first = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire_up_to("g", 2).await }
    });
    holder.request_of(2).await.answer(holder.lend(&[("l", "g", 6)]));
    let first = first.await.unwrap().unwrap();
    let rest = semaphore.acquire_up_to("g", 10).await.unwrap();
    assert_eq!((first.len(), rest.len()), (2, 4), "without waiting for more");
}

#[tokio::test(start_paused = true)]
async fn a_poller_hears_what_waiting_does_not_cure() {
    let (_client, semaphore, mut holder) = client();
    let mut polled = Box::pin(semaphore.acquire_up_to("", 5));
    assert!(waits(&mut polled).await);
    let refusal = CallError::NotFound(problem(404, Code::SemaphoreNotFound));
    holder.request_of(5).await.answer(Err(refusal));
    assert!(matches!(polled.await.unwrap_err(), AcquireError::SemaphoreNotFound { .. }));
}

#[test]
fn errors_are_small() {
    assert!(size_of::<AcquireError>() <= 48, "{}", size_of::<AcquireError>());
}
