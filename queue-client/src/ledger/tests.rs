//! One rule each; time is whatever number is passed in.

use queue_wire::{GrantReport, GrantVerdict, Reply, Status};

use super::model::{Holder, ledger, verdict};
use super::{Call, Ledger, SUPERSEDE_AFTER_MS};
use crate::transport::Endpoint;

fn grant(id: &str, round: u64, permits: u64) -> GrantVerdict {
    GrantVerdict {
        round: Some(round),
        group: Some("g".to_owned()),
        permits: Some(permits),
        claimed: Some(0),
        released: Some(0),
        ..verdict(id, Status::Active)
    }
}

fn marks(mut of: GrantVerdict, claimed: u64, released: u64) -> GrantVerdict {
    (of.claimed, of.released) = (Some(claimed), Some(released));
    of
}

fn reply(round: u64, grants: Vec<GrantVerdict>) -> Reply {
    Reply { v: 1, round, grants, ..Reply::default() }
}

fn report(id: &str, claimed: u64, released: u64) -> Option<Vec<GrantReport>> {
    Some(vec![GrantReport { id: id.to_owned(), claimed, released }])
}

fn call(ledger: &mut Ledger, now: u64, endpoint: Endpoint) -> Call {
    let call = ledger.next_call(now).unwrap();
    assert_eq!(call.endpoint, endpoint);
    call
}

fn demand(call: &Call) -> Vec<(&str, u64, u64)> {
    call.message.demand.iter().map(|d| (d.group.as_str(), d.count, d.oldest_age_ms)).collect()
}

/// `waiters` of them got a grant of `permits` in round 1; the request is answered.
fn granted(waiters: u64, permits: u64) -> Ledger {
    let mut ledger = ledger();
    (0..waiters).for_each(|_| drop(ledger.enqueue("g", 0)));
    let request = call(&mut ledger, 0, Endpoint::Request);
    ledger.replied(request.number, &reply(1, vec![grant("a", 1, permits)]), 250);
    ledger
}

#[test]
fn a_permit_is_handed_out_only_when_its_claim_is_confirmed() {
    let mut ledger = granted(2, 2);
    assert!(ledger.served().is_empty());
    let sync = call(&mut ledger, 0, Endpoint::Sync);
    assert_eq!(sync.message.grants, report("a", 2, 0));
    assert!(ledger.served().is_empty());
    ledger.replied(sync.number, &reply(1, vec![marks(grant("a", 1, 2), 1, 0)]), 0);
    assert_eq!(ledger.served().len(), 1, "one of two is confirmed");
    let sync = call(&mut ledger, 0, Endpoint::Sync);
    ledger.replied(sync.number, &reply(1, vec![marks(grant("a", 1, 2), 2, 0)]), 0);
    assert_eq!(ledger.served().len(), 1);
    assert_eq!(ledger.next_call(10_000), None, "nothing to say while both run");
}

#[test]
fn permits_that_nobody_needs_are_claimed_and_released_in_one_report() {
    let mut ledger = granted(1, 3);
    assert_eq!(call(&mut ledger, 0, Endpoint::Sync).message.grants, report("a", 3, 2));
}

#[test]
fn a_put_back_permit_goes_to_the_next_waiter_then_to_the_holder() {
    let mut ledger = granted(1, 1);
    let sync = call(&mut ledger, 0, Endpoint::Sync);
    ledger.replied(sync.number, &reply(1, vec![marks(grant("a", 1, 1), 1, 0)]), 0);
    let first = ledger.served().remove(0);
    let second = ledger.enqueue("g", 5);
    ledger.put_back(&first.block);
    assert_eq!(ledger.served().remove(0).waiter, second);
    ledger.put_back(&first.block);
    assert_eq!(ledger.try_draw("other"), None);
    assert_eq!(ledger.try_draw("g"), Some(first.block.clone()), "spare until it is reported");
    ledger.put_back(&first.block);
    assert_eq!(call(&mut ledger, 5, Endpoint::Sync).message.grants, report("a", 1, 1));
    assert_eq!(ledger.try_draw("g"), None);
}

#[test]
fn of_an_expired_grant_only_what_was_claimed_exists() {
    let mut ledger = granted(5, 5);
    let sync = call(&mut ledger, 0, Endpoint::Sync);
    let mut expired = marks(grant("a", 1, 3), 3, 0);
    expired.status = Status::Expired;
    ledger.replied(sync.number, &reply(1, vec![expired.clone()]), 0);
    let served = ledger.served();
    assert_eq!(served.len(), 3);
    assert_eq!(demand(&call(&mut ledger, 7, Endpoint::Request)), [("g", 2, 7)]);
    ledger.replied(sync.number, &reply(1, vec![expired]), 0);
    ledger.release(&served[0].block);
    let sync = call(&mut ledger, 7, Endpoint::Sync);
    assert_eq!(
        sync.message.grants,
        report("a", 5, 3),
        "a release counts first against what was not honoured"
    );
}

#[test]
fn a_grant_reclaimed_whole_is_asked_for_again() {
    let mut ledger = granted(2, 2);
    let sync = call(&mut ledger, 0, Endpoint::Sync);
    ledger.replied(sync.number, &reply(1, vec![verdict("a", Status::NotFound)]), 0);
    assert_eq!(demand(&call(&mut ledger, 9, Endpoint::Request)), [("g", 2, 9)]);
}

#[test]
fn an_old_reply_brings_nothing_back() {
    let mut ledger = granted(1, 1);
    let late = reply(1, vec![grant("a", 1, 1)]);
    let sync = call(&mut ledger, 0, Endpoint::Sync);
    ledger.replied(sync.number, &reply(1, vec![marks(grant("a", 1, 1), 1, 0)]), 0);
    let block = ledger.served().remove(0).block;
    ledger.replied(1, &late, 0);
    ledger.release(&block);
    let sync = call(&mut ledger, 0, Endpoint::Sync);
    ledger.replied(sync.number, &reply(1, vec![verdict("a", Status::Settled)]), 0);
    assert!(ledger.is_settled());
    ledger.replied(1, &late, 0);
    assert!(ledger.is_settled());
}

#[test]
fn one_sync_is_under_way_and_the_next_gathers() {
    let mut ledger = granted(3, 3);
    let sync = call(&mut ledger, 0, Endpoint::Sync);
    ledger.replied(sync.number, &reply(1, vec![marks(grant("a", 1, 3), 3, 0)]), 0);
    let blocks = ledger.served();
    ledger.release(&blocks[0].block);
    let sync = call(&mut ledger, 0, Endpoint::Sync);
    blocks[1..].iter().for_each(|served| ledger.release(&served.block));
    assert_eq!(ledger.next_call(0), None);
    ledger.replied(sync.number, &reply(1, vec![marks(grant("a", 1, 3), 3, 1)]), 0);
    assert_eq!(call(&mut ledger, 0, Endpoint::Sync).message.grants, report("a", 3, 3));
}

#[test]
fn a_waiting_request_is_superseded_when_demand_changed() {
    let mut ledger = ledger();
    ledger.enqueue("g", 0);
    let first = call(&mut ledger, 0, Endpoint::Request);
    assert_eq!(ledger.wake_at(), None);
    let second = ledger.enqueue("h", 2);
    assert_eq!(ledger.next_call(2), None, "a burst becomes one");
    assert_eq!(ledger.wake_at(), Some(SUPERSEDE_AFTER_MS));
    let newer = call(&mut ledger, 6, Endpoint::Request);
    assert!(newer.message.call > first.message.call);
    assert_eq!(demand(&newer), [("g", 1, 6), ("h", 1, 4)]);
    ledger.failed(first.number, 0);
    ledger.cancel(&second);
    assert_eq!(demand(&call(&mut ledger, 20, Endpoint::Request)), [("g", 1, 20)]);
}

#[test]
fn when_nobody_waits_any_more_the_holder_is_told() {
    let mut ledger = ledger();
    let waiter = ledger.enqueue("g", 0);
    call(&mut ledger, 0, Endpoint::Request);
    ledger.cancel(&waiter);
    let request = call(&mut ledger, 10, Endpoint::Request);
    assert_eq!(demand(&request), []);
    assert!(!ledger.is_settled());
    ledger.replied(request.number, &reply(1, vec![]), 0);
    assert!(ledger.is_settled());
}

#[test]
fn blocked_demand_is_stated_again_in_time_or_when_something_changed() {
    let mut holder = Holder::new(0);
    let mut ledger = ledger();
    ledger.enqueue("g", 0);
    let request = call(&mut ledger, 0, Endpoint::Request);
    ledger.replied(request.number, &holder.answer(&request, 0), 700);
    assert_eq!(ledger.next_call(699), None);
    assert_eq!(ledger.wake_at(), Some(700));
    let request = call(&mut ledger, 700, Endpoint::Request);
    ledger.replied(request.number, &holder.answer(&request, 0), 1400);
    ledger.enqueue("g", 800);
    assert_eq!(demand(&call(&mut ledger, 800, Endpoint::Request)), [("g", 2, 800)]);
}

#[test]
fn blocked_demand_is_stated_again_when_own_permits_have_come_back() {
    let mut ledger = granted(2, 1);
    let sync = call(&mut ledger, 0, Endpoint::Sync);
    ledger.replied(sync.number, &reply(1, vec![marks(grant("a", 1, 1), 1, 0)]), 0);
    assert_eq!(ledger.next_call(249), None, "a confirmed claim frees nothing");
    let block = ledger.served().remove(0).block;
    ledger.release(&block);
    let sync = call(&mut ledger, 0, Endpoint::Sync);
    ledger.replied(sync.number, &reply(1, vec![verdict("a", Status::Settled)]), 0);
    assert_eq!(demand(&call(&mut ledger, 1, Endpoint::Request)), [("g", 1, 1)]);
}

#[test]
fn after_a_call_without_an_answer_another_one_is_made() {
    let mut ledger = ledger();
    let waiter = ledger.enqueue("g", 0);
    let request = call(&mut ledger, 0, Endpoint::Request);
    ledger.cancel(&waiter);
    ledger.refused(request.number, 0);
    assert!(ledger.is_settled(), "a refused call had no effect");

    let waiter = ledger.enqueue("g", 0);
    let request = call(&mut ledger, 0, Endpoint::Request);
    ledger.failed(request.number, 100);
    assert_eq!(ledger.next_call(99), None);
    let request = call(&mut ledger, 100, Endpoint::Request);
    assert_eq!(request.message.seen, 0);
    ledger.failed(request.number, 300);
    ledger.cancel(&waiter);
    let request = call(&mut ledger, 300, Endpoint::Request);
    assert_eq!(demand(&request), []);
    ledger.failed(request.number, 900);
    let sync = call(&mut ledger, 301, Endpoint::Sync);
    ledger.replied(request.number, &reply(1, vec![]), 0);
    assert!(!ledger.is_settled(), "an answer to an earlier call is not enough");
    ledger.replied(sync.number, &reply(1, vec![]), 0);
    assert!(ledger.is_settled());
}

#[test]
fn a_client_that_holds_something_is_heard_in_time() {
    let mut ledger = granted(1, 1);
    let sync = call(&mut ledger, 50, Endpoint::Sync);
    let mut told = reply(1, vec![marks(grant("a", 1, 1), 1, 0)]);
    told.report_within_ms = Some(20_000);
    ledger.replied(sync.number, &told, 0);
    assert_eq!(ledger.wake_at(), Some(20_050), "counted from when the call was sent");
    assert_eq!(call(&mut ledger, 20_050, Endpoint::Sync).message.grants, report("a", 1, 0));
}

#[test]
fn a_block_that_somebody_settled_is_reported_as_lost() {
    let mut ledger = granted(1, 1);
    let sync = call(&mut ledger, 0, Endpoint::Sync);
    ledger.replied(sync.number, &reply(1, vec![marks(grant("a", 1, 1), 1, 0)]), 0);
    let block = ledger.served().remove(0).block;
    assert_eq!(ledger.replied(sync.number, &reply(1, vec![verdict("a", Status::NotFound)]), 0), 1);
    assert!(!ledger.is_settled(), "the item still runs");
    ledger.release(&block);
    assert!(ledger.is_settled());
}

#[test]
fn a_fenced_ledger_says_nothing_more() {
    let mut ledger = granted(2, 1);
    ledger.fence();
    assert_eq!((ledger.next_call(u64::MAX), ledger.wake_at()), (None, None));
    ledger.replied(9, &reply(5, vec![grant("b", 5, 1)]), 0);
    assert!(ledger.is_settled());
}

#[test]
fn the_oldest_thousand_groups_and_ten_thousand_reports_fit() {
    let mut ledger = ledger();
    (0..1_100).for_each(|n| drop(ledger.enqueue(&format!("{n:04}"), 2_000 - n)));
    let request = call(&mut ledger, 2_000, Endpoint::Request);
    assert_eq!((request.message.demand.len(), request.message.demand[0].oldest_age_ms), (1_000, 1_099));
    let grants = (0..10_001).map(|n| grant(&format!("{n:05}"), 1, 1)).collect();
    ledger.replied(request.number, &reply(1, grants), 0);
    let first = call(&mut ledger, 2_000, Endpoint::Sync).message.grants.unwrap();
    assert_eq!(first.len(), 10_000);
    let settled = first.iter().map(|report| verdict(&report.id, Status::Settled)).collect();
    ledger.replied(ledger.last_call(), &reply(1, settled), 0);
    assert_eq!(call(&mut ledger, 2_000, Endpoint::Sync).message.grants, report("10000", 1, 1));
}
