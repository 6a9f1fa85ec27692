//! Spans of who waits for permits, and of calls to the holder, which carry their trace. Only with the feature `otel`.
//!
//! One call speaks for all who wait: it is part of the trace of the one that waited longest, and linked to the others.

use reqwest::RequestBuilder;
use tracing::Span;

use crate::transport::Endpoint;

#[cfg(feature = "otel")]
pub(crate) fn of_acquire(key: &str, group: &str) -> Span {
    tracing::info_span!("acquire", key, group)
}

#[cfg(feature = "otel")]
pub(crate) fn of_call<'a>(
    key: &str,
    endpoint: Endpoint,
    mut waiting: impl Iterator<Item = &'a Span>,
) -> Span {
    let first = waiting.next().and_then(Span::id);
    let span = tracing::info_span!(parent: first, "call", key, %endpoint, otel.kind = "client");
    for other in waiting {
        span.follows_from(other);
    }
    span
}

/// A call with the trace of the present span, as the application's propagator writes it.
#[cfg(feature = "otel")]
pub(crate) fn traced(request: RequestBuilder) -> RequestBuilder {
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    let mut headers = Headers::default();
    let context = Span::current().context();
    opentelemetry::global::get_text_map_propagator(|propagator| {
        propagator.inject_context(&context, &mut headers)
    });
    request.headers(headers.0)
}

#[cfg(feature = "otel")]
#[derive(Default)]
struct Headers(reqwest::header::HeaderMap);

#[cfg(feature = "otel")]
impl opentelemetry::propagation::Injector for Headers {
    fn set(&mut self, name: &str, value: String) {
        let name = reqwest::header::HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, value.parse()) {
            self.0.insert(name, value);
        }
    }
}

#[cfg(not(feature = "otel"))]
pub(crate) fn of_acquire(_: &str, _: &str) -> Span {
    Span::none()
}

#[cfg(not(feature = "otel"))]
pub(crate) fn of_call<'a>(_: &str, _: Endpoint, _: impl Iterator<Item = &'a Span>) -> Span {
    Span::none()
}

#[cfg(not(feature = "otel"))]
pub(crate) fn traced(request: RequestBuilder) -> RequestBuilder {
    request
}
