//! Services that run only under a permit, as a tower layer.
//!
//! Authoritative for when the permit is taken and how long it is held. Not authoritative for whose turn it is.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use crate::admission::Semaphore;
use crate::error::AcquireError;

/// Runs each request under a permit of a semaphore, in the group that a closure takes from the request.
///
/// - **No request runs without a permit.** The inner service is called when the permit is there, and the permit is held
///   until the inner service's future has ended, or is dropped, or panics. What a response carries on with after that,
///   such as a body that is streamed, is **not** under the permit: collect it inside, or take a permit yourself and put
///   it into the body.
/// - **Readiness comes first.** `poll_ready` is that of the inner service, and the clone that is ready waits for the
///   permit: the shared budget is never held by a request that could not run yet.
/// - **The permit is taken in `call`,** not in `poll_ready` as `tower::limit::ConcurrencyLimit` does: which group it is
///   of is known only from the request. So `poll_ready` exerts no back-pressure of the budget: put
///   `tower::load_shed` or `ConcurrencyLimit` outside to bound how many requests wait.
/// - **Clones share the semaphore,** and its queue: first in, first out within the group.
///
/// ```
/// use queue_client::{PermitLayer, QueueClient};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// struct Job { tenant: String }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = QueueClient::builder().url("http://127.0.0.1:7432").build()?;
/// let layer = PermitLayer::new(client.semaphore("account:42"), |job: &Job| job.tenant.clone());
/// let service = layer.layer(service_fn(|job: Job| async move { Ok::<_, std::io::Error>(job.tenant) }));
/// service.oneshot(Job { tenant: "nightly".to_owned() }).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct PermitLayer<F> {
    semaphore: Semaphore,
    group: F,
}

impl<F> PermitLayer<F> {
    /// A layer that takes permits of `semaphore`; `group` says of which group a request's permit is.
    pub fn new(semaphore: Semaphore, group: F) -> Self {
        Self { semaphore, group }
    }
}

impl<S, F: Clone> Layer<S> for PermitLayer<F> {
    type Service = PermitService<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        PermitService { inner, layer: self.clone() }
    }
}

/// A service whose requests run under permits; made by [`PermitLayer`].
#[derive(Debug, Clone)]
pub struct PermitService<S, F> {
    inner: S,
    layer: PermitLayer<F>,
}

impl<S, F, G, R> Service<R> for PermitService<S, F>
where
    S: Service<R> + Clone + Send + 'static,
    S::Future: Send,
    F: Fn(&R) -> G,
    G: AsRef<str>,
    R: Send + 'static,
{
    type Response = S::Response;
    type Error = PermitError<S::Error>;
    /// Cancel safe, as [`Group::acquire`](crate::Group::acquire) and the inner future are.
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(PermitError::Service)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let group = self.layer.semaphore.group((self.layer.group)(&request).as_ref());
        // The one that is ready goes with the request, a clone of it has to become ready again.
        let not_ready = self.inner.clone();
        let mut ready = std::mem::replace(&mut self.inner, not_ready);
        Box::pin(async move {
            let permit = group.acquire().await.map_err(PermitError::Acquire)?;
            let outcome = ready.call(request).await.map_err(PermitError::Service);
            drop(permit);
            outcome
        })
    }
}

/// Why a request under a [`PermitLayer`] has no response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermitError<E> {
    /// There was no permit: the request did not run.
    Acquire(AcquireError),
    /// The inner service's error.
    Service(E),
}

impl<E: fmt::Display> fmt::Display for PermitError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire(error) => error.fmt(f),
            Self::Service(error) => error.fmt(f),
        }
    }
}

// Not `E: Error`: the boxed errors of tower are none, and have to be taken too.
impl<E: fmt::Display + fmt::Debug> Error for PermitError<E> {}
