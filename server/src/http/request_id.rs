//! The id of a request: the caller's own in `x-request-id`, or a random one. It is in every answer, and in problems too.

use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use queue_wire::Problem;

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
const MAX_BYTES: usize = 128;

/// Gives the request an id, which it has from then on, and writes it and the body of a problem into the answer.
pub(super) async fn identify(mut request: Request, next: Next) -> Response {
    let id = request.headers().get(HEADER).and_then(usable).unwrap_or_else(random);
    request.headers_mut().insert(HEADER, id.clone());
    let mut response = next.run(request).await;
    if let Some(mut problem) = response.extensions_mut().remove::<Problem>() {
        problem.request_id = id.to_str().ok().map(str::to_owned);
        *response.body_mut() = serde_json::to_vec(&problem).unwrap_or_default().into();
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, kind);
    }
    response.headers_mut().insert(HEADER, id);
    response
}

/// A caller's id is taken as it is if it is short and printable.
fn usable(id: &HeaderValue) -> Option<HeaderValue> {
    let printable = id.as_bytes().iter().all(|byte| byte.is_ascii_graphic());
    (printable && (1..=MAX_BYTES).contains(&id.len())).then(|| id.clone())
}

fn random() -> HeaderValue {
    let id = format!("{:032x}", rand::random::<u128>());
    HeaderValue::from_str(&id).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}
