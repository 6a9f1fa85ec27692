//! Counts each call, and has a span for it: what it asked for, how it was answered, and how long that took.

use crate::metrics::{CallUnderWay, Metrics, call_of};
use crate::telemetry::spans;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use std::sync::Arc;
use tracing::Instrument as _;

/// Counts the call when it is answered, or its caller hangs up.
pub(super) async fn measure(
    State(metrics): State<Arc<Metrics>>,
    mut request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let call = call_of(request.method().as_str(), route);
    let under_way = CallUnderWay::begin(metrics, call);
    let span = spans::of_call(call, request.headers_mut());
    let response = next.run(request).instrument(span.clone()).await;
    span.record("status", response.status().as_u16());
    under_way.answered(response.status().as_str());
    response
}
