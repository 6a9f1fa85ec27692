//! The bytes of a body: of the right type, not too many, not too slow.

use super::problem::ApiError;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use queue_wire::BODY_MAX_BYTES;
use std::time::Duration;

/// A whole body must arrive within this.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Of a body that is too large this much is read, so that a caller that only listens after it wrote hears why.
const DRAIN_MAX_BYTES: usize = 4 * BODY_MAX_BYTES;

/// A body that claims to be JSON, or claims nothing.
pub(super) struct JsonBody(pub(super) Vec<u8>);

impl<S: Sync> FromRequest<S> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        if !is_json(request.headers()) {
            return Err(ApiError::UnsupportedMediaType);
        }
        match tokio::time::timeout(READ_TIMEOUT, read(request.into_body())).await {
            Ok(body) => body.map(Self),
            Err(_) => Err(ApiError::RequestTimeout),
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_none_or(|kind| {
        let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("application/json")
    })
}

async fn read(mut body: Body) -> Result<Vec<u8>, ApiError> {
    let mut whole = Vec::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        // A connection that breaks here has nobody left to read the answer.
        let frame = frame.map_err(|_| ApiError::RequestTimeout)?;
        let data = frame.into_data().unwrap_or_else(|_| Bytes::new());
        length += data.len();
        if length <= BODY_MAX_BYTES {
            whole.extend_from_slice(&data);
        } else if length > DRAIN_MAX_BYTES {
            break;
        } else {
            whole = Vec::new();
        }
    }
    if length <= BODY_MAX_BYTES { Ok(whole) } else { Err(ApiError::BodyTooLarge) }
}
