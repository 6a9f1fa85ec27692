//! Transports as tower services, and tower services as transports.
//!
//! Authoritative for how a call looks as a request of a [`Service`]: so timeouts, limits, load balancing and tracing
//! come from the layers that everybody knows. Not authoritative for what is sent and when it is repeated: the driver
//! is. A layer must not retry by itself; see [`Transport`].

use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use queue_wire::{Message, Reply, TakenOver, Takeover};
use tower_service::Service;

use crate::http::HttpTransport;
use crate::transport::{CallError, Calling, Endpoint, Transport};

type BoxError = Box<dyn Error + Send + Sync>;

/// What is asked of a holder.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ask {
    /// A message about one semaphore.
    Call {
        /// The semaphore's key.
        key: String,
        /// What the message is for.
        endpoint: Endpoint,
        /// The body.
        message: Message,
    },
    /// Takes over what earlier processes of a client hold, on all keys.
    TakeOver {
        /// Whose.
        client_id: String,
        /// The body.
        takeover: Takeover,
    },
}

/// What a holder answered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// To [`Ask::Call`].
    Reply(Reply),
    /// To [`Ask::TakeOver`].
    TakenOver(TakenOver),
}

impl Service<Ask> for HttpTransport {
    type Response = Answer;
    type Error = CallError;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, CallError>> + Send>>;

    /// Always ready: connections are made as they are needed.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, ask: Ask) -> Self::Future {
        let transport = self.clone();
        Box::pin(async move {
            match ask {
                Ask::Call { key, endpoint, message } => {
                    transport.call(&key, endpoint, &message).await.map(Answer::Reply)
                }
                Ask::TakeOver { client_id, takeover } => {
                    transport.take_over(&client_id, &takeover).await.map(Answer::TakenOver)
                }
            }
        })
    }
}

/// A service as a [`Transport`], such as an [`HttpTransport`] with layers around it. Each call is made on a clone.
///
/// An error that is a [`CallError`], or was one before a layer boxed it, is taken as that; any other as
/// [`CallError::Unreachable`]: the call is repeated later.
///
/// ```
/// use std::time::Duration;
///
/// use queue_client::{Credentials, HttpTransport, QueueClient, ServiceTransport};
/// use tower::Layer;
/// use tower::timeout::TimeoutLayer;
///
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let http = HttpTransport::new(&["http://127.0.0.1:7432"], &Credentials::default())?;
/// // More than the 90 s that a request may wait for its round, and the 30 s that it may be kept when it gets nothing.
/// let service = TimeoutLayer::new(Duration::from_secs(150)).layer(http);
/// let client = QueueClient::builder().transport(ServiceTransport::new(service)).build()?;
/// # Ok(())
/// # }
/// # example().unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct ServiceTransport<S>(S);

impl<S> ServiceTransport<S> {
    /// A transport that calls clones of `service`.
    pub fn new(service: S) -> Self {
        Self(service)
    }
}

impl<S> ServiceTransport<S>
where
    S: Service<Ask, Response = Answer> + Clone,
    S::Error: Into<BoxError>,
{
    async fn ask(mut service: S, ask: Ask) -> Result<Answer, CallError> {
        poll_fn(|context| service.poll_ready(context)).await.map_err(call_error)?;
        service.call(ask).await.map_err(call_error)
    }
}

impl<S> Transport for ServiceTransport<S>
where
    S: Service<Ask, Response = Answer> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    fn call<'a>(&'a self, key: &'a str, endpoint: Endpoint, message: &'a Message) -> Calling<'a> {
        let ask = Ask::Call { key: key.to_owned(), endpoint, message: message.clone() };
        let answer = Self::ask(self.0.clone(), ask);
        Box::pin(async move {
            match answer.await? {
                Answer::Reply(reply) => Ok(reply),
                Answer::TakenOver(_) => Err(mixed_up()),
            }
        })
    }

    fn take_over<'a>(&'a self, client_id: &'a str, takeover: &'a Takeover) -> Calling<'a, TakenOver> {
        let ask = Ask::TakeOver { client_id: client_id.to_owned(), takeover: takeover.clone() };
        let answer = Self::ask(self.0.clone(), ask);
        Box::pin(async move {
            match answer.await? {
                Answer::TakenOver(taken) => Ok(taken),
                Answer::Reply(_) => Err(mixed_up()),
            }
        })
    }
}

fn call_error(error: impl Into<BoxError>) -> CallError {
    match error.into().downcast() {
        Ok(error) => *error,
        Err(error) => CallError::Unreachable(error),
    }
}

fn mixed_up() -> CallError {
    CallError::Unreachable("the service answered something else than it was asked".into())
}
