//! One rule of leases each; time is whatever number is passed in.

use queue_wire::{LeaseReport, LeaseVerdict, Reply, Status};

use super::fund::Returned;
use super::model::{lease_verdict, ledger, verdict};
use super::{Call, Ledger, PARK_MS, Tally};
use crate::transport::Endpoint;

const TTL: u64 = 4_000;

fn lease(id: &str, round: u64, permits: u64) -> LeaseVerdict {
    LeaseVerdict {
        round: Some(round),
        group: Some("g".to_owned()),
        permits: Some(permits),
        drawn: Some(0),
        released: Some(0),
        ttl_ms: Some(TTL),
        ..lease_verdict(id, Status::Active)
    }
}

fn reply(leases: Vec<LeaseVerdict>) -> Reply {
    Reply { v: 1, round: 9, leases, ..Reply::default() }
}

fn contended(leases: Vec<LeaseVerdict>) -> Reply {
    Reply { contended: true, ..reply(leases) }
}

fn report(id: &str, drawn: u64, released: u64, stopped: bool) -> LeaseReport {
    LeaseReport { id: id.to_owned(), drawn, released, stopped }
}

/// The reports of a plain sync that is due at `now`.
fn synced(ledger: &mut Ledger, now: u64) -> (u64, Vec<LeaseReport>) {
    let call = ledger.next_call(now).unwrap();
    assert!(call.endpoint == Endpoint::Sync && !call.is_parked(), "{call:?}");
    (call.number, call.message.leases.unwrap())
}

fn requested(ledger: &mut Ledger, now: u64) -> Call {
    let call = ledger.next_call(now).unwrap();
    assert_eq!(call.endpoint, Endpoint::Request, "{call:?}");
    call
}

/// `waiters` asked at 0, the reply to that brought `leases`; the sync that is parked for them is number 2.
fn lent(waiters: u64, leases: Vec<LeaseVerdict>) -> Ledger {
    let mut ledger = ledger();
    (0..waiters).for_each(|_| drop(ledger.enqueue("g", 0)));
    let request = requested(&mut ledger, 0);
    assert_eq!(request.message.leases, Some(vec![]), "this client can hold leases");
    ledger.replied(request.number, &reply(leases), 0);
    let parked = ledger.next_call(0).unwrap();
    assert!(parked.is_parked());
    ledger
}

#[test]
fn waiters_come_first_and_the_rest_is_drawn_without_a_word() {
    let mut ledger = lent(2, vec![lease("a", 1, 4)]);
    let fund = ledger.fund("g");
    assert_eq!(ledger.served().len(), 2);
    let ticket = fund.draw().unwrap();
    ledger.enqueue("g", 1);
    assert_eq!(ledger.served().len(), 1);
    assert_eq!(fund.draw(), None, "two waited, one drew, one waited");
    assert_eq!(fund.release(ticket), Returned::Counted);
    assert_eq!(
        (fund.draw(), ledger.next_call(1)),
        (None, None),
        "a permit is one-shot, and nobody needs it back"
    );
    ledger.enqueue("g", 7);
    let request = requested(&mut ledger, 7);
    assert_eq!(request.message.demand[0].count, 1);
    assert_eq!(request.message.leases, Some(vec![report("a", 4, 1, false)]), "what came back goes along");
}

#[test]
fn the_oldest_lease_is_drawn_from_first() {
    let mut ledger = lent(1, vec![lease("b", 2, 1), lease("a", 1, 2)]);
    assert_eq!(ledger.served()[0].block.as_str(), "b", "it came first");
    assert_eq!(ledger.try_draw("g").unwrap().as_str(), "a");

    let mut ledger = lent(1, vec![lease("a", 1, 3), lease("b", 2, 2)]);
    let drawn: Vec<_> = std::iter::from_fn(|| ledger.try_draw("g")).collect();
    assert_eq!(drawn.iter().map(|id| id.as_str()).collect::<Vec<_>>(), ["a", "a", "b", "b"]);
}

#[test]
fn a_lease_is_preferred_to_a_grant() {
    let mut both = reply(vec![lease("a", 1, 1)]);
    let mut grant = verdict("b", Status::Active);
    (grant.round, grant.group) = (Some(1), Some("g".to_owned()));
    (grant.permits, grant.claimed, grant.released) = (Some(2), Some(2), Some(0));
    both.grants = vec![grant];
    let mut ledger = ledger();
    let waiter = ledger.enqueue("g", 0);
    ledger.cancel(&waiter);
    ledger.replied(1, &both, 0);
    let drawn: Vec<_> = std::iter::from_fn(|| ledger.try_draw("g")).collect();
    assert_eq!(
        drawn.iter().map(|id| id.as_str()).collect::<Vec<_>>(),
        ["b", "b"],
        "not trusted, not drawn from"
    );

    let mut ledger = super::model::ledger();
    ledger.enqueue("g", 0);
    let request = requested(&mut ledger, 0);
    ledger.replied(request.number, &both, 0);
    assert_eq!(ledger.served()[0].block.as_str(), "b", "it was confirmed when it came");
    assert_eq!(ledger.try_draw("g").unwrap().as_str(), "a");
    assert_eq!(ledger.try_draw("g").unwrap().as_str(), "b");
}

#[test]
fn a_permit_whose_waiter_left_was_drawn_for_good() {
    let mut ledger = lent(1, vec![lease("a", 1, 2)]);
    let block = ledger.served().remove(0).block;
    ledger.put_back(&block);
    assert_eq!((ledger.try_draw("g"), ledger.try_draw("g")), (Some(block), None));
}

#[test]
fn a_retired_lease_stops_at_once_and_is_reported_until_it_is_settled() {
    let mut ledger = lent(1, vec![lease("a", 1, 3)]);
    let (fund, block) = (ledger.fund("g"), ledger.served().remove(0).block);
    let mut retired = lease("a", 1, 3);
    (retired.status, retired.ttl_ms) = (Status::Retired, Some(0));
    ledger.replied(2, &reply(vec![retired.clone()]), 0);
    assert_eq!((fund.draw(), ledger.try_draw("g")), (None, None));
    let (number, reports) = synced(&mut ledger, 1);
    assert_eq!(reports, [report("a", 1, 0, true)]);
    ledger.failed(number, 50);
    let (number, reports) = synced(&mut ledger, 50);
    assert_eq!(reports, [report("a", 1, 0, true)], "said again");
    (retired.drawn, retired.released) = (Some(1), Some(0));
    ledger.replied(number, &reply(vec![retired]), 0);
    assert_eq!((ledger.next_call(60_000), ledger.wake_at()), (None, Some(300_050)), "its ttl is over");
    // Late: an old reply doesn't bring it back.
    ledger.replied(1, &reply(vec![lease("a", 1, 3)]), 0);
    assert_eq!((fund.draw(), ledger.try_draw("g")), (None, None));
    ledger.release(&block);
    let (number, reports) = synced(&mut ledger, 70_000);
    assert_eq!(reports, [report("a", 1, 1, true)], "at once");
    ledger.replied(number, &reply(vec![lease_verdict("a", Status::Settled)]), 0);
    assert!(ledger.is_settled());
}

#[test]
fn a_lease_taken_up_as_retired_is_stopped_at_once() {
    let mut ledger = ledger();
    ledger.enqueue("g", 0);
    let request = requested(&mut ledger, 0);
    let retired = LeaseVerdict { status: Status::Retired, ttl_ms: Some(0), ..lease("a", 1, 3) };
    ledger.replied(request.number, &reply(vec![retired]), 500);
    assert!(ledger.served().is_empty());
    assert_eq!(synced(&mut ledger, 0).1, [report("a", 0, 0, true)]);
}

#[test]
fn only_blocks_of_rounds_not_seen_are_taken_up() {
    let mut ledger = lent(1, vec![lease("a", 1, 3)]);
    ledger.replied(2, &reply(vec![lease("b", 9, 3)]), 0);
    assert_eq!(ledger.running_by_block().count(), 1);
}

#[test]
fn a_lease_that_the_holder_does_not_know_is_stopped_and_forgotten() {
    let mut ledger = lent(1, vec![lease("a", 1, 3)]);
    ledger.replied(2, &reply(vec![lease_verdict("a", Status::Retired)]), 0);
    assert_eq!(ledger.try_draw("g"), None);
    let (number, reports) = synced(&mut ledger, 1);
    assert_eq!(reports, [report("a", 1, 0, true)]);
    let lost = ledger.replied(number, &reply(vec![lease_verdict("a", Status::Settled)]), 0);
    assert_eq!(
        (lost, ledger.running(), ledger.is_settled()),
        (1, 1, false),
        "an item runs that isn't counted"
    );
    let block = ledger.served().remove(0).block;
    ledger.release(&block);
    assert!(ledger.is_settled());
}

#[test]
fn when_contended_leases_of_groups_with_nothing_queued_go_back() {
    let mut other = lease("b", 1, 2);
    other.group = Some("h".to_owned());
    let mut ledger = lent(3, vec![lease("a", 1, 2), other]);
    assert_eq!(ledger.served().len(), 2, "one of g waits");
    let mut other_group = reply(vec![]);
    other_group.contended_groups = vec!["x".to_owned()];
    ledger.replied(2, &other_group, 0);
    assert!(ledger.try_draw("h").is_some());
    ledger.replied(2, &contended(vec![]), 0);
    assert_eq!(ledger.try_draw("h"), None);
    assert_eq!(synced(&mut ledger, 1).1, [report("b", 1, 0, true)], "g has something queued");
}

#[test]
fn when_its_group_is_contended_the_lease_goes_back() {
    let mut ledger = lent(1, vec![lease("a", 1, 2)]);
    let mut group = reply(vec![]);
    group.contended_groups = vec!["g".to_owned()];
    ledger.replied(2, &group, 0);
    assert_eq!(synced(&mut ledger, 1).1, [report("a", 1, 0, true)]);
}

#[test]
fn an_older_reply_does_not_say_whether_it_is_contended() {
    let mut ledger = lent(1, vec![lease("a", 1, 2)]);
    ledger.replied(2, &Reply { round: 8, ..contended(vec![]) }, 0);
    assert!(ledger.try_draw("g").is_some());
}

#[test]
fn releases_are_reported_at_once_when_contended_and_together() {
    let mut ledger = lent(3, vec![lease("a", 1, 2)]);
    let blocks = ledger.served();
    ledger.release(&blocks[0].block);
    let request = requested(&mut ledger, 10);
    assert_eq!(request.message.leases, Some(vec![report("a", 2, 1, false)]));
    ledger.replied(request.number, &contended(vec![]), 1_000);
    let (number, reports) = synced(&mut ledger, 11);
    assert_eq!(reports, [report("a", 2, 1, false)], "it was not heard");
    ledger.release(&blocks[1].block);
    assert_eq!(ledger.next_call(12), None, "one is under way");
    let heard = LeaseVerdict { drawn: Some(2), released: Some(1), ..lease("a", 1, 2) };
    ledger.replied(number, &contended(vec![heard]), 0);
    let (_, reports) = synced(&mut ledger, 13);
    assert_eq!(reports, [report("a", 2, 2, true)], "nothing is left of it");
    assert_eq!(requested(&mut ledger, 13).message.demand[0].count, 1, "there may be a permit now");
}

#[test]
fn a_lease_is_reported_at_half_its_ttl_and_soon_again() {
    let mut ledger = lent(1, vec![lease("a", 1, 2)]);
    assert_eq!((ledger.next_call(1_999), ledger.wake_at()), (None, Some(2_000)));
    let (first, reports) = synced(&mut ledger, 2_000);
    assert_eq!(reports, [report("a", 1, 0, false)]);
    assert_eq!((ledger.next_call(2_499), ledger.wake_at()), (None, Some(2_500)));
    let (second, _) = synced(&mut ledger, 2_500);
    ledger.failed(first, 12_000);
    assert_eq!(
        ledger.wake_at(),
        Some(3_000),
        "three quarters of the ttl; the pause of failures doesn't hold it up"
    );
    ledger.replied(second, &reply(vec![lease("a", 1, 2)]), 0);
    assert_eq!(ledger.wake_at(), Some(4_500), "half the ttl from when the call was sent");
}

#[test]
fn trust_counts_from_when_the_call_was_sent_and_what_it_was_held() {
    let mut ledger = ledger();
    ledger.enqueue("g", 0);
    let request = requested(&mut ledger, 100);
    ledger.replied(request.number, &Reply { held_ms: 900, ..reply(vec![lease("a", 1, 9)]) }, 0);
    let fund = ledger.fund("g");
    assert!(ledger.next_call(100).unwrap().is_parked());
    assert_eq!(ledger.wake_at(), Some(1_000 + TTL / 2));
    (0..4).for_each(|_| drop(ledger.next_call(4_599)));
    assert!(fund.draw().is_some());
    ledger.next_call(4_600);
    assert_eq!((fund.draw(), ledger.try_draw("g")), (None, None), "a tenth of the ttl is left");
    ledger.enqueue("g", 4_700);
    assert_eq!(ledger.next_call(4_700), None, "its permits cover who waits");
    let last = ledger.last_call();
    ledger.replied(last, &reply(vec![lease("a", 1, 9)]), 0);
    assert_eq!(ledger.served().len(), 2, "renewed");
    assert!(fund.draw().is_some());
}

#[test]
fn only_a_report_prolongs_a_lease() {
    let mut ledger = lent(1, vec![lease("a", 1, 2)]);
    // Another reply to what didn't report it, and one to a call that nobody knows any more.
    ledger.replied(1, &reply(vec![lease("a", 1, 2)]), 0);
    assert_eq!(ledger.wake_at(), Some(TTL / 2));
    // The parked call reported it when it came, 1500 ms before the holder answered.
    let left = LeaseVerdict { ttl_ms: Some(TTL - 1_500), ..lease("a", 1, 2) };
    ledger.replied(2, &Reply { held_ms: 1_500, ..reply(vec![left]) }, 0);
    assert_eq!(ledger.wake_at(), Some(1_000), "the holder doesn't park: not at once again");
    assert!(ledger.next_call(1_500).unwrap().is_parked());
    assert_eq!(ledger.wake_at(), Some(TTL / 2));
}

#[test]
fn a_lease_brought_by_a_call_of_unknown_age_is_reported_before_it_is_drawn_from() {
    let mut ledger = ledger();
    ledger.enqueue("g", 0);
    let request = requested(&mut ledger, 0);
    ledger.failed(request.number, 50);
    ledger.replied(request.number, &reply(vec![lease("a", 1, 2)]), 0);
    assert!(ledger.served().is_empty());
    let (number, _) = synced(&mut ledger, 5);
    ledger.replied(number, &reply(vec![lease("a", 1, 2)]), 0);
    assert_eq!(ledger.served().len(), 1);
}

#[test]
fn one_sync_is_parked_while_there_is_a_lease() {
    let mut ledger = ledger();
    ledger.enqueue("g", 0);
    let request = requested(&mut ledger, 0);
    let brought = Reply { state: "s1".to_owned(), ..reply(vec![lease("a", 1, 2)]) };
    ledger.replied(request.number, &brought, 0);
    let parked = ledger.next_call(0).unwrap();
    assert_eq!((parked.message.wait_ms, parked.message.known_state.as_deref()), (PARK_MS, Some("s1")));
    assert_eq!(parked.message.leases, Some(vec![report("a", 1, 0, false)]));
    assert_eq!(ledger.next_call(1), None, "one");
    ledger.replied(parked.number, &Reply { state: "s2".to_owned(), ..reply(vec![]) }, 0);
    let parked = ledger.next_call(100).unwrap();
    assert_eq!(parked.message.known_state.as_deref(), Some("s2"), "again, soon, when something was new");
    ledger.failed(parked.number, 1_500);
    let (number, _) = synced(&mut ledger, 100);
    ledger.replied(number, &reply(vec![lease("a", 1, 2)]), 0);
    assert_eq!(ledger.next_call(1_499), None);
    assert!(ledger.next_call(1_500).unwrap().is_parked());
}

#[test]
fn a_spent_lease_is_reported_and_settled() {
    let mut ledger = lent(1, vec![lease("a", 1, 2)]);
    let (fund, block) = (ledger.fund("g"), ledger.served().remove(0).block);
    let ticket = fund.draw().unwrap();
    ledger.release(&block);
    assert_eq!(ledger.next_call(1), None);
    assert_eq!(fund.release(ticket), Returned::Last);
    ledger.spent(ticket);
    assert_eq!(synced(&mut ledger, 1).1, [report("a", 2, 2, true)]);
}

#[test]
fn drain_gives_leases_back_and_the_parked_call_up() {
    let mut ledger = lent(1, vec![lease("a", 1, 5)]);
    let block = ledger.served().remove(0).block;
    ledger.drain();
    assert_eq!((ledger.given_up(), ledger.given_up()), (Some(2), None));
    let (number, reports) = synced(&mut ledger, 1);
    assert_eq!(reports, [report("a", 1, 0, true)]);
    ledger.replied(number, &reply(vec![lease_verdict("a", Status::Retired), lease("b", 10, 2)]), 0);
    assert_eq!(ledger.try_draw("g"), None);
    let (number, reports) = synced(&mut ledger, 2);
    assert_eq!(reports, [report("b", 0, 0, true)], "what comes too late goes back");
    ledger.replied(number, &reply(vec![lease_verdict("b", Status::Settled)]), 0);
    ledger.release(&block);
    let (number, reports) = synced(&mut ledger, 3);
    assert_eq!(reports, [report("a", 1, 1, true)]);
    ledger.replied(number, &reply(vec![lease_verdict("a", Status::Settled)]), 0);
    assert!(ledger.is_settled());
}

#[test]
fn a_fenced_ledger_draws_no_more() {
    let mut ledger = lent(1, vec![lease("a", 1, 5)]);
    let (fund, block) = (ledger.fund("g"), ledger.served().remove(0).block);
    let ticket = fund.draw().unwrap();
    ledger.fence();
    assert_eq!((fund.draw(), ledger.next_call(u64::MAX), ledger.running()), (None, None, 2));
    assert_eq!(fund.release(ticket), Returned::Elsewhere);
    ledger.release_ticket(ticket);
    ledger.release(&block);
    assert!(ledger.is_settled());
}

#[test]
fn funds_that_nobody_uses_go() {
    let mut ledger = lent(1, vec![lease("a", 1, 5)]);
    let kept = ledger.fund("kept");
    (0..1_000).for_each(|n| drop(ledger.fund(&n.to_string())));
    assert!(ledger.funds.len() < 50, "{}", ledger.funds.len());
    assert!(std::sync::Arc::ptr_eq(&kept, &ledger.fund("kept")));
    assert!(ledger.fund("g").draw().is_some());
}

#[test]
fn what_is_drawn_without_the_ledger_is_tallied_when_the_lease_is_reported() {
    let mut ledger = lent(1, vec![lease("a", 1, 4)]);
    assert_eq!((ledger.tally(), ledger.idle()), (Tally { drawn: 1, released: 0 }, 3));
    let fund = ledger.fund("g");
    let ticket = fund.draw().unwrap();
    fund.draw().unwrap();
    assert_eq!(fund.release(ticket), Returned::Counted);
    assert_eq!((ledger.tally(), ledger.idle()), (Tally::default(), 1));
    let (beat, reports) = synced(&mut ledger, TTL / 2);
    assert_eq!(reports, [report("a", 3, 1, false)]);
    assert_eq!(ledger.tally(), Tally { drawn: 2, released: 1 });
    ledger.replied(beat, &reply(vec![lease_verdict("a", Status::Settled)]), 0);
    assert_eq!((ledger.tally(), ledger.idle()), (Tally::default(), 0));
    ledger.release_ticket(ticket);
    assert_eq!(ledger.tally(), Tally { drawn: 0, released: 1 }, "a lost one ends too");
}
