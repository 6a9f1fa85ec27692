//! How often a worker calls the holder, whatever for: each call is a round trip, one that is parked there too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use queue_client::wire::{Message, TakenOver, Takeover};
use queue_client::{Calling, Endpoint, HttpTransport, Transport};

/// HTTP, counted.
pub(super) struct Counting {
    http: HttpTransport,
    calls: Arc<AtomicU64>,
}

impl Counting {
    /// Adds each call over `http` to `calls`.
    pub(super) fn new(http: HttpTransport, calls: Arc<AtomicU64>) -> Self {
        Self { http, calls }
    }
}

impl Transport for Counting {
    fn call<'a>(&'a self, key: &'a str, endpoint: Endpoint, message: &'a Message) -> Calling<'a> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.http.call(key, endpoint, message)
    }

    fn take_over<'a>(&'a self, client_id: &'a str, takeover: &'a Takeover) -> Calling<'a, TakenOver> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.http.take_over(client_id, takeover)
    }
}
