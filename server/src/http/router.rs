//! Every route, in one place. Which rights a route needs is in `access.rs`.

use super::access::{Gate, authorize};
use super::browsers::{Hosts, refuse_pages};
use super::forward::Forward;
use super::problem::ApiError;
use super::{clients, ending, health, measure, metrics, openapi, policies, request_id, semaphores};
use crate::holder::Holder;
use crate::metrics::Metrics;
use axum::Router;
use axum::extract::FromRef;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get, post, put};
use std::sync::Arc;
use tower_http::catch_panic::CatchPanicLayer;

/// What handlers work with.
#[derive(Clone, FromRef)]
pub(super) struct Service {
    pub(super) holder: Holder,
    pub(super) forward: Forward,
}

/// The routes over a holder. An empty name is an empty segment, which a `{name}` does not match: those routes are
/// spelt out, so that an empty key is told what is wrong with it and the empty group can be reached.
fn routes() -> Vec<(&'static str, MethodRouter<Service>)> {
    let key = || get(semaphores::usage);
    let request = || post(semaphores::request);
    let sync = || post(semaphores::sync);
    let settle = || post(clients::settle_client);
    let policy = || get(policies::get_policy).put(policies::put_policy).delete(policies::delete_policy);
    let group = || put(policies::put_group_limit).delete(policies::delete_group_limit);
    vec![
        ("/v1/semaphores", get(semaphores::list_semaphores)),
        ("/v1/semaphores/", key()),
        ("/v1/semaphores/{key}", key()),
        ("/v1/semaphores//request", request()),
        ("/v1/semaphores/{key}/request", request()),
        ("/v1/semaphores//sync", sync()),
        ("/v1/semaphores/{key}/sync", sync()),
        ("/v1/semaphores//clients//settle", settle()),
        ("/v1/semaphores//clients/{client_id}/settle", settle()),
        ("/v1/semaphores/{key}/clients//settle", settle()),
        ("/v1/semaphores/{key}/clients/{client_id}/settle", settle()),
        ("/v1/clients//takeover", post(clients::take_over)),
        ("/v1/clients/{client_id}/takeover", post(clients::take_over)),
        ("/v1/policies", get(policies::list_policies)),
        ("/v1/policies/", policy()),
        ("/v1/policies/{pattern}", policy()),
        ("/v1/policies//groups/", group()),
        ("/v1/policies//groups/{group}", group()),
        ("/v1/policies/{pattern}/groups/", group()),
        ("/v1/policies/{pattern}/groups/{group}", group()),
        ("/healthz", get(health::healthz)),
        ("/readyz", get(health::readyz)),
        ("/metrics", get(metrics::metrics)),
        ("/openapi.json", get(openapi::openapi)),
    ]
}

/// The paths of all routes.
pub fn paths() -> Vec<&'static str> {
    routes().into_iter().map(|(path, _)| path).collect()
}

/// The routes over a holder, for those whom the gate lets pass.
pub(super) fn router(service: Service, gate: Gate, hosts: Hosts) -> Router {
    let router = routes().into_iter().fold(Router::new(), |router, (path, route)| router.route(path, route));
    let router = router
        .route_layer(from_fn_with_state(gate, authorize))
        .fallback(async || ApiError::RouteNotFound)
        .method_not_allowed_fallback(async || ApiError::MethodNotAllowed)
        .layer(from_fn_with_state(hosts, refuse_pages))
        .layer(from_fn_with_state(service.holder.clone(), ending::heed));
    let metrics = service.holder.store().metrics().clone();
    dressed(router.with_state(service), metrics)
}

/// What concerns every answer: a panic is a problem, each is counted, and each has an id.
fn dressed(router: Router, metrics: Arc<Metrics>) -> Router {
    router
        .layer(CatchPanicLayer::custom(|_| ApiError::Internal.into_response()))
        .layer(from_fn_with_state(metrics, measure::measure))
        .layer(from_fn(request_id::identify))
}

#[cfg(test)]
mod tests {
    use super::{Arc, Router, dressed, get};
    use axum::body::Body;
    use axum::http::{Request, StatusCode};
    use http_body_util::BodyExt as _;
    use queue_wire::{Code, Problem};
    use tower::ServiceExt as _;

    #[tokio::test]
    async fn a_panic_is_a_problem_that_tells_nothing() {
        async fn fails() {
            panic!("secret, as is meant here");
        }
        let router = dressed(Router::new().route("/fails", get(fails)), Arc::default());
        let request =
            Request::get("/fails").header("x-request-id", "abc").body(Body::empty()).expect("a request");
        let answer = router.oneshot(request).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        let problem: Problem = serde_json::from_slice(&body).expect("a problem");
        assert_eq!((problem.code, problem.request_id.as_deref()), (Code::Internal, Some("abc")));
        assert!(!problem.detail.contains("secret"), "{}", problem.detail);
    }
}
