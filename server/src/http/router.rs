//! Every route, in one place.

use super::problem::ApiError;
use super::{clients, health, openapi, policies, request_id, semaphores};
use crate::holder::Holder;
use axum::Router;
use axum::response::IntoResponse;
use axum::routing::{get, post, put};
use tower_http::catch_panic::CatchPanicLayer;

/// The routes over a holder. An empty name is an empty segment, which a `{name}` does not match: those routes are
/// spelt out, so that an empty key is told what is wrong with it and the empty group can be reached.
pub fn router(holder: Holder) -> Router {
    let key = || get(semaphores::usage);
    let request = || post(semaphores::request);
    let sync = || post(semaphores::sync);
    let settle = || post(clients::settle_client);
    let policy = || get(policies::get_policy).put(policies::put_policy).delete(policies::delete_policy);
    let group = || put(policies::put_group_limit).delete(policies::delete_group_limit);
    Router::new()
        .route("/v1/semaphores", get(semaphores::list_semaphores))
        .route("/v1/semaphores/", key())
        .route("/v1/semaphores/{key}", key())
        .route("/v1/semaphores//request", request())
        .route("/v1/semaphores/{key}/request", request())
        .route("/v1/semaphores//sync", sync())
        .route("/v1/semaphores/{key}/sync", sync())
        .route("/v1/semaphores//clients//settle", settle())
        .route("/v1/semaphores//clients/{client_id}/settle", settle())
        .route("/v1/semaphores/{key}/clients//settle", settle())
        .route("/v1/semaphores/{key}/clients/{client_id}/settle", settle())
        .route("/v1/clients//takeover", post(clients::take_over))
        .route("/v1/clients/{client_id}/takeover", post(clients::take_over))
        .route("/v1/policies", get(policies::list_policies))
        .route("/v1/policies/", policy())
        .route("/v1/policies/{pattern}", policy())
        .route("/v1/policies//groups/", group())
        .route("/v1/policies//groups/{group}", group())
        .route("/v1/policies/{pattern}/groups/", group())
        .route("/v1/policies/{pattern}/groups/{group}", group())
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/openapi.json", get(openapi::openapi))
        .fallback(async || ApiError::RouteNotFound)
        .method_not_allowed_fallback(async || ApiError::MethodNotAllowed)
        .with_state(holder)
        .layer(CatchPanicLayer::custom(|_| ApiError::Internal.into_response()))
        .layer(axum::middleware::from_fn(request_id::identify))
}
