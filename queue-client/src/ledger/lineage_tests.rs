//! One rule each of generations, resuming, detached permits, and hearing of a client in time.

use queue_wire::{GrantVerdict, LeaseReport, LeaseVerdict, Reply, Status};

use super::model::{lease_verdict, ledger, verdict};
use super::{BlockId, Call, Ledger, REQUEST_PARK_MS};
use crate::transport::Endpoint;

fn grant(id: &str, round: u64, (permits, claimed, released): (u64, u64, u64)) -> GrantVerdict {
    GrantVerdict {
        round: Some(round),
        group: Some("g".to_owned()),
        permits: Some(permits),
        claimed: Some(claimed),
        released: Some(released),
        ..verdict(id, Status::Active)
    }
}

fn retired(id: &str, (permits, drawn, released): (u64, u64, u64)) -> LeaseVerdict {
    LeaseVerdict {
        round: Some(3),
        group: Some("g".to_owned()),
        permits: Some(permits),
        drawn: Some(drawn),
        released: Some(released),
        ttl_ms: Some(0),
        ..lease_verdict(id, Status::Retired)
    }
}

fn reply(grants: Vec<GrantVerdict>, leases: Vec<LeaseVerdict>) -> Reply {
    Reply { v: 1, round: 9, grants, leases, ..Reply::default() }
}

fn marks(call: &Call) -> Vec<(&str, u64, u64)> {
    let grants = call.message.grants.as_deref().unwrap_or_default();
    grants.iter().map(|report| (report.id.as_str(), report.claimed, report.released)).collect()
}

fn leases(call: &Call) -> Vec<LeaseReport> {
    call.message.leases.clone().unwrap_or_default()
}

fn stopped(id: &str, drawn: u64, released: u64) -> LeaseReport {
    LeaseReport { id: id.to_owned(), drawn, released, stopped: true }
}

fn sync(ledger: &mut Ledger, now: u64) -> Call {
    let call = ledger.next_call(now).unwrap();
    assert!(call.endpoint == Endpoint::Sync && !call.is_parked(), "{call:?}");
    call
}

/// A successor whose jobs on these blocks run, and its first call.
fn successor(declared: &[&str]) -> (Ledger, Call) {
    let mut ledger = ledger();
    ledger.speak_as(7);
    ledger.resume();
    for (n, block) in declared.iter().enumerate() {
        ledger.declare(&format!("p{n}"), block);
    }
    ledger.reconcile();
    let first = sync(&mut ledger, 0);
    assert_eq!((first.message.generation, first.message.resume, first.message.seen), (7, true, 0));
    assert!(!first.message.all, "nothing is known yet");
    (ledger, first)
}

/// The job ends whose detached permit this was.
fn end(ledger: &mut Ledger, permit: &str) {
    let block = ledger.attach(permit).unwrap();
    ledger.release(&block);
}

fn block(id: &str) -> BlockId {
    BlockId(id.into())
}

/// One item runs on a grant of one permit.
fn running() -> (Ledger, BlockId) {
    let mut ledger = ledger();
    ledger.enqueue("g", 0);
    let request = ledger.next_call(0).unwrap();
    ledger.replied(request.number, &reply(vec![grant("a", 9, (1, 1, 0))], vec![]), 0);
    let block = ledger.served().remove(0).block;
    (ledger, block)
}

#[test]
fn what_was_declared_stays_and_the_rest_of_a_grant_goes_back() {
    let (mut ledger, first) = successor(&["a", "a", "a"]);
    assert!(ledger.is_counted(&block("a")), "as far as is known");
    ledger.release(&block("a"));
    let told = reply(vec![grant("a", 3, (5, 5, 1)), grant("b", 4, (2, 0, 0))], vec![]);
    assert_eq!(ledger.replied(first.number, &told, 0), 0);
    assert_eq!(marks(&sync(&mut ledger, 0)), [("a", 5, 3), ("b", 2, 2)]);
    assert_eq!(ledger.running(), 2);
}

#[test]
fn what_waits_may_use_what_an_earlier_process_left() {
    let mut ledger = ledger();
    ledger.resume();
    ledger.enqueue("g", 0);
    let request = ledger.next_call(0).unwrap();
    assert_eq!((request.endpoint, request.message.resume), (Endpoint::Request, true));
    ledger.replied(request.number, &reply(vec![grant("a", 3, (2, 2, 0))], vec![]), 0);
    assert_eq!(ledger.served().len(), 1);
    assert_eq!(marks(&sync(&mut ledger, 0)), [("a", 2, 1)]);
}

#[test]
fn a_lease_of_an_earlier_process_keeps_what_was_declared() {
    let (mut ledger, first) = successor(&["a", "a"]);
    // The holder had heard of one draw; of b all three that were drawn have ended.
    ledger.replied(first.number, &reply(vec![], vec![retired("a", (9, 1, 1)), retired("b", (9, 3, 1))]), 0);
    let stop = sync(&mut ledger, 0);
    assert_eq!(leases(&stop), [stopped("a", 3, 1), stopped("b", 3, 3)]);
    assert_eq!((ledger.try_draw("g"), ledger.running()), (None, 2));
    ledger.replied(
        stop.number,
        &reply(vec![], vec![retired("a", (9, 3, 1)), lease_verdict("b", Status::Settled)]),
        0,
    );
    end(&mut ledger, "p0");
    assert_eq!(leases(&sync(&mut ledger, 0)), [stopped("a", 3, 2)]);
}

#[test]
fn a_declared_permit_that_the_holder_does_not_count_is_told() {
    let (mut ledger, first) = successor(&["gone", "a", "a"]);
    assert_eq!(ledger.replied(first.number, &reply(vec![grant("a", 3, (3, 3, 2))], vec![]), 0), 2);
    assert!(!ledger.is_counted(&block("gone")) && ledger.is_counted(&block("a")));
    end(&mut ledger, "p0");
    end(&mut ledger, "p1");
    assert_eq!(ledger.next_call(0), None, "one of a is counted, and one runs");
    end(&mut ledger, "p2");
    let last = sync(&mut ledger, 0);
    assert_eq!(marks(&last), [("a", 3, 3)]);
    ledger.replied(last.number, &reply(vec![verdict("a", Status::Settled)], vec![]), 0);
    assert!(ledger.is_settled());
}

#[test]
fn a_holder_that_knows_neither_the_key_nor_a_block_counts_nothing() {
    let (mut ledger, first) = successor(&["a"]);
    assert_eq!(ledger.forgotten(first.number), 1);
    assert!(!ledger.is_counted(&block("a")));
    end(&mut ledger, "p0");
    assert!(ledger.is_settled());
}

#[test]
fn answers_of_before_the_generation_rose_say_nothing() {
    let mut ledger = ledger();
    ledger.speak_as(5);
    ledger.enqueue("g", 0);
    let before = ledger.next_call(0).unwrap();
    ledger.speak_as(9);
    assert_eq!(ledger.given_up(), Some(before.number));
    let again = ledger.next_call(0).unwrap();
    assert_eq!((again.message.generation, again.message.demand.len()), (9, 1));
    ledger.replied(before.number, &reply(vec![grant("a", 3, (1, 1, 0))], vec![]), 0);
    ledger.failed(before.number, 0);
    assert!(ledger.served().is_empty() && !ledger.is_counted(&block("a")));
    ledger.replied(again.number, &reply(vec![grant("b", 9, (1, 1, 0))], vec![]), 0);
    assert_eq!(ledger.served().len(), 1);
}

#[test]
fn a_detached_permit_counts_until_it_is_attached_and_released() {
    let (mut ledger, block) = running();
    ledger.detach("p", &block);
    ledger.drain();
    assert!(ledger.is_drained() && !ledger.is_settled());
    assert_eq!(ledger.next_call(0), None, "there is nothing to give back");
    assert!(ledger.wake_at().is_some(), "its client goes on to be heard");
    assert_eq!(ledger.attach("other"), None);
    assert_eq!(ledger.attach("p"), Some(block.clone()));
    assert!(!ledger.is_drained());
    ledger.release(&block);
    assert_eq!(marks(&sync(&mut ledger, 0)), [("a", 1, 1)]);
}

#[test]
fn a_fenced_ledger_counts_nothing() {
    let (mut ledger, first) = successor(&["a"]);
    ledger.replied(first.number, &reply(vec![grant("a", 3, (1, 1, 0))], vec![]), 0);
    assert!(ledger.is_counted(&block("a")));
    ledger.fence();
    assert!(!ledger.is_counted(&block("a")) && ledger.is_drained() && !ledger.is_settled());
    end(&mut ledger, "p0");
    assert!(ledger.is_settled());
}

#[test]
fn a_client_that_holds_anything_is_heard_every_five_minutes_and_tells_all() {
    let (mut ledger, _) = running();
    assert_eq!(ledger.wake_at(), Some(300_000));
    let beat = sync(&mut ledger, 300_000);
    assert_eq!((beat.message.all, marks(&beat), leases(&beat)), (true, vec![("a", 1, 0)], vec![]));
    assert!(beat.message.leases.is_some(), "both lists are there");
    let mut seldom = reply(vec![grant("a", 9, (1, 1, 0))], vec![]);
    seldom.report_within_ms = Some(86_400_000);
    ledger.replied(beat.number, &seldom, 0);
    assert_eq!(ledger.wake_at(), Some(600_000));
}

#[test]
fn the_first_sync_after_a_call_without_an_answer_tells_all() {
    let (mut ledger, block) = running();
    ledger.enqueue("g", 0);
    let request = ledger.next_call(0).unwrap();
    ledger.failed(request.number, 50);
    ledger.release(&block);
    let release = sync(&mut ledger, 60);
    assert_eq!((release.message.all, marks(&release)), (true, vec![("a", 1, 1)]));
    ledger.replied(release.number, &reply(vec![grant("b", 10, (1, 0, 0))], vec![]), 0);
    assert!(!sync(&mut ledger, 60).message.all, "once");
}

#[test]
fn a_client_that_holds_nothing_tells_all_too() {
    let (mut ledger, block) = running();
    ledger.release(&block);
    let release = sync(&mut ledger, 0);
    ledger.replied(release.number, &reply(vec![verdict("a", Status::Settled)], vec![]), 0);
    ledger.enqueue("g", 0);
    let request = ledger.next_call(0).unwrap();
    ledger.failed(request.number, 50);
    let nothing = sync(&mut ledger, 60);
    assert_eq!((nothing.message.all, marks(&nothing), leases(&nothing)), (true, vec![], vec![]));
    assert!(!ledger.is_settled());
    ledger.replied(nothing.number, &reply(vec![], vec![]), 0);
    assert_eq!(ledger.next_call(60).map(|call| call.endpoint), Some(Endpoint::Request));
}

#[test]
fn a_request_that_is_superseded_is_no_outage() {
    let (mut ledger, block) = running();
    ledger.enqueue("g", 0);
    let request = ledger.next_call(0).unwrap();
    ledger.enqueue("g", 1);
    ledger.next_call(6).unwrap();
    ledger.failed(request.number, 50);
    ledger.release(&block);
    assert!(!sync(&mut ledger, 6).message.all);
}

#[test]
fn a_message_that_leaves_a_block_out_does_not_tell_all() {
    let mut ledger = ledger();
    ledger.enqueue("g", 0);
    let request = ledger.next_call(0).unwrap();
    let grants = (0..10_001).map(|n| grant(&format!("{n:05}"), 9, (1, 1, 0))).collect();
    ledger.replied(request.number, &reply(grants, vec![]), 0);
    (1..10_001).for_each(|_| drop(ledger.try_draw("g")));
    let beat = sync(&mut ledger, 300_000);
    assert_eq!((marks(&beat).len(), beat.message.all), (10_000, false));
}

#[test]
fn demand_waits_at_the_holder_and_the_rest_does_not() {
    let mut ledger = ledger();
    let waiter = ledger.enqueue("g", 0);
    let request = ledger.next_call(0).unwrap();
    assert_eq!(request.message.wait_ms, REQUEST_PARK_MS);
    ledger.cancel(&waiter);
    let nothing = ledger.next_call(9).unwrap();
    assert_eq!((nothing.endpoint, nothing.message.wait_ms), (Endpoint::Request, 0));
}

#[test]
fn a_request_that_was_parked_before_is_no_answer_to_a_call_that_failed() {
    let (mut ledger, block) = running();
    ledger.enqueue("g", 0);
    let request = ledger.next_call(0).unwrap();
    ledger.release(&block);
    let release = sync(&mut ledger, 1);
    let settled = reply(vec![verdict("a", Status::Settled)], vec![]);
    ledger.replied(release.number, &settled, 0);
    assert_eq!(ledger.next_call(2), None);
    ledger.failed(release.number, 2);
    let sync = sync(&mut ledger, 2);
    assert!(sync.number > request.number && sync.message.all);
}
