//! A holder in the test's own process, reached over HTTP as a client does.

use crate::{Caller, Db};
use pgsemaphore::{Holder, Settings, Store, http};
use serde_json::{Value, json};
use std::time::Duration;

/// More than a holder needs, so that transactions get in each other's way if they can.
const CONNECTIONS: u32 = 16;

/// A holder that listens on a free port of loopback.
#[must_use = "the holder is stopped with this value"]
pub struct InProcess {
    holder: Holder,
    url: String,
    client: reqwest::Client,
    server: tokio::task::JoinHandle<()>,
    /// It serves while this is there.
    _asks: tokio::sync::mpsc::Sender<()>,
}

impl InProcess {
    /// Starts a holder over a database.
    pub async fn start(url: &str) -> Self {
        Self::start_forgetting(url, Duration::from_secs(600)).await
    }

    /// Starts a holder that forgets keys which are idle for `forget_after`.
    pub async fn start_forgetting(url: &str, forget_after: Duration) -> Self {
        Self::start_with(url, CONNECTIONS, forget_after).await
    }

    /// Starts a holder with at most so many connections to its database.
    pub async fn start_with(url: &str, connections: u32, forget_after: Duration) -> Self {
        let peers = http::Peers::of(None, None, None).await.expect("a way to call other holders");
        let options = http::Options { peers: Some(peers), ..http::Options::default() };
        Self::serve(url, connections, Settings { forget_after, ..quiet() }, options).await
    }

    /// Starts a holder that passes nothing on to others.
    pub async fn start_apart(url: &str) -> Self {
        Self::serve(url, CONNECTIONS, quiet(), http::Options::default()).await
    }

    /// Starts a holder that not everybody may call.
    pub async fn start_guarded(url: &str, options: http::Options) -> Self {
        Self::serve(url, CONNECTIONS, quiet(), options).await
    }

    /// Starts a holder that looks at its database as `settings` say; others do so once.
    pub async fn start_checking(url: &str, settings: Settings) -> Self {
        Self::serve(url, CONNECTIONS, settings, http::Options::default()).await
    }

    async fn serve(url: &str, connections: u32, settings: Settings, options: http::Options) -> Self {
        let store = Store::connect(url, connections).await.expect("the test database");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let holder = Holder::start(store, url.as_str(), settings).await;
        let (asks, asked) = tokio::sync::mpsc::channel(1);
        let server = tokio::spawn(http::serve(listener, holder.clone(), options, asked));
        Self { holder, url, client: client(), server, _asks: asks }
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A caller of it.
    #[must_use]
    pub fn caller(&self) -> Caller {
        Caller::of(&self.url)
    }

    /// Sets a policy.
    pub async fn policy(&self, pattern: &str, policy: Value) {
        let path = format!("/v1/policies/{}", encode(pattern));
        let (status, body) = self.send(reqwest::Method::PUT, &path, &policy).await;
        assert_eq!(status, 200, "{body}");
    }

    /// Sends a request for `key`.
    pub async fn request(&self, key: &str, message: Value) -> (u16, Value) {
        self.send(reqwest::Method::POST, &format!("/v1/semaphores/{}/request", encode(key)), &message).await
    }

    /// Sends a sync for `key`.
    pub async fn sync(&self, key: &str, message: Value) -> (u16, Value) {
        self.send(reqwest::Method::POST, &format!("/v1/semaphores/{}/sync", encode(key)), &message).await
    }

    /// Usage of `key`, as the HTTP interface says it.
    pub async fn usage(&self, key: &str) -> Value {
        let response = self.client.get(format!("{}/v1/semaphores/{}", self.url, encode(key))).send().await;
        let response = response.expect("an answer");
        let status = response.status();
        let body = response.json().await.expect("JSON");
        assert_eq!(status, 200, "{body}");
        body
    }

    /// Sends a body; gives the status and the body of the answer.
    pub async fn send(&self, method: reqwest::Method, path: &str, body: &Value) -> (u16, Value) {
        let response = self.client.request(method, format!("{}{path}", self.url)).json(body).send().await;
        let response = response.expect("an answer");
        (response.status().as_u16(), response.json().await.unwrap_or(Value::Null))
    }

    /// The holder itself.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Stops it in order.
    pub async fn stop(self) {
        self.holder.stop().await;
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Tests count round trips and sessions.
fn quiet() -> Settings {
    Settings { self_check_every: Duration::from_secs(3600), ..Settings::default() }
}

/// A message that says who speaks, and what else `fields` say.
#[must_use]
pub fn message(client_id: &str, fields: Value) -> Value {
    let mut message = json!({"v": 1, "client_id": client_id});
    let members = fields.as_object().expect("an object").clone();
    message.as_object_mut().expect("an object").extend(members);
    message
}

/// What `verify` finds wrong with the counters of all keys; must be empty.
pub async fn verify(db: &Db) -> Vec<(String, Option<String>, String)> {
    let query = sqlx::query_as("SELECT key, grp, counter FROM pgsemaphore.verify(NULL)");
    query.fetch_all(db.pool()).await.expect("verify")
}

/// What counts of all keys, of which there must be some.
pub async fn used(db: &Db) -> i64 {
    let query = "SELECT sum(grants + leases)::bigint FROM pgsemaphore.usage";
    sqlx::query_scalar(query).fetch_one(db.pool()).await.expect("usage")
}

/// An HTTP client that keeps its connections.
#[must_use]
pub fn client() -> reqwest::Client {
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

/// One segment of a URL's path.
#[must_use]
pub fn encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}
