//! Spans: a call over HTTP, a transaction, an attempt at it. They show in logs, and by OTLP as a trace.
//!
//! A call goes on with the trace that its header `traceparent` names, and whom it is passed on to goes on with its own
//! span. A transaction is part of the trace of the call that waited longest, and linked to the others that it serves.

use axum::http::HeaderMap;
use std::fmt::Display;
use tracing::Span;
use tracing::field::Empty;

/// Calls that are made every few seconds and say nothing.
const UNTRACED: [&str; 3] = ["healthz", "readyz", "metrics"];

/// A call over HTTP, of which these are the headers. They carry its own span from now on.
pub(crate) fn of_call(call: &'static str, headers: &mut HeaderMap) -> Span {
    if UNTRACED.contains(&call) {
        return Span::none();
    }
    let id = headers.get("x-request-id").and_then(|id| id.to_str().ok());
    let span = tracing::info_span!("request", call, id, status = Empty, otel.kind = Empty);
    continue_trace(&span, headers);
    span
}

/// A transaction for the calls of these spans.
pub(crate) fn of_transaction<'a>(
    key: &dyn Display,
    kind: &'static str,
    mut calls: impl ExactSizeIterator<Item = &'a Span>,
) -> Span {
    let number = calls.len();
    let first = calls.next().and_then(Span::id);
    let span = tracing::info_span!(parent: first, "transaction", %key, kind, calls = number);
    for call in calls {
        span.follows_from(call);
    }
    span
}

/// An attempt at a transaction.
pub(crate) fn of_attempt(transaction: &'static str, attempt: usize) -> Span {
    tracing::info_span!("attempt", transaction, attempt, error = Empty)
}

#[cfg(feature = "otlp")]
fn continue_trace(span: &Span, headers: &mut HeaderMap) {
    use opentelemetry::propagation::TextMapPropagator as _;
    use opentelemetry_http::{HeaderExtractor, HeaderInjector};
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    let propagator = TraceContextPropagator::new();
    if span.set_parent(propagator.extract(&HeaderExtractor(headers))).is_ok() {
        span.record("otel.kind", "server");
        propagator.inject_context(&span.context(), &mut HeaderInjector(headers));
    }
}

#[cfg(not(feature = "otlp"))]
fn continue_trace(_: &Span, _: &mut HeaderMap) {}
