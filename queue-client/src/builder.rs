//! How a client is configured.
//!
//! Authoritative for defaults, and for which name and generation a process goes by.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use queue_wire::{CLIENT_ID_MAX_BYTES, SAFE_INTEGER_MAX};

use crate::client::QueueClient;
use crate::credentials::Credentials;
use crate::detached::DetachedPermit;
use crate::error::BuildError;
use crate::http::{HttpTransport, Options};
use crate::ledger::Identity;
use crate::metrics::Metrics;
use crate::own_thread::OwnThread;
use crate::transport::Transport;

/// Configures a [`QueueClient`].
///
/// | setting | unless said |
/// | --- | --- |
/// | [`url`](Self::url) | none: at least one is needed, or a transport |
/// | [`token`](Self::token), [`token_file`](Self::token_file) | no token is sent |
/// | [`authorities`](Self::authorities) | those that the system trusts |
/// | [`certificate`](Self::certificate) | none is shown |
/// | [`client_id`](Self::client_id) | the host's name and a random part: new for each start |
/// | [`generation`](Self::generation) | the time in ms since 1970 |
/// | [`resume`](Self::resume) | what earlier processes of this `client_id` held goes back |
/// | [`silent`](Self::silent) | without a log, what keeps a client from working is said on standard error |
/// | [`own_thread`](Self::own_thread) | tasks run on the runtime that acquires |
/// | [`connections`](Self::connections) | at most 16 to each holder |
/// | [`proxies_of_environment`](Self::proxies_of_environment) | no proxy is used |
/// | [`transport`](Self::transport) | [`HttpTransport`]: 3 s to connect, 10 s for a sync, 90 s for a request, and what a call waits at the holder |
///
/// [`from_env`](Self::from_env) begins with what the environment says.
#[derive(Default)]
#[must_use = "a builder does nothing until build() is called"]
pub struct Builder {
    urls: Vec<String>,
    credentials: Credentials,
    client_id: Option<String>,
    generation: Option<u64>,
    running: Option<Vec<DetachedPermit>>,
    transport: Option<Arc<dyn Transport>>,
    own_thread: bool,
    silent: bool,
    metrics: Option<Metrics>,
    http: Options,
}

impl Builder {
    /// Adds a holder, such as `http://127.0.0.1:7432`. Any holder answers any call; with several, a call goes to another
    /// one when the first can't be reached, and what is not answered in time is said to another one too. An address that
    /// did not answer is asked last until it does.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.urls.push(url.into());
        self
    }

    /// At most so many connections to each holder are open, 3 to 1000, however many semaphores are in use. Over HTTP/2 a
    /// connection carries 100 calls that wait; where only HTTP/1.1 is understood it carries one. Calls that find no
    /// connection to wait on are answered at once and repeated. Default: 16.
    pub fn connections(mut self, most: usize) -> Self {
        self.http.connections = most;
        self
    }

    /// Calls go by the proxies that `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` name. Default: these variables are
    /// ignored, since a proxy for the web seldom leads to holders.
    pub fn proxies_of_environment(mut self) -> Self {
        self.http.proxies = true;
        self
    }

    /// Sent as `Authorization: Bearer` with each call. Default: none.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.credentials = self.credentials.token(token);
        self
    }

    /// The first token in this file is sent. It is read again when a holder does not accept it any more, so that tokens
    /// can be replaced while the client runs.
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.credentials = self.credentials.token_file(path);
        self
    }

    /// Trusts holders at `https` URLs that have a certificate of one of these authorities, in PEM. Default: those that
    /// the system trusts.
    pub fn authorities(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.credentials = self.credentials.authorities(pem);
        self
    }

    /// Shows this certificate to holders that ask for one, in PEM with those between it and its authority's; and its
    /// private key, in PEM. Default: none.
    pub fn certificate(mut self, pem: impl Into<Vec<u8>>, key_pem: impl Into<Vec<u8>>) -> Self {
        self.credentials = self.credentials.certificate(pem, key_pem);
        self
    }

    /// The name of this process, 1 to 256 bytes; no two processes may use one at the same time. Default: the host's name
    /// and a random part.
    ///
    /// A process that starts under the name of an earlier one, such as `worker-7` of a fixed set, is its successor: it
    /// takes over, key by key as it first speaks of each, and on all keys by [`QueueClient::take_over`]. What the earlier
    /// one held comes back then, so it must be dead, and its items with it; if it lives all the same, it is shut out:
    /// see [`AcquireError::Fenced`]. Where items may outlive their process, see [`resume`](Self::resume).
    pub fn client_id(mut self, client_id: impl Into<String>) -> Self {
        self.client_id = Some(client_id.into());
        self
    }

    /// Which process of this `client_id` it is, 1 to 2^53 - 1: above that of every earlier one. Default: the time in ms
    /// since 1970 by this machine's clock.
    ///
    /// A process that is told of a higher one before anything was accepted from it goes on with that, once: so a clock
    /// that is behind does no harm.
    pub fn generation(mut self, generation: u64) -> Self {
        self.generation = Some(generation);
        self
    }

    /// Goes on where an earlier process of this `client_id` ended, whose items may still run: `running` are the detached
    /// permits of all jobs that do, of all keys. They stay counted, at every moment, until each is made a permit again by
    /// [`QueueClient::resume`] and dropped. Everything else that earlier processes held is released: permits that were
    /// not detached, and those of jobs that ended while nobody could tell.
    ///
    /// Call it at every start of a client that detaches permits, with none the first time; a client that is built
    /// without it declares dead what earlier processes held, detached permits too. [`build`](Self::build) must then be
    /// called within a Tokio runtime, unless the client has [a thread of its own](Self::own_thread).
    pub fn resume(mut self, running: impl IntoIterator<Item = DetachedPermit>) -> Self {
        self.running.get_or_insert_default().extend(running);
        self
    }

    /// Talks to holders on a thread of the client's own, so that heartbeats go out in time while the application blocks
    /// its runtime, and reports do after it has ended.
    ///
    /// A claim or a heartbeat that is late costs nothing but time: no permit is used that is not counted. But leases are
    /// not drawn from any longer, waiters wait, and a client that the policy takes for dead after a silence
    /// (`settle_lost_clients_after_ms`) is shut out. So use this where items compute or call blocking code, and where
    /// [`Event::HeartbeatLate`](crate::Event::HeartbeatLate) is seen. It costs a thread for each client, and a wake-up
    /// across threads for each permit that is not drawn from a lease.
    pub fn own_thread(mut self) -> Self {
        self.own_thread = true;
        self
    }

    /// Writes nothing on standard error. Default: where the process has no `tracing` subscriber, the client says there, in
    /// one line each, that no holder can be reached and that it ended without [`drain`](QueueClient::drain).
    pub fn silent(mut self) -> Self {
        self.silent = true;
        self
    }

    /// Counts by this meter. Default: that of the provider which is the global one when the client is built,
    /// `opentelemetry::global::meter("queue-client")`. Two clients in one process need a meter each, of scopes that
    /// differ: with one meter the levels of one would hide those of the other.
    ///
    /// No attribute is a key, a group or a client. The crate's README says where the metrics are listed.
    #[cfg(feature = "otel")]
    pub fn meter(mut self, meter: opentelemetry::metrics::Meter) -> Self {
        self.metrics = Some(Metrics::of(meter));
        self
    }

    /// Uses another transport than HTTP; URLs, token and certificates have no effect then.
    pub fn transport(mut self, transport: impl Transport) -> Self {
        self.transport = Some(Arc::new(transport));
        self
    }

    /// Makes the client. No I/O, but for what [`resume`](Self::resume) starts in the background.
    ///
    /// # Errors
    ///
    /// Something given is malformed, or there is neither a URL nor a transport. See [`BuildError`].
    pub fn build(self) -> Result<QueueClient, BuildError> {
        let client_id = self.client_id.unwrap_or_else(unique_client_id);
        queue_wire::check_text(&client_id, 1, CLIENT_ID_MAX_BYTES).map_err(BuildError::InvalidClientId)?;
        let generation = self.generation.unwrap_or_else(now_ms);
        if generation == 0 || generation > SAFE_INTEGER_MAX {
            return Err(BuildError::InvalidGeneration(generation));
        }
        let transport = match self.transport {
            Some(transport) => transport,
            None => Arc::new(HttpTransport::with(&self.urls, &self.credentials, self.http)?),
        };
        let own_thread =
            if self.own_thread { Some(OwnThread::start().map_err(BuildError::OwnThread)?) } else { None };
        let identity = Identity { client_id, process: random() };
        let metrics = self.metrics.unwrap_or_default();
        let running = self.running.as_deref();
        QueueClient::new(identity, generation, transport, own_thread, metrics, running, !self.silent)
    }
}

#[expect(clippy::disallowed_methods, reason = "a number that rises from start to start, not a time")]
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(SAFE_INTEGER_MAX).max(1)
}

fn unique_client_id() -> String {
    let host = gethostname::gethostname().to_string_lossy().replace('\0', "");
    let host: String = host.chars().take(48).collect();
    format!("{host}-{}", random())
}

fn random() -> String {
    format!("{:032x}", rand::random::<u128>())
}
