//! The default transport: JSON over HTTP to any of several holders.
//!
//! Authoritative for how long a call may take and for going on to another address. Not authoritative for the choice of
//! the address (`addresses.rs`), for connections (`http/connections.rs`), or for what an answer means (`http/answer.rs`).
//! A call goes on to the next address when a holder surely did nothing with it or its answer says nothing: no
//! connection, 503, a foreign answer. After a timeout it fails, and the driver repeats it.

mod answer;
pub(crate) mod connections;

use std::error::Error;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use queue_wire::{Message, TakenOver, Takeover};
use reqwest::header::AUTHORIZATION;
use reqwest::{Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use crate::addresses::{Addresses, Begun, Ended};
use crate::credentials::{Bearer, Credentials};
use crate::error::BuildError;
use crate::holder_url::holder;
use crate::spans;
use crate::transport::{CallError, Calling, Endpoint, Transport};
use connections::{
    CONNECT_TIMEOUT, CONNECTIONS, CONNECTIONS_MAX, CONNECTIONS_MIN, Connections, Line, Purpose,
};

const SYNC_TIMEOUT: Duration = Duration::from_secs(10);
/// A round waits up to 60 s, and a busy holder somewhat longer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(90);
/// One transaction after the other for each key.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(120);
/// An address that has to show that it lives may take this long, and is asked this often while a call waits there.
const LIFE_TIMEOUT: Duration = Duration::from_secs(3);
/// All that RFC 3986 doesn't call unreserved, `/` included: a key is one path segment.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Talks to holders over HTTP/2 or HTTP/1.1, with TLS for `https` URLs. Clones share their connections.
///
/// It is a [`Transport`], and a `tower::Service` of [`Ask`](crate::Ask), so that layers can go around it: see
/// [`ServiceTransport`](crate::ServiceTransport).
#[derive(Debug, Clone)]
pub struct HttpTransport(Arc<Http>);

/// How an [`HttpTransport`] reaches holders.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Connections to each holder.
    pub(crate) connections: usize,
    /// Proxies of the environment are used.
    pub(crate) proxies: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { connections: CONNECTIONS, proxies: false }
    }
}

#[derive(Debug)]
struct Http {
    connections: Connections,
    /// Without a slash at the end.
    holders: Vec<String>,
    addresses: Mutex<Addresses>,
    /// What the milliseconds of `addresses` count from.
    started: Instant,
    bearer: Bearer,
}

/// What is sent, and how.
struct Post<'a, B> {
    /// What follows the holder's URL.
    path: String,
    timeout: Duration,
    purpose: Purpose,
    /// See [`Addresses::begin`].
    about: Option<&'a str>,
    body: &'a B,
    /// In place of `body` where no connection is left on which a call may wait.
    unkept: Option<&'a B>,
}

/// A call at an address; nobody waits for it any longer if it is dropped before its end.
struct Call<'a> {
    http: &'a Http,
    begun: Begun,
}

impl Call<'_> {
    fn end(&self, ended: Ended) {
        self.http.addresses().end(self.begun.call, ended, self.http.now_ms());
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.end(Ended::GivenUp);
    }
}

impl HttpTransport {
    /// A transport to the holders at `urls`, each `http://HOST:PORT` or `https://HOST`, with or without a path before
    /// the protocol's own.
    ///
    /// # Errors
    ///
    /// A URL or a credential is malformed, there is no URL, or an `https` URL is given without authorities and the
    /// system has no usable root certificates.
    pub fn new<U: AsRef<str>>(urls: &[U], credentials: &Credentials) -> Result<Self, BuildError> {
        Self::with(urls, credentials, Options::default())
    }

    pub(crate) fn with<U: AsRef<str>>(
        urls: &[U],
        credentials: &Credentials,
        options: Options,
    ) -> Result<Self, BuildError> {
        let holders = urls.iter().map(|url| holder(url.as_ref())).collect::<Result<Vec<_>, _>>()?;
        if holders.is_empty() {
            return Err(BuildError::NoHolder);
        }
        let Options { connections, proxies } = options;
        if !(CONNECTIONS_MIN..=CONNECTIONS_MAX).contains(&connections) {
            return Err(BuildError::InvalidConnections(connections));
        }
        let encrypted = holders.iter().any(|url| url.starts_with("https:"));
        let connections = Connections::new(holders.len(), credentials, encrypted, connections, proxies)?;
        let addresses = Mutex::new(Addresses::new(holders.len()));
        let bearer = credentials.bearer()?;
        Ok(Self(Arc::new(Http { connections, holders, addresses, started: Instant::now(), bearer })))
    }
}

impl Http {
    fn addresses(&self) -> MutexGuard<'_, Addresses> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    async fn send_to_any<B: Serialize, A: DeserializeOwned>(
        self: &Arc<Self>,
        post: Post<'_, B>,
    ) -> Result<A, CallError> {
        let mut tried = Vec::new();
        loop {
            self.probe();
            let begun = self.addresses().begin(post.about, &tried, self.now_ms());
            let call = Call { http: self, begun };
            let result = self.send(begun.at, &post).await;
            let (ended, goes_on) = match &result {
                Ok(_) => (Ended::Answered, false),
                Err(CallError::Unreachable(source)) => (Ended::Failed, did_not_connect(source.as_ref())),
                Err(CallError::RetryLater { .. } | CallError::Foreign { .. }) => (Ended::Failed, true),
                Err(_) => (Ended::Answered, false),
            };
            call.end(ended);
            tried.push(begun.at);
            if !goes_on || tried.len() == self.holders.len() {
                return result;
            }
        }
    }

    /// Sends to one address: by HTTP/2, and by HTTP/1.1 if that is not understood there.
    async fn send<B: Serialize, A: DeserializeOwned>(
        &self,
        at: usize,
        post: &Post<'_, B>,
    ) -> Result<A, CallError> {
        if self.connections.speaks_http1(at, self.now_ms()) {
            let result = self.send_over(at, post, true).await;
            if matches!(result, Err(CallError::Unreachable(_))) {
                self.connections.forget_http1(at);
            }
            return result;
        }
        let began = Instant::now();
        let result = self.send_over(at, post, false).await;
        // A holder that hangs takes longer to fail.
        let Err(CallError::Unreachable(error)) = result else { return result };
        if began.elapsed() >= CONNECT_TIMEOUT {
            return Err(CallError::Unreachable(error));
        }
        match self.send_over(at, post, true).await {
            Err(CallError::Unreachable(_)) => Err(CallError::Unreachable(error)),
            result => {
                self.connections.note_http1(at, self.now_ms());
                result
            }
        }
    }

    async fn send_over<B: Serialize, A: DeserializeOwned>(
        &self,
        at: usize,
        post: &Post<'_, B>,
        http1: bool,
    ) -> Result<A, CallError> {
        let line = timeout(post.timeout, self.connections.line(at, post.purpose, http1)).await;
        let line = line.map_err(|_| CallError::Unreachable("all connections are in use".into()))?;
        let body = if line.waits { post.body } else { post.unkept.unwrap_or(post.body) };
        let request = line.client.post(format!("{}{}", self.holders[at], post.path));
        let request = spans::traced(request.timeout(post.timeout).json(body));
        let answer =
            async { answer::read(self.show_token_and_send(request).await.map_err(unreachable)?).await };
        self.while_it_lives(at, &line, answer).await
    }

    /// Over HTTP/2 the connection itself shows that the other side lives; over HTTP/1.1 another call does.
    async fn while_it_lives<A>(
        &self,
        at: usize,
        line: &Line<'_>,
        answer: impl Future<Output = Result<A, CallError>>,
    ) -> Result<A, CallError> {
        if !line.is_http1 || !line.waits {
            return answer.await;
        }
        let mut answer = pin!(answer);
        loop {
            tokio::select! {
                answer = &mut answer => return answer,
                () = sleep(LIFE_TIMEOUT) => {}
            }
            tokio::select! {
                answer = &mut answer => return answer,
                lives = self.shows_life(at, true) => if !lives {
                    return Err(CallError::Unreachable("the address shows no sign of life".into()));
                }
            }
        }
    }

    /// Whether the address answers a cheap call.
    async fn shows_life(&self, at: usize, http1: bool) -> bool {
        let answered = async {
            let line = self.connections.line(at, Purpose::Speech, http1).await;
            let request = line.client.get(format!("{}/healthz", self.holders[at]));
            request.send().await.is_ok_and(|response| response.status() == StatusCode::OK)
        };
        timeout(LIFE_TIMEOUT, answered).await.unwrap_or(false)
    }

    /// Asks an address that is in trouble or silent whether it lives, in the background.
    fn probe(self: &Arc<Self>) {
        let now_ms = self.now_ms();
        let Some(at) = self.addresses().to_probe(now_ms) else { return };
        let http = self.clone();
        tokio::spawn(async move {
            let lives = http.shows_life(at, http.connections.speaks_http1(at, now_ms)).await;
            let (mut addresses, now_ms) = (http.addresses(), http.now_ms());
            if lives { addresses.lives(at, now_ms) } else { addresses.is_silent(at, now_ms) }
        });
    }

    /// A token that is not accepted may have been replaced: then it is sent once more, with the new one.
    async fn show_token_and_send(&self, request: reqwest::RequestBuilder) -> reqwest::Result<Response> {
        let shown = self.bearer.header();
        let again = request.try_clone();
        let response = with(request, shown.as_ref()).send().await?;
        match again {
            Some(again)
                if response.status() == StatusCode::UNAUTHORIZED
                    && self.bearer.renewed(shown.as_ref()).await =>
            {
                with(again, self.bearer.header().as_ref()).send().await
            }
            _ => Ok(response),
        }
    }

    async fn call(
        self: &Arc<Self>,
        key: &str,
        endpoint: Endpoint,
        message: &Message,
    ) -> Result<queue_wire::Reply, CallError> {
        let wait = Duration::from_millis(message.wait_ms);
        let (purpose, timeout) = match (endpoint, message.wait_ms) {
            (Endpoint::Request, 0) => (Purpose::Round, REQUEST_TIMEOUT),
            (Endpoint::Sync, 0) => (Purpose::Speech, SYNC_TIMEOUT),
            // A call that waits takes as long as it asks for, and then as long as any.
            (Endpoint::Request, _) => (Purpose::Waiting, REQUEST_TIMEOUT + wait),
            (Endpoint::Sync, _) => (Purpose::Waiting, SYNC_TIMEOUT + wait),
        };
        let mut unkept = None;
        if purpose == Purpose::Waiting {
            unkept = Some(Message { wait_ms: 0, ..message.clone() });
        }
        self.send_to_any(Post {
            path: format!("/v1/semaphores/{}/{endpoint}", utf8_percent_encode(key, RESERVED)),
            timeout,
            purpose,
            about: (purpose == Purpose::Speech).then_some(key),
            body: message,
            unkept: unkept.as_ref(),
        })
        .await
    }

    async fn take_over(
        self: &Arc<Self>,
        client_id: &str,
        takeover: &Takeover,
    ) -> Result<TakenOver, CallError> {
        self.send_to_any(Post {
            path: format!("/v1/clients/{}/takeover", utf8_percent_encode(client_id, RESERVED)),
            timeout: TAKEOVER_TIMEOUT,
            purpose: Purpose::Round,
            about: None,
            body: takeover,
            unkept: None,
        })
        .await
    }
}

impl Transport for HttpTransport {
    fn call<'a>(&'a self, key: &'a str, endpoint: Endpoint, message: &'a Message) -> Calling<'a> {
        Box::pin(self.0.call(key, endpoint, message))
    }

    fn take_over<'a>(&'a self, client_id: &'a str, takeover: &'a Takeover) -> Calling<'a, TakenOver> {
        Box::pin(self.0.take_over(client_id, takeover))
    }
}

fn with(
    request: reqwest::RequestBuilder,
    bearer: Option<&reqwest::header::HeaderValue>,
) -> reqwest::RequestBuilder {
    match bearer {
        Some(bearer) => request.header(AUTHORIZATION, bearer),
        None => request,
    }
}

fn unreachable(error: reqwest::Error) -> CallError {
    CallError::Unreachable(Box::new(error))
}

fn did_not_connect(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    error.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_connect)
}

#[cfg(test)]
mod tests;
