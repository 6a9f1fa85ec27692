//! Calls of a collector over HTTP, which remember why the latest failed: the exporter says "network error" of any.

use axum::body::Bytes;
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

/// Why the latest call failed, until somebody tells it.
#[derive(Debug, Clone, Default)]
pub(super) struct Why(Arc<Mutex<Option<String>>>);

impl Why {
    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, error: &(dyn Error + 'static)) {
        let sources = std::iter::successors(error.source(), |&error| error.source());
        let text = sources.fold(error.to_string(), |text, source| format!("{text}: {source}"));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }
}

/// Makes the calls.
#[derive(Debug)]
pub(super) struct Http {
    client: reqwest::Client,
    why: Why,
}

impl Http {
    pub(super) fn new(client: reqwest::Client, why: &Why) -> Self {
        Self { client, why: why.clone() }
    }
}

impl HttpClient for Http {
    fn send_bytes<'life0, 'async_trait>(
        &'life0 self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let sent = self.client.send_bytes(request).await;
            sent.inspect_err(|error| self.why.set(error.as_ref()))
        })
    }
}
