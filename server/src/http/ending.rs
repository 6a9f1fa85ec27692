//! What a holder that ends tells its callers: others answer.

use super::problem::ApiError;
use crate::holder::Holder;
use crate::refusal::Refusal;
use axum::extract::{Request, State};
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

/// Refuses new calls once the holder is to end, answers those under way when it can't wait for them any longer, and has
/// connections end with their answer. That the process lives stays true.
pub(super) async fn heed(State(holder): State<Holder>, request: Request, next: Next) -> Response {
    let version = request.version();
    let refused = holder.is_ending() && request.uri().path() != "/healthz";
    let mut answer = match refused {
        true => refusal(),
        false => tokio::select! {
            biased; // an answer that is there is given
            answer = next.run(request) => answer,
            () = holder.abandoned() => refusal(),
        },
    };
    // In HTTP/2 a frame of the connection says so.
    if holder.is_ending() && version <= Version::HTTP_11 {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

fn refusal() -> Response {
    ApiError::from(Refusal::ShuttingDown).into_response()
}
