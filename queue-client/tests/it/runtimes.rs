//! O-13: nothing depends on one runtime having lived on. The next use of the client starts anew what a runtime that ended
//! took with it, and what was unreported is reported.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use queue_client::wire::{Code, TakenOver};
use queue_client::{AcquireError, CallError, DrainError, Endpoint, QueueClient};
use tokio::runtime::{Builder, Runtime};

use crate::scripted::{Holder, client, client_of, problem, waits};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// O-13: a waiter of another runtime, a permit and a new waiter go on when the runtime of the driver has ended.
#[test]
fn a_new_runtime_goes_on_with_what_the_old_one_left() {
    let (client, semaphore, mut holder) = client();
    let old = runtime();
    let permit = old.block_on(async {
        let mut acquire = Box::pin(semaphore.acquire(""));
        assert!(waits(&mut acquire).await);
        holder.request_of(1).await.answer(holder.grant("a", "", 1));
        holder.confirm_next().await;
        acquire.await.unwrap()
    });
    drop(old);
    drop(permit); // outside any runtime: it is due
    let new = runtime();
    new.block_on(async {
        let mut acquire = Box::pin(semaphore.acquire(""));
        assert!(waits(&mut acquire).await);
        let released = holder.expect(Endpoint::Sync).await;
        assert_eq!(released.reports(), [("a", 1, 1)], "what was unreported is reported");
        let confirmed = holder.confirm(&released);
        released.answer(confirmed);
        holder.request_of(1).await.answer(holder.grant("b", "", 1));
        holder.confirm_next().await;
        drop(acquire.await.unwrap());
        let drained = tokio::spawn(async move { client.drain().await });
        holder.confirm_next().await;
        drained.await.unwrap().unwrap();
    });
}

/// O-13: who waits on a runtime that lives starts a driver there when the one that drove has ended.
#[test]
fn a_waiter_outlives_the_runtime_that_drove_for_it() {
    let (_client, semaphore, mut holder) = client();
    let (old, new) = (runtime(), runtime());
    let mut first = Box::pin(semaphore.acquire(""));
    old.block_on(async {
        assert!(waits(&mut first).await);
        holder.request_of(1).await; // not answered
    });
    let mut second = Box::pin(semaphore.acquire(""));
    assert!(new.block_on(waits(&mut second)));
    drop(old);
    new.block_on(async {
        let both = async { tokio::join!(first, second) };
        let answer = async {
            holder.request_of(2).await.answer(holder.grant("a", "", 2));
            holder.confirm_next().await;
        };
        let ((first, second), ()) = tokio::join!(both, answer);
        drop((first.unwrap(), second.unwrap()));
    });
}

/// O-13: nobody refers to the semaphore any more, and its driver is gone: the use of another one reports what is left.
#[test]
fn what_a_forgotten_semaphore_did_not_report_is_reported_with_the_next_use() {
    let (client, semaphore, mut holder) = client();
    let old = runtime();
    old.block_on(async {
        let mut acquire = Box::pin(semaphore.acquire(""));
        assert!(waits(&mut acquire).await);
        holder.request_of(1).await.answer(holder.grant("a", "", 1));
        holder.confirm_next().await;
        drop(acquire.await.unwrap());
    });
    drop((semaphore, old));
    runtime().block_on(async {
        let other = client.semaphore("account:43");
        let mut acquire = Box::pin(other.acquire(""));
        assert!(waits(&mut acquire).await);
        let mut keys = Vec::new();
        for _ in 0..2 {
            let asked = holder.next().await;
            if asked.endpoint == Endpoint::Sync {
                assert_eq!(asked.reports(), [("a", 1, 1)]);
            }
            keys.push((asked.key.clone(), asked.endpoint));
        }
        keys.sort();
        let expected = [("account:42", Endpoint::Sync), ("account:43", Endpoint::Request)];
        assert_eq!(keys, expected.map(|(key, endpoint)| (key.to_owned(), endpoint)));
    });
}

/// O-13: the same, where a drain comes next.
#[test]
fn a_drain_reports_what_another_runtime_left() {
    let (client, semaphore, mut holder) = client();
    let old = runtime();
    old.block_on(async {
        let mut acquire = Box::pin(semaphore.acquire(""));
        assert!(waits(&mut acquire).await);
        holder.request_of(1).await.answer(holder.grant("a", "", 1));
        holder.confirm_next().await;
        drop(acquire.await.unwrap());
    });
    drop((semaphore, old));
    runtime().block_on(async {
        let drained = tokio::spawn(async move { client.drain().await });
        let released = holder.expect(Endpoint::Sync).await;
        assert_eq!(released.reports(), [("a", 1, 1)]);
        let confirmed = holder.confirm(&released);
        released.answer(confirmed);
        drained.await.unwrap().unwrap();
    });
}

/// O-13: one poll outside a runtime is an error that says so, and hurts nobody who comes after.
#[test]
fn a_poll_outside_a_runtime_is_an_error_and_no_more() {
    let (client, semaphore, mut holder) = client();
    let poll = |acquire: &mut (dyn Future<Output = _> + Unpin)| {
        std::pin::Pin::new(acquire).poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
    };
    for refused in [
        poll(&mut Box::pin(semaphore.acquire(""))).map(|acquired| acquired.map(drop)),
        poll(&mut Box::pin(semaphore.acquire_timeout("", Duration::from_secs(1))))
            .map(|acquired| acquired.map(drop)),
    ] {
        assert_eq!(refused, std::task::Poll::Ready(Err(AcquireError::NoRuntime)));
    }
    let sleepless = Builder::new_current_thread().build().unwrap();
    assert_eq!(sleepless.block_on(semaphore.acquire("")).unwrap_err(), AcquireError::NoRuntime);
    let over = runtime().handle().clone(); // of a runtime that has shut down
    assert_eq!(over.block_on(semaphore.acquire("")).unwrap_err(), AcquireError::NoRuntime);
    runtime().block_on(async {
        let mut acquire = Box::pin(semaphore.acquire(""));
        assert!(waits(&mut acquire).await);
        holder.request_of(1).await.answer(holder.grant("a", "", 1));
        holder.confirm_next().await;
        drop(acquire.await.unwrap());
    });
    assert_eq!(over.block_on(client.drain()).unwrap_err(), DrainError::NoRuntime);
}

/// O-13: a takeover that a runtime took with it is made by the next one.
#[test]
fn a_takeover_in_the_background_outlives_its_runtime() {
    let old = runtime();
    let (client, mut holder) = old.block_on(async {
        let (client, mut holder) = client_of(QueueClient::builder().client_id("worker").resume([]));
        holder.takeover().await; // not answered
        (client, holder)
    });
    drop(old);
    runtime().block_on(async {
        let semaphore = client.semaphore("account:42");
        let mut acquire = Box::pin(semaphore.acquire(""));
        assert!(waits(&mut acquire).await);
        holder.takeover().await.answer(Ok(TakenOver::default()));
        holder.rests().await;
    });
}

/// Panics once, at a line of this level.
struct Panics(tracing::Level, AtomicBool);

impl tracing::Subscriber for Panics {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let metadata = event.metadata();
        let ours = metadata.target().starts_with("queue_client") && *metadata.level() == self.0;
        assert!(!ours || self.1.swap(true, Ordering::Relaxed), "a fault of the application's layer");
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// O-13: a tracing layer that panics, at the first line of each level, ends nothing.
#[tokio::test(start_paused = true)]
async fn a_panic_in_a_tracing_layer_ends_nothing() {
    for level in [tracing::Level::ERROR, tracing::Level::WARN, tracing::Level::INFO, tracing::Level::DEBUG] {
        let _here = tracing::subscriber::set_default(Panics(level, AtomicBool::new(false)));
        let (_client, semaphore, mut holder) = client();
        let mut acquire = Box::pin(semaphore.acquire(""));
        assert!(waits(&mut acquire).await);
        holder.request_of(1).await.answer(Err(CallError::Unreachable("no route".into())));
        serve(&mut holder).await;
        let permit = acquire.await.unwrap();
        let mut refused = Box::pin(semaphore.acquire(""));
        assert!(waits(&mut refused).await);
        let problem = || CallError::Refused(problem(401, Code::Unauthenticated));
        loop {
            let asked = holder.next().await;
            let request = asked.endpoint == Endpoint::Request;
            let answer = if request { Err(problem()) } else { holder.confirm(&asked) };
            asked.answer(answer);
            holder.rests().await;
            if request {
                break;
            }
        }
        assert!(matches!(refused.await, Err(AcquireError::Refused(_))), "{level}");
        drop(permit);
        loop {
            let asked = holder.next().await;
            let released = asked.reports() == [("a", 1, 1)];
            let confirmed = holder.confirm(&asked);
            asked.answer(confirmed);
            if released {
                break;
            }
        }
    }
}

/// Grants one permit, in whatever order the client says what it says.
async fn serve(holder: &mut Holder) {
    let mut granted = false;
    loop {
        let asked = holder.next().await;
        let claimed = asked.reports() == [("a", 1, 0)];
        let answer = match asked.endpoint {
            Endpoint::Request if !granted && !asked.demand().is_empty() => {
                granted = true;
                holder.grant("a", "", 1)
            }
            _ => holder.confirm(&asked),
        };
        asked.answer(answer);
        if claimed {
            return;
        }
    }
}

/// O-13: what listens may panic when it is woken, and the client goes on.
#[tokio::test(start_paused = true)]
async fn a_panic_in_a_listener_ends_nothing() {
    struct Panics(mpsc::Sender<()>);
    impl std::task::Wake for Panics {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.send(()).unwrap();
            panic!("a fault of a listener");
        }
    }
    let (client, semaphore, mut holder) = client();
    let (woken, was_woken) = mpsc::channel();
    let mut events = client.events();
    let waker = std::sync::Arc::new(Panics(woken)).into();
    let mut next = Box::pin(events.next());
    assert!(next.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    let mut acquire = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut acquire).await);
    holder.request_of(1).await.answer(holder.grant("a", "", 1));
    holder.confirm_next().await;
    drop(acquire.await.unwrap());
    was_woken.try_recv().unwrap();
}
