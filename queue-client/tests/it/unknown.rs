//! Replies of a newer holder: what is not known degrades, and no permit is lost.

use queue_client::wire::Reply;
use queue_client::{CallError, Cause, Endpoint};
use serde_json::{Value, json};

use crate::scripted::{client, waits};

/// As it comes from the wire, with a field more in each object.
fn from_the_wire(mut reply: Value) -> Result<Reply, CallError> {
    add_fields(&mut reply);
    Ok(serde_json::from_value(reply).unwrap())
}

fn add_fields(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(add_fields);
            members.insert("from_the_future".to_owned(), json!({"deep": [1, null, "x"]}));
        }
        Value::Array(values) => values.iter_mut().for_each(add_fields),
        _ => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_reason_that_is_not_known_is_one() {
    let (_client, semaphore, mut holder) = client();
    let mut acquire = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut acquire).await);
    let reply = json!({"v": 1, "round": 1, "blocked": [{"group": "", "count": 1, "reason": "full_moon"}]});
    holder.request_of(1).await.answer(from_the_wire(reply));
    holder.round = 1;
    assert!(holder.is_quiet().await);
    let blocked = semaphore.blocked().remove(0);
    assert!(
        matches!(blocked.cause, Cause::Refused(_)) && blocked.to_string().contains("does not know"),
        "{blocked}"
    );
    holder.request_of(1).await.answer(holder.grant("a", "", 1));
    holder.confirm_next().await;
    drop(acquire.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_grant_of_a_status_that_is_not_known_is_claimed_and_given_back() {
    let (client, semaphore, mut holder) = client();
    let mut acquire = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut acquire).await);
    let grant = |claimed: u64, released: u64, status: &str| {
        json!({"v": 1, "round": 1, "grants": [{"id": "a", "round": 1, "group": "", "permits": 1,
            "claimed": claimed, "released": released, "status": status}]})
    };
    holder.request_of(1).await.answer(from_the_wire(grant(0, 0, "provisional")));
    let claim = holder.expect(Endpoint::Sync).await;
    assert_eq!(claim.reports(), [("a", 1, 0)]);
    assert!(waits(&mut acquire).await, "nothing runs on what is not confirmed");
    claim.answer(from_the_wire(grant(1, 0, "provisional")));
    drop(acquire.await.unwrap());
    let release = holder.expect(Endpoint::Sync).await;
    assert_eq!(release.reports(), [("a", 1, 1)]);
    release.answer(from_the_wire(grant(1, 1, "settled")));
    client.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_a_status_that_is_not_known_is_given_back() {
    let (client, semaphore, mut holder) = client();
    let mut acquire = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut acquire).await);
    let lease = |status: &str| {
        json!({"v": 1, "round": 1, "leases": [{"id": "l", "round": 1, "group": "", "permits": 5,
            "drawn": 0, "released": 0, "status": status, "ttl_ms": 60_000}]})
    };
    let asked = holder.request_of(1).await;
    asked.answer(from_the_wire(lease("on_trial")));
    holder.round = 1;
    let stopped = holder.plain().await;
    assert_eq!(stopped.leases(), [("l", 0, 0, true)]);
    stopped.answer(from_the_wire(lease("settled")));
    assert!(waits(&mut acquire).await);
    holder.request_of(1).await.answer(holder.grant("a", "", 1));
    holder.confirm_next().await;
    drop(acquire.await.unwrap());
    holder.confirm_next().await;
    client.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_status_turns_into_an_unknown_one_is_drawn_from_until_it_is_not_trusted() {
    let (_client, semaphore, mut holder) = client();
    let mut acquire = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut acquire).await);
    holder.request_of(1).await.answer(holder.lend(&[("l", "", 2)]));
    let first = acquire.await.unwrap();
    let parked = holder.parked().await;
    let reply = json!({"v": 1, "round": 1, "leases": [{"id": "l", "status": "on_trial"}]});
    parked.answer(from_the_wire(reply));
    holder.rests().await;
    let second = semaphore.try_acquire("").unwrap();
    assert!(first.is_counted() && second.is_counted());
}
