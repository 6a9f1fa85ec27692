use std::time::Duration;

use queue_client::wire::{Reply, Status};
use queue_client::{CallError, Group, Permit, QueueClient};
use tokio::time::{Instant, advance};

use crate::scripted::{Asked, Holder, TTL_MS, client, lease};

/// The groups `g` and `h` with a lease each of which one permit is in use, and the sync that is parked for them.
async fn lent(permits: u64) -> (QueueClient, [Group; 2], [Permit; 2], Holder, Asked) {
    let (client, semaphore, mut holder) = client();
    let groups = [semaphore.group("g"), semaphore.group("h")];
    let waiting = groups.clone().map(|group| tokio::spawn(async move { group.acquire().await }));
    holder.request_of(2).await.answer(holder.lend(&[("a", "g", permits), ("b", "h", permits)]));
    let [one, two] = waiting;
    let held = [one.await.unwrap().unwrap(), two.await.unwrap().unwrap()];
    let parked = holder.parked().await;
    assert_eq!(parked.leases(), [("a", 1, 0, false), ("b", 1, 0, false)]);
    (client, groups, held, holder, parked)
}

fn lost() -> Result<Reply, CallError> {
    Err(CallError::Unreachable("lost".into()))
}

#[tokio::test(start_paused = true)]
async fn permits_of_a_lease_are_given_without_a_word() {
    let (_client, [group, _], _held, mut holder, _parked) = lent(40).await;
    for _ in 0..20 {
        let permit = group.acquire().await.unwrap();
        assert_eq!((permit.key(), permit.group(), group.name()), ("account:42", "g", "g"));
    }
    let rest: Vec<_> = std::iter::from_fn(|| group.try_acquire()).collect();
    assert_eq!(rest.len(), 19, "none is given twice");
    assert!(holder.is_quiet().await);
    let next = tokio::spawn(async move { group.acquire().await.map(drop) });
    let request = holder.request_of(1).await;
    assert_eq!(request.leases(), [("a", 40, 20, false), ("b", 1, 0, false)]);
    request.answer(holder.lend(&[("c", "g", 1)]));
    next.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_kept_by_reports_at_half_its_ttl() {
    let (_client, [group, _], _held, mut holder, _parked) = lent(9).await;
    let mut sent = Instant::now();
    for _ in 0..5 {
        let beat = holder.plain().await;
        assert_eq!(beat.leases(), [("a", 1, 0, false), ("b", 1, 0, false)], "both in one");
        assert!(sent.elapsed() <= Duration::from_millis(TTL_MS / 2 + 10), "{:?}", sent.elapsed());
        sent = Instant::now();
        let heard = holder.hear(&beat);
        beat.answer(Ok(heard));
    }
    assert!(group.try_acquire().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_report_that_gets_no_answer_is_made_again_well_before_the_ttl() {
    let (_client, [group, _], _held, mut holder, _parked) = lent(9).await;
    let mut acknowledged = Instant::now();
    for _ in 0..4 {
        let stuck = holder.plain().await;
        let beat = holder.plain().await;
        let gap = acknowledged.elapsed();
        assert!(gap <= Duration::from_millis(TTL_MS * 3 / 4), "{gap:?}");
        let heard = holder.hear(&beat);
        beat.answer(Ok(heard));
        stuck.answer(lost());
        let again = holder.plain().await;
        acknowledged = Instant::now();
        let heard = holder.hear(&again);
        again.answer(Ok(heard));
        assert!(holder.is_quiet().await, "one call after the lost one is enough");
    }
    assert!(group.try_acquire().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_is_away_is_not_left_alone_until_the_lease_is_gone() {
    let (_client, [group, _], _held, mut holder, _parked) = lent(9).await;
    let lent_at = Instant::now();
    let mut tries = Vec::new();
    while lent_at.elapsed() < Duration::from_millis(TTL_MS * 9 / 10 - 100) {
        let beat = holder.plain().await;
        tries.push(lent_at.elapsed().as_millis());
        beat.answer(Err(CallError::RetryLater {
            after: Some(Duration::from_secs(60)),
            detail: String::new(),
        }));
    }
    assert!(tries.len() >= 4, "{tries:?}");
    advance(Duration::from_millis(TTL_MS)).await;
    assert!(holder.is_quiet().await, "then its wish is respected");
    assert!(group.try_acquire().is_none(), "not trusted any longer");
    let waiting = tokio::spawn(async move { group.acquire().await });
    let beat = holder.plain().await;
    let heard = holder.hear(&beat);
    beat.answer(Ok(heard));
    drop(waiting.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_sync_is_always_parked_and_parked_again() {
    let (_client, _groups, _held, mut holder, mut parked) = lent(9).await;
    for state in ["s1", "s2", "s3"] {
        advance(Duration::from_millis(500)).await;
        let heard = Reply { state: state.to_owned(), held_ms: 500, ..holder.hear(&parked) };
        parked.answer(Ok(heard));
        parked = holder.parked().await;
        assert_eq!(parked.message.known_state.as_deref(), Some(state));
    }
    parked.answer(lost());
    let plain = holder.plain().await;
    let heard = holder.hear(&plain);
    plain.answer(Ok(heard));
    let parked = holder.parked().await;
    // Replaced by another one of this process, as it was a moment ago.
    let heard = Reply { state: "s3".to_owned(), ..holder.hear(&parked) };
    parked.answer(Ok(heard));
    assert!(holder.is_quiet().await, "not in a loop");
    holder.parked().await;
}

#[tokio::test(start_paused = true)]
async fn when_contended_idle_groups_give_back_and_busy_ones_do_not() {
    let (_client, [busy, idle], held, mut holder, parked) = lent(2).await;
    let more = busy.try_acquire().unwrap();
    let waits = tokio::spawn({
        let busy = busy.clone();
        async move { busy.acquire().await.map(drop) }
    });
    let request = holder.request_of(1).await;
    let contended = Reply { contended: true, ..holder.hear(&parked) };
    parked.answer(Ok(contended));
    let given_back = holder.plain().await;
    assert_eq!(given_back.leases(), [("b", 1, 0, true)], "within a round trip");
    assert!(idle.try_acquire().is_none());
    let contended = Reply { contended: true, ..holder.hear(&given_back) };
    given_back.answer(Ok(contended));
    drop(more);
    let report = loop {
        let asked = holder.plain_or_parked().await;
        if !asked.is_parked() {
            break asked;
        }
    };
    assert_eq!(report.leases(), [("a", 2, 1, false)], "others need it");
    request.answer(holder.grant("c", "g", 1));
    drop((held, report));
    waits.abort();
}

#[tokio::test(start_paused = true)]
async fn a_retired_lease_is_stopped_in_the_same_step() {
    let (_client, [group, _], held, mut holder, parked) = lent(5).await;
    let retired = Reply { leases: vec![lease("a", Status::Retired)], ..holder.hear(&parked) };
    parked.answer(Ok(retired));
    let stop = holder.plain().await;
    assert_eq!(stop.leases(), [("a", 1, 0, true)]);
    assert!(group.try_acquire().is_none());
    drop(held);
    let heard = holder.hear(&stop);
    stop.answer(Ok(heard));
    let last = loop {
        let asked = holder.plain_or_parked().await;
        if !asked.is_parked() {
            break asked;
        }
    };
    assert_eq!(last.leases(), [("a", 1, 1, true)], "until it is settled; b's release can wait");
}

#[tokio::test(start_paused = true)]
async fn drain_gives_leases_back() {
    let (client, [group, _], [one, two], mut holder, parked) = lent(5).await;
    let drained = tokio::spawn(async move { client.drain().await });
    let stop = holder.plain().await;
    assert_eq!(stop.leases(), [("a", 1, 0, true), ("b", 1, 0, true)]);
    assert!(group.try_acquire().is_none() && group.acquire().await.is_err());
    assert!(holder.is_quiet().await && parked.is_given_up());
    let heard = holder.hear(&stop);
    stop.answer(Ok(heard));
    for permit in [one, two] {
        assert!(!drained.is_finished());
        drop(permit);
        let report = holder.plain().await;
        let heard = holder.hear(&report);
        report.answer(Ok(heard));
    }
    drained.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_draw_takes_no_memory() {
    let (_client, [group, _], _held, _holder, _parked) = lent(1_000).await;
    drop(group.try_acquire());
    let taken = allocation_counter::measure(|| {
        for _ in 0..500 {
            drop(std::hint::black_box(group.try_acquire().unwrap()));
        }
    });
    assert_eq!(taken.count_total, 0, "{taken:?}");
}
