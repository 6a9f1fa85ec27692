//! A service under permits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use queue_client::wire::Code;
use queue_client::{AcquireError, CallError, Endpoint, PermitError, PermitLayer};
use tokio::sync::oneshot;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::scripted::{client, problem, waits};

struct Job {
    tenant: &'static str,
    work: oneshot::Receiver<()>,
}

fn job(tenant: &'static str) -> (Job, oneshot::Sender<()>) {
    let (end, work) = oneshot::channel();
    (Job { tenant, work }, end)
}

#[tokio::test(start_paused = true)]
async fn a_request_runs_under_a_permit_of_its_group_until_its_future_ends() {
    let (_client, semaphore, mut holder) = client();
    let running = Arc::new(AtomicU64::new(0));
    let service = service_fn({
        let running = running.clone();
        move |job: Job| {
            running.fetch_add(1, Ordering::SeqCst);
            let running = running.clone();
            async move {
                let ended = job.work.await;
                running.fetch_sub(1, Ordering::SeqCst);
                ended
            }
        }
    });
    let mut service = PermitLayer::new(semaphore, |job: &Job| job.tenant).layer(service);
    let (one, end) = job("acme");
    let mut answer = service.ready().await.unwrap().call(one);
    assert!(waits(&mut answer).await);
    let request = holder.request_of(1).await;
    assert_eq!(
        (request.demand(), running.load(Ordering::SeqCst)),
        (vec![("acme", 1)], 0),
        "not before its permit"
    );
    request.answer(holder.grant("a", "acme", 1));
    holder.confirm_next().await;
    holder.rests().await;
    assert!(waits(&mut answer).await);
    assert_eq!(running.load(Ordering::SeqCst), 1);
    assert!(holder.is_quiet().await, "the permit is held");
    end.send(()).unwrap();
    answer.await.unwrap();
    assert_eq!(holder.expect(Endpoint::Sync).await.reports(), [("a", 1, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_or_fails_gives_its_permit_back() {
    for fails in [true, false] {
        let (_client, semaphore, mut holder) = client();
        let service =
            PermitLayer::new(semaphore, |job: &Job| job.tenant).layer(service_fn(|job: Job| job.work));
        let (one, end) = job("");
        let mut answer = Box::pin(service.oneshot(one));
        assert!(waits(&mut answer).await);
        holder.request_of(1).await.answer(holder.grant("a", "", 1));
        holder.confirm_next().await;
        holder.rests().await;
        assert!(waits(&mut answer).await, "it runs");
        if fails {
            drop(end);
            assert!(matches!(answer.await, Err(PermitError::Service(_))));
        } else {
            drop(answer);
        }
        assert_eq!(holder.expect(Endpoint::Sync).await.reports(), [("a", 1, 1)]);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_permit_a_request_does_not_run() {
    let (_client, semaphore, mut holder) = client();
    let service = service_fn(|_: Job| async { Err::<(), _>(tower::BoxError::from("ran")) });
    let service = PermitLayer::new(semaphore, |job: &Job| job.tenant).layer(service);
    let mut answer = Box::pin(service.oneshot(job("").0));
    assert!(waits(&mut answer).await);
    holder.request_of(1).await.answer(Err(CallError::NotFound(problem(404, Code::SemaphoreNotFound))));
    let error = answer.await.unwrap_err();
    assert!(matches!(error, PermitError::Acquire(AcquireError::SemaphoreNotFound { .. })));
    let boxed: tower::BoxError = error.into(); // also where the inner error is a boxed one
    assert!(boxed.to_string().contains("no policy covers"), "{boxed}");
}

/// As `tower::limit` does: what is ready is the one that was asked, not its clones.
#[tokio::test(start_paused = true)]
async fn the_one_that_is_ready_is_called() {
    #[derive(Default)]
    struct Inner {
        ready: bool,
    }
    impl Clone for Inner {
        fn clone(&self) -> Self {
            Self::default()
        }
    }
    impl Service<Job> for Inner {
        type Response = ();
        type Error = std::convert::Infallible;
        type Future = std::future::Ready<Result<(), Self::Error>>;

        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
            self.ready = true;
            std::task::Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Job) -> Self::Future {
            assert!(std::mem::take(&mut self.ready), "it was not asked whether it is ready");
            std::future::ready(Ok(()))
        }
    }
    let (_client, semaphore, mut holder) = client();
    let mut service = PermitLayer::new(semaphore, |job: &Job| job.tenant).layer(Inner::default());
    let mut answers: Vec<_> = Vec::new();
    for _ in 0..2 {
        let mut answer = service.ready().await.unwrap().call(job("").0);
        assert!(waits(&mut answer).await);
        answers.push(answer);
    }
    holder.request_of(2).await.answer(holder.grant("a", "", 2));
    holder.confirm_next().await;
    for answer in answers {
        answer.await.unwrap();
    }
}
