//! The default transport: JSON over HTTP to any of several holders.
//!
//! Authoritative for how statuses become [`CallError`]s and for which holder is asked. All holders share one database,
//! so any of them can answer. The one that answered last is asked first. A call goes on to the next one only when a
//! holder surely did nothing with it (no connection, or 503); after a timeout the next call starts with another holder.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use queue_wire::{Code, Message, Problem, TakenOver, Takeover};
use reqwest::header::{AUTHORIZATION, RETRY_AFTER};
use reqwest::{Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::credentials::{Bearer, Credentials};
use crate::error::BuildError;
use crate::spans;
use crate::transport::{CallError, Calling, Endpoint, Transport};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A connection that idles is closed by us before the holder does it, which waits 25 s: no call meets its end.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);
/// A round waits up to 60 s, and a busy holder somewhat longer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(90);
/// One transaction after the other for each key.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(120);
/// A connection that says nothing is asked whether it lives, so that a parked call notices a network that went away.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
/// All that RFC 3986 doesn't call unreserved, `/` included: a key is one path segment.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Talks to holders over HTTP/1.1 or HTTP/2, with TLS for `https` URLs. Clones share their connections.
///
/// It is a [`Transport`], and a `tower::Service` of [`Ask`](crate::Ask), so that layers can go around it: see
/// [`ServiceTransport`](crate::ServiceTransport).
#[derive(Debug, Clone)]
pub struct HttpTransport(Arc<Http>);

#[derive(Debug)]
struct Http {
    http: reqwest::Client,
    /// Without a slash at the end.
    holders: Vec<String>,
    first: AtomicUsize,
    bearer: Bearer,
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
        let holders = urls.iter().map(|url| holder(url.as_ref())).collect::<Result<Vec<_>, _>>()?;
        if holders.is_empty() {
            return Err(BuildError::NoHolder);
        }
        let encrypted = holders.iter().any(|url| url.starts_with("https:"));
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(credentials.tls(encrypted)?)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            .tcp_keepalive_interval(KEEPALIVE_INTERVAL)
            .tcp_keepalive_retries(KEEPALIVE_RETRIES)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(BuildError::Http)?;
        let (first, bearer) = (AtomicUsize::new(0), credentials.bearer()?);
        Ok(Self(Arc::new(Http { http, holders, first, bearer })))
    }
}

impl Http {
    /// `path` is what follows the holder's URL.
    async fn send<B: Serialize, A: DeserializeOwned>(
        &self,
        holder: &str,
        path: &str,
        timeout: Duration,
        body: &B,
    ) -> Result<A, CallError> {
        let post = spans::traced(self.http.post(format!("{holder}{path}")).timeout(timeout).json(body));
        let response = self.show_token_and_send(post).await.map_err(unreachable)?;
        if response.status() != StatusCode::OK {
            return Err(refusal(response).await);
        }
        response.json().await.map_err(unreachable)
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

    async fn send_to_any<B: Serialize, A: DeserializeOwned>(
        &self,
        path: String,
        timeout: Duration,
        body: &B,
    ) -> Result<A, CallError> {
        let mut left = self.holders.len();
        loop {
            let at = self.first.load(Ordering::Relaxed);
            let result = self.send(&self.holders[at], &path, timeout, body).await;
            left -= 1;
            let Err(error) = result else { return result };
            let elsewhere = match &error {
                CallError::Unreachable(source) => did_not_connect(source.as_ref()),
                CallError::RetryLater { .. } => true,
                _ => return Err(error),
            };
            let next = (at + 1) % self.holders.len();
            // Another call may have moved on already: then its choice stands.
            let _ = self.first.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
            if left == 0 || !elsewhere {
                return Err(error);
            }
        }
    }
}

impl Transport for HttpTransport {
    fn call<'a>(&'a self, key: &'a str, endpoint: Endpoint, message: &'a Message) -> Calling<'a> {
        let timeout = match endpoint {
            Endpoint::Request => REQUEST_TIMEOUT,
            Endpoint::Sync => SYNC_TIMEOUT,
        };
        // A parked call takes as long as it asks for, and then as long as any.
        let timeout = timeout + Duration::from_millis(message.wait_ms);
        let path = format!("/v1/semaphores/{}/{endpoint}", utf8_percent_encode(key, RESERVED));
        Box::pin(self.0.send_to_any(path, timeout, message))
    }

    fn take_over<'a>(&'a self, client_id: &'a str, takeover: &'a Takeover) -> Calling<'a, TakenOver> {
        let path = format!("/v1/clients/{}/takeover", utf8_percent_encode(client_id, RESERVED));
        Box::pin(self.0.send_to_any(path, TAKEOVER_TIMEOUT, takeover))
    }
}

fn holder(url: &str) -> Result<String, BuildError> {
    // What is before an @ is a user and a password, which errors don't tell.
    let shown = url.rsplit_once('@').map_or(url.to_owned(), |(_, rest)| format!("...@{rest}"));
    let invalid = |why: &str| BuildError::InvalidUrl { url: shown.clone(), why: why.to_owned() };
    let parsed = Url::parse(url).map_err(|error| invalid(&error.to_string()))?;
    match parsed.scheme() {
        "http" | "https" => {}
        _ => return Err(invalid("its scheme must be http or https")),
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(invalid("it must have no user and no password: give a token"));
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(invalid("it must have neither query nor fragment"));
    }
    Ok(parsed.as_str().trim_end_matches('/').to_owned())
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

async fn refusal(response: Response) -> CallError {
    let status = response.status();
    let after = response.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
    let problem = response.json::<Problem>().await.unwrap_or_else(|_| Problem {
        kind: "about:blank".to_owned(),
        title: status.canonical_reason().unwrap_or("Unknown").to_owned(),
        status: status.as_u16(),
        code: Code::Other,
        detail: "the answer is not one of a holder: is the URL right?".to_owned(),
        field: None,
        generation: None,
        request_id: None,
    });
    classify(status, after.map(Duration::from_secs), problem)
}

fn classify(status: StatusCode, after: Option<Duration>, problem: Problem) -> CallError {
    match (status, problem.code) {
        (StatusCode::NOT_FOUND, Code::SemaphoreNotFound) => CallError::NotFound(Box::new(problem)),
        (StatusCode::CONFLICT, Code::Superseded) => CallError::Superseded,
        (StatusCode::CONFLICT, Code::ClientFenced) => CallError::Fenced { generation: problem.generation },
        (StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS, _) => {
            CallError::RetryLater { after, detail: problem.detail }
        }
        _ if status.is_client_error() && status != StatusCode::CONFLICT => {
            CallError::Refused(Box::new(problem))
        }
        _ => CallError::RetryLater { after, detail: format!("{status}: {}", problem.detail) },
    }
}

#[cfg(test)]
mod tests;
