//! What a person sees while something waits.

use std::time::Duration;

use queue_client::wire::{Blocked, Reason, Reply};
use queue_client::{CallError, Cause};

use crate::scripted::{Holder, client, waits};

fn refusal(holder: &mut Holder, entries: &[(&str, u64, Reason)]) -> Result<Reply, CallError> {
    let reply = holder.nothing(0)?;
    let entry = |(group, count, reason): &(&str, u64, Reason)| Blocked {
        group: (*group).to_owned(),
        count: *count,
        reason: *reason,
    };
    Ok(Reply { blocked: entries.iter().map(entry).collect(), ..reply })
}

#[tokio::test(start_paused = true)]
async fn who_waits_sees_why_and_since_when() {
    let (_client, semaphore, mut holder) = client();
    let (nightly, api) = (semaphore.group("nightly"), semaphore.group("api"));
    assert_eq!((nightly.blocked(), semaphore.blocked()), (None, vec![]));
    let (mut one, mut two, mut three) =
        (Box::pin(nightly.acquire()), Box::pin(nightly.acquire()), Box::pin(api.acquire()));
    assert!(waits(&mut one).await && waits(&mut two).await && waits(&mut three).await);
    let asked = nightly.blocked().unwrap();
    assert_eq!((asked.waiting, asked.cause), (2, Cause::Asked));

    let request = holder.request_of(3).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    request.answer(refusal(&mut holder, &[("nightly", 2, Reason::GroupLimit), ("api", 1, Reason::Limit)]));
    assert!(holder.is_quiet().await);
    let limited = nightly.blocked().unwrap();
    assert_eq!(limited.cause, Cause::Refused(Reason::GroupLimit));
    assert!(limited.since > asked.since, "since it was said");
    assert!(
        limited.to_string().starts_with("2 wait in \"nightly\": the group's limit is reached, for"),
        "{limited}"
    );
    let causes: Vec<_> =
        semaphore.blocked().into_iter().map(|blocked| (blocked.group, blocked.cause)).collect();
    assert_eq!(causes[0], ("api".to_owned(), Cause::Refused(Reason::Limit)));
    assert_eq!(causes.len(), 2);

    let request = holder.request_of(3).await;
    request.answer(refusal(&mut holder, &[("nightly", 2, Reason::GroupLimit), ("api", 1, Reason::Paused)]));
    assert!(holder.is_quiet().await);
    assert_eq!(nightly.blocked().unwrap().since, limited.since, "all the time");
    let paused = api.blocked().unwrap();
    assert_eq!(paused.cause, Cause::Refused(Reason::Paused));
    assert!(paused.since > limited.since, "since the reason is new");

    drop((one, two, three));
    assert_eq!(semaphore.blocked(), []);
}

#[tokio::test(start_paused = true)]
async fn who_waits_sees_that_no_holder_answers() {
    let (_client, semaphore, mut holder) = client();
    let mut acquire = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut acquire).await);
    holder.request_of(1).await.answer(Err(CallError::Unreachable("no route".into())));
    let request = holder.request_of(1).await;
    let unreachable = semaphore.blocked().remove(0);
    assert_eq!(unreachable.cause, Cause::Unreachable);
    request.answer(Err(CallError::RetryLater { after: Some(Duration::from_secs(1)), detail: String::new() }));
    let request = holder.request_of(1).await;
    assert_eq!(semaphore.blocked()[0].since, unreachable.since, "the same outage");
    request.answer(holder.nothing(1));
    holder.confirm_next().await; // after an outage all is said that is held
    assert_eq!(semaphore.blocked()[0].cause, Cause::Refused(Reason::Limit));
}
