//! What listeners hear.

use std::time::Duration;

use queue_client::wire::{Code, Reason, Reply, Status};
use queue_client::{CallError, Endpoint, Event, Events};
use tokio::time::advance;

use crate::scripted::{client, lease, problem, waits};

async fn next(events: &mut Events) -> Event {
    let hang = Duration::from_secs(24 * 3600);
    tokio::time::timeout(hang, events.next()).await.expect("an event").expect("not the end")
}

#[tokio::test(start_paused = true)]
async fn grants_reasons_and_outages_are_told() {
    let (client, semaphore, mut holder) = client();
    let mut events = client.events();
    let mut acquire = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut acquire).await);
    let key = || "account:42".into();

    holder.request_of(1).await.answer(Err(CallError::Unreachable("no route".into())));
    let Event::Unreachable { error, retry_in, .. } = next(&mut events).await else { panic!("an outage") };
    assert!(error.contains("no route") && retry_in > Duration::ZERO, "{error} {retry_in:?}");

    holder.request_of(1).await.answer(holder.nothing(1));
    assert!(matches!(next(&mut events).await, Event::Reachable { after, .. } if after >= retry_in));
    let blocked = Event::Blocked { key: key(), group: String::new(), count: 1, reason: Reason::Limit };
    assert_eq!(next(&mut events).await, blocked);
    holder.confirm_next().await; // after an outage all is said that is held
    holder.request_of(1).await.answer(holder.nothing(1)); // the same again is no event

    holder.request_of(1).await.answer(holder.grant("a", "", 1));
    assert_eq!(next(&mut events).await, Event::Granted { key: key(), group: String::new(), permits: 1 });
    holder.confirm_next().await;
    let permit = acquire.await.unwrap();

    let mut fenced = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut fenced).await);
    holder.request_of(1).await.answer(Err(CallError::Fenced { generation: Some(9) }));
    assert_eq!(next(&mut events).await, Event::Fenced { key: key(), generation: Some(9) });
    assert!(fenced.await.is_err() && !permit.is_counted());

    drop((permit, semaphore, client));
    assert_eq!(events.next().await, None, "the client is gone");
}

#[tokio::test(start_paused = true)]
async fn leases_are_told_from_their_begin_to_their_end() {
    let (client, semaphore, mut holder) = client();
    let mut events = client.events();
    let mut acquire = Box::pin(semaphore.acquire("g"));
    assert!(waits(&mut acquire).await);
    let lent = holder.lend(&[("l", "g", 4)]);
    holder.request_of(1).await.answer(lent);
    let (key, group) = (|| "account:42".into(), || "g".to_owned());
    assert_eq!(next(&mut events).await, Event::Leased { key: key(), group: group(), permits: 4 });
    let permit = acquire.await.unwrap();

    let parked = holder.parked().await;
    let contended =
        Reply { contended_groups: vec!["h".to_owned()], contended: false, ..holder.hear(&parked) };
    parked.answer(Ok(contended));
    let told = Event::Contended { key: key(), contended: false, groups: vec!["h".to_owned()] };
    assert_eq!(next(&mut events).await, told);

    let parked = holder.parked().await;
    let retired = Reply { leases: vec![lease("l", Status::Retired)], ..holder.hear(&parked) };
    parked.answer(Ok(Reply { contended_groups: vec!["h".to_owned()], ..retired }));
    assert_eq!(next(&mut events).await, Event::LeaseRetired { key: key(), group: group(), undrawn: 3 });

    let stopped = holder.plain().await;
    let settled = Reply { leases: vec![lease("l", Status::Settled)], ..holder.hear(&stopped) };
    stopped.answer(Ok(Reply { contended_groups: vec!["h".to_owned()], ..settled }));
    assert_eq!(next(&mut events).await, Event::Uncounted { key: key(), items: 1 });
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn items_on_a_key_that_the_holder_has_lost_are_told() {
    let (client, semaphore, mut holder) = client();
    let mut events = client.events();
    let acquire = tokio::spawn(async move { semaphore.acquire_up_to("", 3).await });
    holder.request_of(3).await.answer(holder.grant("a", "", 3));
    holder.confirm_next().await;
    let mut permits = acquire.await.unwrap().unwrap();
    assert!(matches!(next(&mut events).await, Event::Granted { .. }));
    drop(permits.pop());
    let gone = CallError::NotFound(problem(404, Code::SemaphoreNotFound));
    holder.expect(Endpoint::Sync).await.answer(Err(gone));
    assert_eq!(next(&mut events).await, Event::Uncounted { key: "account:42".into(), items: 2 });
    assert!(permits.iter().all(|permit| !permit.is_counted()));
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_is_late_is_told() {
    let (client, semaphore, mut holder) = client();
    let mut events = client.events();
    let mut acquire = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut acquire).await);
    holder.request_of(1).await.answer(holder.grant("a", "", 1));
    let claim = holder.expect(Endpoint::Sync).await;
    let told = Reply { report_within_ms: Some(1_000), ..holder.confirm(&claim).unwrap() };
    claim.answer(Ok(told));
    let _permit = acquire.await.unwrap();
    assert!(matches!(next(&mut events).await, Event::Granted { .. }));

    // In time, it is no event.
    let beat = holder.expect(Endpoint::Sync).await;
    let told = Reply { report_within_ms: Some(1_000), ..holder.confirm(&beat).unwrap() };
    beat.answer(Ok(told));
    assert!(holder.is_quiet().await);
    assert!(waits(&mut Box::pin(events.next())).await);

    advance(Duration::from_secs(5)).await; // as if nothing had run meanwhile
    let Event::HeartbeatLate { late_by, .. } = next(&mut events).await else { panic!("a late heartbeat") };
    assert!(late_by >= Duration::from_secs(3), "{late_by:?}");
    holder.expect(Endpoint::Sync).await;
}
