//! Few connections to each holder, whatever the number of keys.
//!
//! Authoritative for how many connections are open and which call goes over which. Over HTTP/2 (in plain text too) all
//! that is answered at once shares one connection, so that no claim or heartbeat waits behind a call that waits; requests
//! that are not kept share a second one; calls that wait share the others, a hundred on each, which is what proxies
//! commonly allow. A connection that has calls is pinged, so that calls of a holder that hangs end within
//! [`PING_EVERY`] + [`PING_TIMEOUT`].
//!
//! An address that does not speak HTTP/2 is spoken to by HTTP/1.1, where each call under way takes a connection. A call
//! that finds no place to wait is sent as one that does not wait: the client then asks again and again.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::{Client, ClientBuilder};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::credentials::Credentials;
use crate::error::BuildError;

pub(crate) const CONNECTIONS_MIN: usize = 3;
pub(crate) const CONNECTIONS_MAX: usize = 1_000;
pub(crate) const CONNECTIONS: usize = 16;

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const PING_EVERY: Duration = Duration::from_secs(2);
const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// A connection that idles is closed by us before the holder does it, which waits 25 s: no call meets its end.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// A connection that says nothing is asked whether it lives, so that a parked call notices a network that went away.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
/// An address that answered over HTTP/1.1 alone is tried with HTTP/2 again after this.
const HTTP1_FOR_MS: u64 = 60_000;
/// Calls that wait on one HTTP/2 connection.
const WAITING_MAX: usize = 100;

/// What a call is, for its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It is answered at once.
    Speech,
    /// It may take as long as a round waits.
    Round,
    /// It is kept at the holder while there is nothing to say.
    Waiting,
}

#[derive(Debug)]
pub(super) struct Connections {
    speech: Client,
    rounds: Client,
    waiting: Vec<Client>,
    http1: Client,
    holders: Vec<Holder>,
}

/// What is known of one holder, and in use there.
#[derive(Debug)]
struct Holder {
    /// Until when it is spoken to by HTTP/1.1.
    http1_until: AtomicU64,
    /// Calls that wait, by connection.
    waiting: Vec<AtomicUsize>,
    http1: [Semaphore; 3],
}

/// The way that one call takes.
pub(super) struct Line<'a> {
    pub(super) client: &'a Client,
    pub(super) is_http1: bool,
    /// The holder may keep the call.
    pub(super) waits: bool,
    _place: Place<'a>,
}

enum Place<'a> {
    Shared,
    Waiting(&'a AtomicUsize),
    Own { _permit: SemaphorePermit<'a> },
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Self::Waiting(open) = self {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Connections {
    pub(super) fn new(
        holders: usize,
        credentials: &Credentials,
        encrypted: bool,
        most: usize,
        proxies: bool,
    ) -> Result<Self, BuildError> {
        let tls = credentials.tls(encrypted)?;
        let client = |http1: bool| {
            let mut tls = tls.clone();
            tls.alpn_protocols = vec![if http1 { b"http/1.1".to_vec() } else { b"h2".to_vec() }];
            let builder = Client::builder()
                .tls_backend_preconfigured(tls)
                .connect_timeout(CONNECT_TIMEOUT)
                .pool_idle_timeout(IDLE_TIMEOUT)
                .pool_max_idle_per_host(most)
                .tcp_keepalive(KEEPALIVE)
                .tcp_keepalive_interval(KEEPALIVE_INTERVAL)
                .tcp_keepalive_retries(KEEPALIVE_RETRIES)
                .redirect(reqwest::redirect::Policy::none());
            let builder = if http1 { builder.http1_only() } else { pinging(builder) };
            let builder = if proxies { builder } else { builder.no_proxy() };
            builder.build().map_err(BuildError::Http)
        };
        let lanes = most - 2;
        let holder = |_| Holder {
            http1_until: AtomicU64::new(0),
            waiting: (0..lanes).map(|_| AtomicUsize::new(0)).collect(),
            http1: places(most),
        };
        Ok(Self {
            speech: client(false)?,
            rounds: client(false)?,
            waiting: (0..lanes).map(|_| client(false)).collect::<Result<_, _>>()?,
            http1: client(true)?,
            holders: (0..holders).map(holder).collect(),
        })
    }

    /// Whether an address is spoken to by HTTP/1.1.
    pub(super) fn speaks_http1(&self, at: usize, now_ms: u64) -> bool {
        now_ms < self.holders[at].http1_until.load(Ordering::Relaxed)
    }

    /// An address has answered over HTTP/1.1 what it did not understand over HTTP/2.
    pub(super) fn note_http1(&self, at: usize, now_ms: u64) {
        self.holders[at].http1_until.store(now_ms.saturating_add(HTTP1_FOR_MS), Ordering::Relaxed);
    }

    /// An address does not answer over HTTP/1.1; HTTP/2 may be understood there from now on.
    pub(super) fn forget_http1(&self, at: usize) {
        self.holders[at].http1_until.store(0, Ordering::Relaxed);
    }

    /// A way for a call, which is free again when this is dropped.
    pub(super) async fn line(&self, at: usize, purpose: Purpose, http1: bool) -> Line<'_> {
        if http1 { self.line_of_http1(at, purpose).await } else { self.line_of_http2(at, purpose) }
    }

    fn line_of_http2(&self, at: usize, purpose: Purpose) -> Line<'_> {
        let shared = |client, waits| Line { client, is_http1: false, waits, _place: Place::Shared };
        if purpose == Purpose::Speech {
            return shared(&self.speech, false);
        }
        let lanes = self.waiting.iter().zip(&self.holders[at].waiting);
        let free = |open: &AtomicUsize| {
            open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| {
                (open < WAITING_MAX).then_some(open + 1)
            })
            .is_ok()
        };
        match lanes.into_iter().find(|(_, open)| purpose == Purpose::Waiting && free(open)) {
            Some((client, open)) => {
                Line { client, is_http1: false, waits: true, _place: Place::Waiting(open) }
            }
            None => shared(&self.rounds, false),
        }
    }

    async fn line_of_http1(&self, at: usize, purpose: Purpose) -> Line<'_> {
        let [speech, rounds, waiting] = &self.holders[at].http1;
        let kept = if purpose == Purpose::Waiting { waiting.try_acquire().ok() } else { None };
        let waits = kept.is_some();
        let permit = match (kept, purpose) {
            (Some(permit), _) => Some(permit),
            (None, Purpose::Speech) => speech.acquire().await.ok(),
            (None, _) => rounds.acquire().await.ok(),
        };
        let place = permit.map_or(Place::Shared, |permit| Place::Own { _permit: permit });
        Line { client: &self.http1, is_http1: true, waits, _place: place }
    }
}

fn pinging(builder: ClientBuilder) -> ClientBuilder {
    builder
        .http2_prior_knowledge()
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .http2_keep_alive_while_idle(false)
}

/// Places for what is answered at once, for rounds, and for what waits.
fn places(most: usize) -> [Semaphore; 3] {
    let (speech, rounds) = (most.div_ceil(4), most.div_ceil(4));
    [speech, rounds, most - speech - rounds].map(Semaphore::new)
}
