//! A caller of a holder that may not be there: what cannot be reached is an answer too.

use crate::holder::encode;
use crate::until::{PAUSE, within_reason};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Speaks HTTP to one holder, whatever became of it.
#[derive(Debug, Clone)]
pub struct Caller {
    url: String,
    http: reqwest::Client,
    refused: Arc<AtomicU64>,
    unanswered: Arc<AtomicU64>,
}

/// What a caller heard.
#[derive(Debug, Clone, PartialEq)]
pub struct Heard {
    /// The HTTP status.
    pub status: u16,
    /// The body, null if it is no JSON.
    pub body: Value,
    /// The header `Retry-After`, in seconds.
    pub retry_after: Option<u64>,
}

impl Caller {
    /// A caller of the holder at this URL.
    ///
    /// # Panics
    ///
    /// When there is no HTTP client to be had.
    #[must_use]
    pub fn of(url: &str) -> Self {
        let _already_installed = rustls::crypto::ring::default_provider().install_default();
        // A connection for each call: none is broken before it is used.
        let http = reqwest::Client::builder().pool_max_idle_per_host(0).build().expect("an HTTP client");
        Self { url: url.to_owned(), http, refused: Arc::default(), unanswered: Arc::default() }
    }

    /// Sets a policy.
    ///
    /// # Panics
    ///
    /// When that is refused.
    pub async fn policy(&self, pattern: &str, policy: &Value) {
        let target = format!("/v1/policies/{}", encode(pattern));
        let heard = self.call(reqwest::Method::PUT, &target, policy).await.expect("an answer");
        assert_eq!(heard.status, 200, "{heard:?}");
    }

    /// Sends a request. None: the connection ended without an answer.
    pub async fn request(&self, key: &str, message: &Value) -> Option<Heard> {
        let target = format!("/v1/semaphores/{}/request", encode(key));
        self.call(reqwest::Method::POST, &target, message).await
    }

    /// Sends a sync. None: the connection ended without an answer.
    pub async fn sync(&self, key: &str, message: &Value) -> Option<Heard> {
        let target = format!("/v1/semaphores/{}/sync", encode(key));
        self.call(reqwest::Method::POST, &target, message).await
    }

    /// Usage of a key.
    ///
    /// # Panics
    ///
    /// When there is no answer.
    pub async fn usage(&self, key: &str) -> Value {
        let target = format!("/v1/semaphores/{}", encode(key));
        let heard = self.call(reqwest::Method::GET, &target, &Value::Null).await.expect("an answer");
        assert_eq!(heard.status, 200, "{heard:?}");
        heard.body
    }

    /// Sends the same request again until it is answered 200; every other answer must be a 503 that says when to ask
    /// again. This is all that a client has to do about outages.
    pub async fn insist(&self, key: &str, message: &Value) -> Value {
        self.insist_on("request", key, message).await
    }

    /// As [`Caller::insist`], with a sync.
    pub async fn insist_sync(&self, key: &str, message: &Value) -> Value {
        self.insist_on("sync", key, message).await
    }

    async fn insist_on(&self, endpoint: &str, key: &str, message: &Value) -> Value {
        let target = format!("/v1/semaphores/{}/{endpoint}", encode(key));
        within_reason("a 200", async {
            loop {
                match self.call(reqwest::Method::POST, &target, message).await {
                    Some(heard) if heard.status == 200 => return heard.body,
                    Some(heard) => heard.must_be_unavailable(),
                    None => {}
                }
                tokio::time::sleep(PAUSE).await;
            }
        })
        .await
    }

    /// How many calls of this caller and its clones were answered with a 503.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::SeqCst)
    }

    /// How many were not answered at all.
    #[must_use]
    pub fn unanswered(&self) -> u64 {
        self.unanswered.load(Ordering::SeqCst)
    }

    /// Any call. None: no answer, because the holder could not be reached or the connection ended.
    pub async fn call(&self, method: reqwest::Method, target: &str, body: &Value) -> Option<Heard> {
        let request = self.http.request(method, format!("{}{target}", self.url)).json(body);
        let heard = within_reason("an answer, or the end of the connection", async {
            let response = request.send().await.ok()?;
            let after = response.headers().get("retry-after");
            let retry_after = after.and_then(|after| after.to_str().ok()?.parse().ok());
            let status = response.status().as_u16();
            let body = response.bytes().await.ok()?;
            Some(Heard { status, body: serde_json::from_slice(&body).unwrap_or_default(), retry_after })
        })
        .await;
        match &heard {
            Some(heard) => self.refused.fetch_add(u64::from(heard.status == 503), Ordering::SeqCst),
            None => self.unanswered.fetch_add(1, Ordering::SeqCst),
        };
        heard
    }
}

impl Heard {
    /// The body of a 200.
    ///
    /// # Panics
    ///
    /// When it is something else.
    #[must_use]
    pub fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.body
    }

    /// The holder cannot do it now, and says when to ask again.
    ///
    /// # Panics
    ///
    /// When it says something else.
    pub fn must_be_unavailable(&self) {
        assert_eq!((self.status, &self.body["code"]), (503, &json!("unavailable")), "{self:?}");
        assert!(self.retry_after.is_some_and(|seconds| seconds >= 1), "{self:?}");
    }
}
