//! What a holder counts, for Prometheus.

use crate::holder::Holder;
use crate::metrics;
use axum::extract::State;
use axum::http::HeaderName;
use axum::http::header::CONTENT_TYPE;

/// What this holder counts, in Prometheus's text format.
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, description = "All metrics", body = String, content_type = "text/plain")))]
pub(super) async fn metrics(State(holder): State<Holder>) -> ([(HeaderName, &'static str); 1], String) {
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::text(holder.metrics()))
}
