use std::time::Duration;

use queue_client::wire::Code;
use queue_client::{CallError, Endpoint, Event};

use crate::scripted::{client, problem};

#[tokio::test(start_paused = true)]
async fn an_outage_is_waited_through() {
    let (_client, semaphore, mut holder) = client();
    let acquire = tokio::spawn(async move { semaphore.acquire("").await });
    let after = Some(Duration::from_secs(7));
    let sent = tokio::time::Instant::now();
    let busy = CallError::RetryLater { after, detail: String::new() };
    holder.request_of(1).await.answer(Err(busy));
    let again = holder.request_of(1).await;
    assert!(sent.elapsed() >= Duration::from_secs(7), "as long as the holder asked for");
    again.answer(Err(CallError::Unreachable("no route".into())));
    for _ in 0..50 {
        holder.request_of(1).await.answer(Err(CallError::Unreachable("no route".into())));
    }
    holder.request_of(1).await.answer(holder.grant("a", "", 1));
    holder.expect(Endpoint::Sync).await.answer(Err(CallError::Unreachable("lost".into())));
    let claim = holder.expect(Endpoint::Sync).await;
    assert_eq!(claim.reports(), [("a", 1, 0)], "said again");
    assert!(!acquire.is_finished());
    let confirmed = holder.confirm(&claim);
    claim.answer(confirmed);
    drop(acquire.await.unwrap().unwrap());
}

/// O-14: what the other side asks for has a most.
#[tokio::test(start_paused = true)]
async fn no_wait_that_a_holder_asks_for_is_obeyed_for_long() {
    let (_client, semaphore, mut holder) = client();
    let acquire = tokio::spawn(async move { semaphore.acquire("").await });
    for seconds in [86_400, u64::MAX] {
        let sent = tokio::time::Instant::now();
        let after = Some(Duration::from_secs(seconds));
        let busy = CallError::RetryLater { after, detail: String::new() };
        holder.request_of(1).await.answer(Err(busy));
        let foreign = CallError::Foreign { after, detail: "503".to_owned() };
        holder.request_of(1).await.answer(Err(foreign));
        let again = holder.request_of(1).await;
        assert!(sent.elapsed() <= Duration::from_secs(2 * 15), "{:?}", sent.elapsed());
        again.answer(Err(CallError::Unreachable("no route".into())));
    }
    holder.request_of(1).await.answer(holder.grant("a", "", 1));
    holder.confirm_next().await;
    drop(acquire.await.unwrap().unwrap());
}

/// O-14: neither has what a 200 says.
#[tokio::test(start_paused = true)]
async fn no_time_in_a_reply_makes_a_wait_without_end() {
    let (_client, semaphore, mut holder) = client();
    let acquire = tokio::spawn(async move { semaphore.acquire("").await });
    let sent = tokio::time::Instant::now();
    let mut blocked = holder.nothing(1).unwrap();
    (blocked.next_request_in_ms, blocked.held_ms) = (u64::MAX, u64::MAX);
    blocked.report_within_ms = Some(u64::MAX);
    holder.request_of(1).await.answer(Ok(blocked));
    let again = holder.request_of(1).await;
    assert!(sent.elapsed() <= Duration::from_secs(2 * 61), "{:?}", sent.elapsed());
    again.answer(holder.grant("a", "", 1));
    holder.confirm_next().await;
    drop(acquire.await.unwrap().unwrap());
}

/// O-18: an answer that is not a holder's is waited through, and told.
#[tokio::test(start_paused = true)]
async fn a_foreign_answer_is_waited_through_and_told() {
    let (client, semaphore, mut holder) = client();
    let mut events = client.events();
    let acquire = tokio::spawn(async move { semaphore.acquire("").await });
    let foreign = || Err(CallError::Foreign { after: None, detail: "404 Not Found, text/html".to_owned() });
    holder.request_of(1).await.answer(foreign());
    let Some(Event::Unreachable { error, .. }) = events.next().await else { panic!("it is told") };
    assert!(error.contains("not one of a holder: 404"), "{error}");
    holder.request_of(1).await.answer(holder.grant("a", "", 1));
    holder.expect(Endpoint::Sync).await.answer(foreign());
    holder.confirm_next().await;
    drop(acquire.await.unwrap().unwrap());
}

/// O-10: a sync that hangs holds up no other: its repetition claims, and the late answer changes nothing.
#[tokio::test(start_paused = true)]
async fn a_claim_that_hangs_is_said_again_while_it_is_open() {
    let (client, semaphore, mut holder) = client();
    let acquire = tokio::spawn(async move { semaphore.acquire("").await });
    holder.request_of(1).await.answer(holder.grant("a", "", 1));
    let hangs = holder.expect(Endpoint::Sync).await;
    let again = holder.expect(Endpoint::Sync).await;
    assert!(!hangs.is_given_up());
    assert_eq!((hangs.reports(), again.reports()), (vec![("a", 1, 0)], vec![("a", 1, 0)]));
    let (late, confirmed) = (holder.confirm(&hangs), holder.confirm(&again));
    again.answer(confirmed);
    let permit = acquire.await.unwrap().unwrap();
    hangs.answer(late);
    drop(permit);
    let release = holder.expect(Endpoint::Sync).await;
    assert_eq!(release.reports(), [("a", 1, 1)]);
    let confirmed = holder.confirm(&release);
    release.answer(confirmed);
    client.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_reply_brought_is_delivered_again() {
    let (_client, semaphore, mut holder) = client();
    let acquire = tokio::spawn(async move { semaphore.acquire("").await });
    let lost = holder.request_of(1).await;
    let grant = holder.grant("a", "", 1);
    lost.answer(Err(CallError::Unreachable("lost".into())));
    let again = holder.request_of(1).await;
    assert_eq!(again.message.seen, 0, "the same as before");
    again.answer(grant);
    let claim = holder.expect(Endpoint::Sync).await;
    assert_eq!((claim.message.seen, claim.reports()), (1, vec![("a", 1, 0)]));
    let confirmed = holder.confirm(&claim);
    claim.answer(confirmed);
    drop(acquire.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gave_up_leaves_no_demand_behind() {
    let (client, semaphore, mut holder) = client();
    let waited = tokio::time::timeout(Duration::from_secs(1), semaphore.acquire("")).await;
    assert!(waited.is_err());
    holder.request_of(1).await.answer(Err(CallError::Unreachable("lost".into())));
    holder.request_of(0).await.answer(holder.nothing(0));
    client.drain().await.unwrap();
    assert!(holder.is_quiet().await);
}

#[tokio::test(start_paused = true)]
async fn blocked_demand_is_stated_again() {
    let (_client, semaphore, mut holder) = client();
    let acquire = tokio::spawn(async move { semaphore.acquire("").await });
    for _ in 0..3 {
        holder.request_of(1).await.answer(holder.nothing(1));
    }
    let request = holder.request_of(1).await;
    assert!(request.message.demand[0].oldest_age_ms >= 750, "its age goes on");
    request.answer(holder.grant("a", "", 1));
    holder.confirm_next().await;
    drop(acquire.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_transport_that_panics_is_an_outage() {
    struct Panics;
    impl queue_client::Transport for Panics {
        fn call<'a>(
            &'a self,
            _: &'a str,
            _: Endpoint,
            _: &'a queue_client::wire::Message,
        ) -> queue_client::Calling<'a> {
            Box::pin(async { panic!("a fault of the transport") })
        }

        fn take_over<'a>(
            &'a self,
            _: &'a str,
            _: &'a queue_client::wire::Takeover,
        ) -> queue_client::Calling<'a, queue_client::wire::TakenOver> {
            Box::pin(async { panic!("a fault of the transport") })
        }
    }
    let client = queue_client::QueueClient::builder().transport(Panics).build().unwrap();
    let semaphore = client.semaphore("k");
    assert!(tokio::time::timeout(Duration::from_secs(60), semaphore.acquire("")).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_has_lost_the_key_frees_the_ledger() {
    let (client, semaphore, mut holder) = client();
    let acquire = tokio::spawn(async move { semaphore.acquire("").await });
    holder.request_of(1).await.answer(holder.grant("a", "", 1));
    holder.confirm_next().await;
    drop(acquire.await.unwrap().unwrap());
    let gone = CallError::NotFound(problem(404, Code::SemaphoreNotFound));
    holder.expect(Endpoint::Sync).await.answer(Err(gone));
    client.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_was_released_while_all_holders_were_away_is_reported_when_one_is_back() {
    let (client, semaphore, mut holder) = client();
    let acquire = tokio::spawn(async move { semaphore.acquire_up_to("", 3).await });
    holder.request_of(3).await.answer(holder.grant("a", "", 3));
    holder.confirm_next().await;
    let mut permits = acquire.await.unwrap().unwrap();
    for released in 1..=3 {
        drop(permits.pop());
        let asked = holder.expect(Endpoint::Sync).await;
        assert_eq!(asked.reports(), [("a", 3, released)]);
        asked.answer(Err(CallError::Unreachable("no route".into())));
    }
    for _ in 0..20 {
        let away = CallError::RetryLater { after: None, detail: "503".to_owned() };
        holder.expect(Endpoint::Sync).await.answer(Err(away));
    }
    let asked = holder.expect(Endpoint::Sync).await;
    assert_eq!(asked.reports(), [("a", 3, 3)], "all of it");
    let confirmed = holder.confirm(&asked);
    asked.answer(confirmed);
    client.drain().await.unwrap();
}
