//! What hangs holds nothing up, and nothing that a holder says makes a wait without an end.

use proptest::prelude::*;
use queue_wire::{GrantVerdict, LeaseVerdict, Reply, SAFE_INTEGER_MAX, Status};

use super::model::{lease_verdict, ledger, verdict};
use super::patience::{CLAIM_WITHIN_MAX_MS, HEARTBEAT_MAX_MS, HELD_MAX_MS, TTL_MAX_MS};
use super::{Call, Ledger, PATIENCE_MAX_MS};
use crate::transport::Endpoint;

const WITHIN: u64 = 2_000;

fn granted(claim_within: u64) -> Reply {
    let grant = GrantVerdict {
        round: Some(1),
        group: Some("g".to_owned()),
        permits: Some(1),
        claimed: Some(0),
        released: Some(0),
        claim_within_ms: Some(claim_within),
        ..verdict("a", Status::Active)
    };
    Reply { v: 1, round: 1, grants: vec![grant], report_within_ms: Some(WITHIN), ..Reply::default() }
}

fn confirmed(released: u64) -> Reply {
    let mut reply = granted(0);
    (reply.grants[0].claimed, reply.grants[0].released) = (Some(1), Some(released));
    reply
}

fn sync(ledger: &mut Ledger, now: u64) -> Call {
    let call = ledger.next_call(now).unwrap();
    assert_eq!((call.endpoint, call.is_parked()), (Endpoint::Sync, false));
    call
}

/// An item waits for a permit that must be claimed in time.
fn claiming(within: u64) -> Ledger {
    let mut ledger = ledger();
    ledger.enqueue("g", 0);
    let request = ledger.next_call(0).unwrap();
    ledger.replied(request.number, &granted(within), 250);
    ledger
}

/// The times at which a ledger says something, when no call is answered.
fn said_until(ledger: &mut Ledger, end: u64) -> Vec<u64> {
    let mut times = Vec::new();
    while let Some(at) = ledger.wake_at().filter(|at| *at < end) {
        sync(ledger, at);
        times.push(at);
    }
    times
}

/// O-10: four calls fit into what the holder promised, whatever became of those before.
#[test]
fn a_claim_is_said_again_before_its_deadline_while_earlier_calls_hang() {
    let said = said_until(&mut claiming(1_000), 1_000);
    assert_eq!(said, [0, 125, 375, 875]);
}

/// O-10
#[test]
fn a_heartbeat_is_said_again_while_earlier_calls_hang() {
    let mut ledger = claiming(10_000);
    let claim = sync(&mut ledger, 0);
    ledger.replied(claim.number, &confirmed(0), 0);
    assert_eq!(said_until(&mut ledger, 2 * WITHIN), [WITHIN, WITHIN + 250, WITHIN + 750, WITHIN + 1_750]);
}

/// O-10: a release keeps no promise, and goes on all the same.
#[test]
fn a_release_does_not_wait_for_a_call_that_hangs() {
    let mut ledger = claiming(10_000);
    let claim = sync(&mut ledger, 0);
    ledger.replied(claim.number, &confirmed(0), 0);
    let block = ledger.served().remove(0).block;
    ledger.release(&block);
    let (first, again) = (sync(&mut ledger, 10), sync(&mut ledger, 10 + WITHIN / 8));
    assert_eq!(first.message.grants, again.message.grants);
    ledger.replied(again.number, &confirmed(1), 0);
    ledger.replied(first.number, &confirmed(1), 0);
    let settled = Reply { v: 1, round: 1, grants: vec![verdict("a", Status::Settled)], ..Reply::default() };
    ledger.replied(first.number, &settled, 0);
    assert!(ledger.is_settled());
}

/// O-10: the late answer to the call that hung is as good as one to its repetition, which is given up.
#[test]
fn a_thawed_call_answers_for_the_later_ones() {
    let mut ledger = claiming(4_000);
    let (first, again) = (sync(&mut ledger, 0), sync(&mut ledger, 500));
    ledger.replied(first.number, &confirmed(0), 0);
    assert_eq!(ledger.served().len(), 1);
    assert_eq!(ledger.given_up(), Some(again.number));
    ledger.replied(again.number, &confirmed(0), 0);
    assert_eq!((ledger.served().len(), ledger.running()), (0, 1), "claimed twice, one permit");
}

/// O-10: a pause after failures ends for a heartbeat.
#[test]
fn a_long_pause_does_not_delay_a_heartbeat() {
    let mut ledger = claiming(10_000);
    let claim = sync(&mut ledger, 0);
    ledger.replied(claim.number, &confirmed(0), 0);
    let beat = sync(&mut ledger, WITHIN);
    ledger.failed(beat.number, WITHIN + 3_600_000);
    assert_eq!(ledger.wake_at(), Some(WITHIN + WITHIN / 4));
    sync(&mut ledger, WITHIN + WITHIN / 4);
}

/// O-10: what a call was to tell in full, its repetition tells too.
#[test]
fn all_is_told_again() {
    let mut ledger = claiming(10_000);
    let claim = sync(&mut ledger, 0);
    ledger.failed(claim.number, 0);
    let all = sync(&mut ledger, 1);
    let again = sync(&mut ledger, 1 + PATIENCE_MAX_MS);
    assert!(all.message.all && again.message.all);
}

fn any_time() -> impl Strategy<Value = Option<u64>> {
    let extreme =
        prop_oneof![Just(0), Just(u64::MAX), Just(u64::MAX / 2), Just(1 << 53), any::<u64>(), 0..10_000_u64];
    prop::option::of(extreme)
}

proptest! {
    /// O-14: numbers of any size neither break the ledger nor make it wait for longer than its own constants.
    #[test]
    fn no_number_of_a_holder_makes_a_wait_without_end(
        times in prop::collection::vec((any_time(), any_time(), any_time(), any_time(), any_time()), 1..8),
        status in prop::sample::select(vec![Status::Active, Status::Expired, Status::Retired, Status::Other]),
    ) {
        let mut ledger = ledger();
        ledger.enqueue("g", 0);
        ledger.enqueue("h", 0);
        let mut now = 0;
        for (at, (round, permits, within, held, marks)) in times.into_iter().enumerate() {
            now += 1_000;
            // What is not confirmed is said again at once, without end; few rounds of it show enough.
            for _ in 0..5 {
                let Some(call) = ledger.next_call(now) else { break };
                prop_assert!(call.message.seen <= SAFE_INTEGER_MAX);
                let lease = LeaseVerdict {
                    round, permits, ttl_ms: within, drawn: marks, released: marks,
                    group: Some("h".to_owned()),
                    ..lease_verdict(&format!("l{at}"), status)
                };
                let grant = GrantVerdict {
                    round, permits, claim_within_ms: within, claimed: marks, released: marks,
                    group: Some("g".to_owned()),
                    ..verdict(&format!("a{at}"), status)
                };
                let reply = Reply {
                    v: 1, round: round.unwrap_or(0), grants: vec![grant], leases: vec![lease],
                    held_ms: held.unwrap_or(0), report_within_ms: within,
                    next_request_in_ms: within.unwrap_or(0),
                    ..Reply::default()
                };
                ledger.replied(call.number, &reply, now + 250);
                drop(ledger.served());
            }
            let longest = HEARTBEAT_MAX_MS.max(CLAIM_WITHIN_MAX_MS).max(TTL_MAX_MS) + HELD_MAX_MS;
            prop_assert!(ledger.wake_at().is_none_or(|at| at <= now + longest), "{:?}", ledger.wake_at());
            ledger.check();
        }
        ledger.fence();
    }
}
