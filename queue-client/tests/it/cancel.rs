//! Each async function may be dropped wherever it waits: nothing is lost by it.

use std::pin::Pin;
use std::time::Duration;

use queue_client::wire::TakenOver;
use queue_client::{AcquireError, CallError, Endpoint, Permit, QueueClient, Semaphore};

use crate::scripted::{Asked, Holder, client, waits};

type Acquiring = Pin<Box<dyn Future<Output = Result<usize, AcquireError>>>>;

/// The functions that wait for a permit; the number is that of the demand that they state.
fn ways(semaphore: &Semaphore) -> Vec<(u64, Acquiring)> {
    let (one, two, three) = (semaphore.clone(), semaphore.clone(), semaphore.clone());
    let limit = Duration::from_secs(24 * 3600);
    let first: Acquiring = Box::pin(async move { one.acquire("").await.map(drop).map(|()| 1) });
    let second: Acquiring =
        Box::pin(async move { two.acquire_timeout("", limit).await.map(drop).map(|()| 1) });
    let third: Acquiring =
        Box::pin(async move { three.acquire_up_to("", 3).await.map(|permits| permits.len()) });
    vec![(1, first), (1, second), (3, third)]
}

/// Everything that is granted comes back, whatever else is said.
async fn gets_back(holder: &mut Holder, block: &str, permits: u64) -> Asked {
    loop {
        let asked = holder.next().await;
        if asked.reports().contains(&(block, permits, permits)) {
            return asked;
        }
        let answer = match asked.endpoint {
            Endpoint::Request => holder.nothing(0),
            Endpoint::Sync => holder.confirm(&asked),
        };
        asked.answer(answer);
    }
}

async fn drained(client: &QueueClient, holder: &mut Holder, asked: Asked) {
    let confirmed = holder.confirm(&asked);
    asked.answer(confirmed);
    client.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_is_dropped_before_an_answer_takes_its_demand_back() {
    for way in 0..3 {
        let (_client, semaphore, mut holder) = client();
        let (demand, mut acquiring) = ways(&semaphore).remove(way);
        assert!(waits(&mut acquiring).await);
        let asked = holder.request_of(demand).await;
        drop(acquiring);
        let taken_back = holder.request_of(0).await;
        asked.answer(Err(CallError::Superseded));
        taken_back.answer(holder.nothing(0));
        assert!(holder.is_quiet().await, "way {way}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_is_dropped_with_the_claim_under_way_gives_back_what_is_confirmed() {
    for way in 0..3 {
        let (client, semaphore, mut holder) = client();
        let (demand, mut acquiring) = ways(&semaphore).remove(way);
        assert!(waits(&mut acquiring).await);
        holder.request_of(demand).await.answer(holder.grant("a", "", demand));
        let claim = holder.expect(Endpoint::Sync).await;
        drop(acquiring);
        let confirmed = holder.confirm(&claim);
        claim.answer(confirmed);
        let asked = gets_back(&mut holder, "a", demand).await;
        drained(&client, &mut holder, asked).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_is_dropped_with_its_permit_on_the_way_gives_it_back() {
    for way in 0..3 {
        let (client, semaphore, mut holder) = client();
        let (demand, mut acquiring) = ways(&semaphore).remove(way);
        assert!(waits(&mut acquiring).await);
        holder.request_of(demand).await.answer(holder.grant("a", "", demand));
        holder.confirm_next().await;
        assert!(holder.is_quiet().await, "the permits are handed out");
        drop(acquiring);
        let asked = gets_back(&mut holder, "a", demand).await;
        drained(&client, &mut holder, asked).await;
    }
}

/// A client with a permit in use.
async fn one_running() -> (QueueClient, Semaphore, Holder, Permit) {
    let (client, semaphore, mut holder) = client();
    let mut acquire = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut acquire).await);
    holder.request_of(1).await.answer(holder.grant("a", "", 1));
    holder.confirm_next().await;
    let permit = acquire.await.unwrap();
    (client, semaphore, holder, permit)
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_is_dropped_goes_on() {
    let (client, semaphore, mut holder, permit) = one_running().await;
    let mut drain = Box::pin(client.drain());
    assert!(waits(&mut drain).await);
    drop(drain);
    let mut within = Box::pin(client.drain_timeout(Duration::from_secs(3600)));
    assert!(waits(&mut within).await);
    drop(within);
    assert_eq!(semaphore.acquire("").await.unwrap_err(), AcquireError::Draining);
    drop(permit);
    holder.confirm_next().await;
    client.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_end_of_a_permits_count_can_be_dropped() {
    let (_client, semaphore, mut holder, permit) = one_running().await;
    let mut uncounted = Box::pin(permit.uncounted());
    assert!(waits(&mut uncounted).await);
    drop(uncounted);
    let mut uncounted = Box::pin(permit.uncounted());
    assert!(waits(&mut uncounted).await);
    let mut fenced = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut fenced).await);
    holder.request_of(1).await.answer(Err(CallError::Fenced { generation: None }));
    uncounted.await;
}

#[tokio::test(start_paused = true)]
async fn a_takeover_that_is_dropped_can_be_made_again() {
    let (client, _semaphore, mut holder) = client();
    let mut taking = Box::pin(client.take_over());
    assert!(waits(&mut taking).await);
    let asked = holder.takeover().await;
    drop(taking);
    asked.answer(Ok(TakenOver::default()));
    let mut taking = Box::pin(client.take_over());
    assert!(waits(&mut taking).await);
    holder.takeover().await.answer(Ok(TakenOver::default()));
    taking.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_a_panic_or_an_abort_drops_is_reported() {
    for panics in [true, false] {
        let (client, _semaphore, mut holder, permit) = one_running().await;
        let item = tokio::spawn(async move {
            let _permit = permit;
            if panics {
                panic!("the item fails");
            }
            std::future::pending::<()>().await;
        });
        if !panics {
            assert!(holder.is_quiet().await, "it runs");
            item.abort();
        }
        assert!(item.await.is_err());
        let asked = gets_back(&mut holder, "a", 1).await;
        drained(&client, &mut holder, asked).await;
    }
}
