//! The interface as an OpenAPI document, made from the handlers and from the codes each of them answers with.

use super::access::needs;
use super::problem::status;
use super::{clients, health, metrics, policies, semaphores};
use crate::access::Scope;
use axum::Json;
use axum::http::Method;
use queue_wire::{Code, Problem};
use std::collections::BTreeMap;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder, Schema};
use utoipa::{Modify, OpenApi};

/// The OpenAPI document.
pub fn document() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

#[derive(OpenApi)]
#[openapi(
    info(title = "pgsemaphore", description = "A shared concurrency budget on PostgreSQL"),
    paths(
        semaphores::request,
        semaphores::sync,
        semaphores::usage,
        semaphores::list_semaphores,
        clients::settle_client,
        clients::take_over,
        policies::list_policies,
        policies::get_policy,
        policies::put_policy,
        policies::delete_policy,
        policies::put_group_limit,
        policies::delete_group_limit,
        health::healthz,
        health::readyz,
        metrics::metrics,
        openapi,
    ),
    components(schemas(Problem)),
    modifiers(&Faults)
)]
struct Document;

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "health",
    responses((status = 200, description = "OpenAPI 3.1", content_type = "application/json")))]
pub(super) async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(document())
}

/// The security scheme of tokens.
const BEARER: &str = "bearer";

/// Adds to each operation who may call it, and the problems it answers with.
struct Faults;

impl Modify for Faults {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        offer_defaults(document);
        if let Some(components) = &mut document.components {
            components.add_security_scheme(BEARER, SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
        }
        for (path, item) in &mut document.paths.paths {
            for (method, operation) in operations(item) {
                describe(operation, needs(&method, path));
            }
        }
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
    let methods = [
        (Method::GET, &mut item.get),
        (Method::PUT, &mut item.put),
        (Method::POST, &mut item.post),
        (Method::DELETE, &mut item.delete),
    ];
    methods.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// A policy that is sent may leave out what a policy that is read always has.
fn offer_defaults(document: &mut utoipa::openapi::OpenApi) {
    let Some(components) = &mut document.components else { return };
    let Some(RefOr::T(Schema::Object(mut policy))) = components.schemas.get("Policy").cloned() else {
        return;
    };
    policy.required.clear();
    components.schemas.insert("PolicyFields".to_owned(), Schema::Object(policy).into());
}

fn describe(operation: &mut Operation, needs: Option<Scope>) {
    let mut codes = codes(operation.operation_id.as_deref().unwrap_or_default()).to_vec();
    if let Some(scope) = needs {
        codes.extend([Code::Unauthenticated, Code::Forbidden]);
        operation.security = Some(vec![SecurityRequirement::new(BEARER, [] as [&str; 0])]);
        let scope = match scope {
            Scope::Client => "For tokens of scope client, and admin.",
            Scope::Reader => "For tokens of scope reader, and admin.",
            Scope::Admin => "For tokens of scope admin.",
            Scope::Holder => "For other holders, and admin.",
        };
        operation.description = Some(scope.to_owned());
    }
    let mut by_status = BTreeMap::<u16, Vec<String>>::new();
    for code in &codes {
        let name = serde_json::to_string(code).unwrap_or_default().replace('"', "`");
        by_status.entry(status(*code).as_u16()).or_default().push(name);
    }
    for (status, codes) in by_status {
        let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
        let response = ResponseBuilder::new()
            .description(codes.join(", "))
            .content("application/problem+json", problem)
            .build();
        operation.responses.responses.insert(status.to_string(), response.into());
    }
}

/// The codes that an operation answers with; a wrong path or method never gets as far as an operation.
fn codes(operation: &str) -> &'static [Code] {
    match operation {
        "request" | "sync" => &[
            Code::InvalidJson,
            Code::InvalidRequest,
            Code::UnsupportedVersion,
            Code::SemaphoreNotFound,
            Code::RequestTimeout,
            Code::Superseded,
            Code::ClientFenced,
            Code::BodyTooLarge,
            Code::UnsupportedMediaType,
            Code::TooManyWaiting,
            Code::Unavailable,
            Code::ShuttingDown,
            Code::Internal,
        ],
        "settle_client" => &[
            Code::InvalidJson,
            Code::InvalidRequest,
            Code::ClientNotFound,
            Code::ClientHeard,
            Code::RequestTimeout,
            Code::BodyTooLarge,
            Code::UnsupportedMediaType,
            Code::Unavailable,
            Code::Internal,
        ],
        "take_over" => &[
            Code::InvalidJson,
            Code::InvalidRequest,
            Code::UnsupportedVersion,
            Code::RequestTimeout,
            Code::BodyTooLarge,
            Code::UnsupportedMediaType,
            Code::Unavailable,
            Code::ShuttingDown,
            Code::Internal,
        ],
        "put_policy" => &[
            Code::InvalidJson,
            Code::InvalidRequest,
            Code::RequestTimeout,
            Code::BodyTooLarge,
            Code::UnsupportedMediaType,
            Code::Unavailable,
            Code::Internal,
        ],
        "put_group_limit" => &[
            Code::InvalidJson,
            Code::InvalidRequest,
            Code::PolicyNotFound,
            Code::RequestTimeout,
            Code::BodyTooLarge,
            Code::UnsupportedMediaType,
            Code::Unavailable,
            Code::Internal,
        ],
        "usage" => &[Code::InvalidRequest, Code::SemaphoreNotFound, Code::Unavailable, Code::Internal],
        "get_policy" | "delete_policy" | "delete_group_limit" => {
            &[Code::InvalidRequest, Code::PolicyNotFound, Code::Unavailable, Code::Internal]
        }
        "list_semaphores" | "list_policies" => &[Code::InvalidRequest, Code::Unavailable, Code::Internal],
        "readyz" => &[Code::Unavailable, Code::Internal],
        _ => &[Code::Internal],
    }
}

#[cfg(test)]
mod tests {
    use super::document;
    use serde_json::Value;

    #[test]
    fn the_document_knows_every_code() {
        let text = serde_json::to_string(&document()).expect("a document");
        for code in [
            "invalid_json",
            "invalid_request",
            "unsupported_version",
            "unauthenticated",
            "forbidden",
            "semaphore_not_found",
            "policy_not_found",
            "client_not_found",
            "client_heard",
            "not_found",
            "method_not_allowed",
            "request_timeout",
            "superseded",
            "client_fenced",
            "body_too_large",
            "unsupported_media_type",
            "too_many_waiting",
            "unavailable",
            "shutting_down",
        ] {
            assert!(text.contains(&format!("\"{code}\"")), "{code}");
        }
    }

    #[test]
    fn a_policy_that_is_sent_may_leave_fields_out() {
        let document = serde_json::to_value(document()).expect("a document");
        let put = &document["paths"]["/v1/policies/{pattern}"]["put"];
        let schema = |part: &Value| part["content"]["application/json"]["schema"]["$ref"].clone();
        assert_eq!(schema(&put["requestBody"]), "#/components/schemas/PolicyFields");
        assert_eq!(schema(&put["responses"]["200"]), "#/components/schemas/Policy");
        let schemas = &document["components"]["schemas"];
        assert!(schemas["PolicyFields"]["properties"]["limit"].is_object());
        assert!(schemas["PolicyFields"]["required"].is_null() && schemas["Policy"]["required"].is_array());
    }

    #[test]
    fn every_operation_says_who_may_call_it() {
        let document = serde_json::to_value(document()).expect("a document");
        assert_eq!(document["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
        for (path, item) in document["paths"].as_object().expect("paths") {
            for operation in item.as_object().expect("operations").values() {
                let open = path == "/healthz" || path == "/readyz";
                for needs_token in ["security", "description"] {
                    assert_eq!(operation[needs_token].is_null(), open, "{path}");
                }
                assert_eq!(operation["responses"]["401"].is_null(), open, "{path}");
                assert_eq!(operation["responses"]["403"].is_null(), open, "{path}");
            }
        }
    }

    #[test]
    fn every_operation_says_what_can_go_wrong() {
        let document = serde_json::to_value(document()).expect("a document");
        let mut operations = 0;
        for (path, item) in document["paths"].as_object().expect("paths") {
            for (method, operation) in item.as_object().expect("operations") {
                let responses = operation["responses"].as_object().expect("responses");
                let busy = responses.get("503").and_then(|response| response["description"].as_str());
                let works = path.starts_with("/v1/") || path == "/readyz";
                assert_eq!(
                    busy.is_some_and(|codes| codes.contains("`unavailable`")),
                    works,
                    "{method} {path}"
                );
                operations += 1;
            }
        }
        assert_eq!(operations, 16);
    }
}
