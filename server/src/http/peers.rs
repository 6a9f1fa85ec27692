//! How this holder calls others: its token, the authorities of their certificates, and connections.
//!
//! Authoritative for how soon a holder that went without a word is noticed. Connections are HTTP/2, a few to each
//! holder, shared by all calls: a call that is dropped is cancelled at the other side, and a holder that does not answer
//! pings ends its calls.

use super::tls::{self, TlsFiles};
use crate::access::Shown;
use crate::homes::Peer;
use crate::live::{Live, Unusable};
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use pgsemaphore_allocation::SemaphoreKey;
use rustls::ClientConfig;
use std::path::PathBuf;
use std::time::Duration;

/// A connection has to be there within this, encrypted if it is to be.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// While calls are under way the other side is asked this often whether it lives,
const PING: Duration = Duration::from_secs(1);
/// and has to answer within this. Together they are a third of what callers of this holder wait for an answer at least, so
/// that a call still has time to run here.
const PONG: Duration = Duration::from_secs(2);
/// A connection that idles is closed before the other side does it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Connections to one holder, each of which takes 4096 calls at once.
const CONNECTIONS: usize = 4;

/// How this holder calls others; clones share it.
#[derive(Debug, Clone)]
pub struct Peers {
    http: Live<Vec<reqwest::Client>>,
    token: Option<Shown>,
    /// Whether others are called by https, their certificates verified; else by http.
    encrypts: bool,
}

impl Peers {
    /// Calls others with this token. With `authorities`, a PEM file, it calls by https alone and verifies certificates. To those that want a
    /// certificate it shows the one of `own`. Files are read again when they change.
    ///
    /// # Errors
    /// A file can't be read or holds something else.
    pub async fn of(
        token: Option<Shown>,
        authorities: Option<PathBuf>,
        own: Option<TlsFiles>,
    ) -> Result<Self, Unusable> {
        let encrypts = authorities.is_some();
        let own = own.filter(|_| encrypts);
        let own_files = own.iter().flat_map(|own| [&own.certificate, &own.key]);
        let files = authorities.iter().chain(own_files).cloned().collect();
        let make = move |contents: &[Vec<u8>]| {
            let authorities = authorities.as_deref().zip(contents.first().map(Vec::as_slice));
            let own = own.as_ref().zip(contents.get(1..).and_then(<[_]>::first_chunk));
            connections(&tls::client_config(authorities, own)?, encrypts)
        };
        Ok(Self { http: Live::of(files, make).await?, token, encrypts })
    }

    /// Whether it has a token to show.
    pub(super) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Why a holder is not called; nothing if it is. Its URL is what its row says, and whoever can write that row must
    /// not choose whether the token travels in the clear: the options of this holder do.
    pub(super) fn obstacle(&self, peer: &Peer) -> Option<&'static str> {
        match (self.encrypts, peer.url.starts_with("https:")) {
            (false, true) => Some("give all holders --holder-ca"),
            (true, false) => Some(
                "its URL is http, and with --holder-ca holders are called by https alone: give it --tls-cert",
            ),
            _ => None,
        }
    }

    /// Makes a request at another holder, with these headers beside those of every call.
    pub(super) async fn request(
        &self,
        peer: &Peer,
        key: &SemaphoreKey,
        headers: HeaderMap,
        body: Bytes,
    ) -> reqwest::Result<reqwest::Response> {
        let key = utf8_percent_encode(key.as_str(), NON_ALPHANUMERIC);
        let http = self.http.current();
        let http = &http[rand::random_range(0..CONNECTIONS)];
        let mut post = http.post(format!("{}/v1/semaphores/{key}/request", peer.url)).headers(headers);
        if let Some(token) = &self.token {
            post = post.header(AUTHORIZATION, token.bearer());
        }
        post.header(CONTENT_TYPE, "application/json").body(body).send().await
    }
}

/// Each of these keeps one connection to each holder.
fn connections(tls: &ClientConfig, encrypts: bool) -> Result<Vec<reqwest::Client>, Unusable> {
    let connection = |_| {
        reqwest::Client::builder()
            .tls_backend_preconfigured(tls.clone())
            .https_only(encrypts)
            .http2_prior_knowledge()
            .http2_keep_alive_interval(PING)
            .http2_keep_alive_timeout(PONG)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|error| Unusable::new("connections to other holders", error.to_string()))
    };
    (0..CONNECTIONS).map(connection).collect()
}
