//! Much at once: what waits takes bounded memory, and messages keep to the protocol's limits.

use std::collections::BTreeSet;

use queue_client::wire::{DEMAND_MAX, GrantVerdict, REPORTS_MAX, Reply, Status};
use queue_client::{CallError, Endpoint, Permit};

use crate::scripted::{client, waits};

/// More than a waiter is known to take: its future, its place, its name in the ledger.
const BYTES_PER_WAITER: u64 = 2_048;

#[tokio::test(start_paused = true)]
async fn ten_thousand_that_wait_take_bounded_memory() {
    const WAITERS: usize = 10_000;
    let (_client, semaphore, mut holder) = client();
    let group = semaphore.group("nightly");
    let mut waiting: Vec<_> = Vec::with_capacity(WAITERS);
    let taken = allocation_counter::measure(|| {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..WAITERS {
            let mut acquire = Box::pin(group.acquire());
            assert!(acquire.as_mut().poll(&mut context).is_pending());
            waiting.push(acquire);
        }
    });
    assert!(taken.bytes_max < WAITERS as u64 * BYTES_PER_WAITER, "{taken:?}");
    let request = holder.request_of(WAITERS as u64).await;
    assert_eq!(request.message.demand.len(), 1, "they are one line of a message");
    drop(waiting);
    let cleared = holder.request_of(0).await;
    request.answer(Err(CallError::Superseded));
    cleared.answer(holder.nothing(0));
    assert!(holder.is_quiet().await, "and leave nothing behind");
}

#[tokio::test(start_paused = true)]
async fn reports_beyond_the_limit_of_a_message_are_split() {
    const GRANTS: usize = REPORTS_MAX + 5;
    let (client, semaphore, mut holder) = client();
    let acquire = tokio::spawn(async move { semaphore.acquire_up_to("", GRANTS).await });
    let grants = (0..GRANTS).map(|number| GrantVerdict {
        id: format!("{number:05}"),
        status: Status::Active,
        round: Some(1),
        group: Some(String::new()),
        permits: Some(1),
        claimed: Some(1),
        released: Some(0),
        claim_within_ms: Some(10_000),
    });
    let reply = Reply { v: 1, round: 1, grants: grants.collect(), ..Reply::default() };
    holder.request_of(GRANTS as u64).await.answer(Ok(reply));
    let permits: Vec<Permit> = acquire.await.unwrap().unwrap();
    assert_eq!(permits.len(), GRANTS);

    drop(permits);
    let mut released = BTreeSet::new();
    while released.len() < GRANTS {
        let asked = holder.expect(Endpoint::Sync).await;
        assert!(asked.reports().len() <= REPORTS_MAX);
        released.extend(asked.reports().iter().map(|(id, ..)| (*id).to_owned()));
        let confirmed = holder.confirm(&asked);
        asked.answer(confirmed);
    }
    client.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn demand_beyond_the_limit_of_a_message_has_its_turn() {
    const GROUPS: usize = 2 * DEMAND_MAX + 7;
    let (_client, semaphore, mut holder) = client();
    let mut waiting: Vec<_> = Vec::new();
    for number in 0..GROUPS {
        let group = semaphore.group(&format!("{number:05}"));
        let mut acquire = Box::pin(async move { group.acquire().await });
        assert!(waits(&mut acquire).await);
        waiting.push(acquire);
    }
    let mut stated = BTreeSet::new();
    while stated.len() < GROUPS {
        let asked = holder.expect(Endpoint::Request).await;
        assert!(asked.message.demand.len() <= DEMAND_MAX);
        assert_eq!(asked.message.wait_ms, 0, "the others wait for their turn");
        stated.extend(asked.demand().iter().map(|(group, _)| (*group).to_owned()));
        asked.answer(holder.nothing(1));
    }
    // The oldest waits for nobody.
    let oldest = loop {
        let asked = holder.expect(Endpoint::Request).await;
        if asked.demand().contains(&("00000", 1)) {
            break asked;
        }
        asked.answer(holder.nothing(1));
    };
    oldest.answer(holder.grant("a", "00000", 1));
    while waits(&mut waiting[0]).await {
        let asked = holder.next().await;
        let answer = match asked.endpoint {
            Endpoint::Sync => holder.confirm(&asked),
            Endpoint::Request => holder.nothing(1),
        };
        asked.answer(answer);
        holder.rests().await;
    }
}
