//! The bytes of a body: of the right type, not too many, not too slow, and not too many bodies at once.

use super::connection::PATIENCE;
use super::problem::ApiError;
use crate::refusal::Refusal;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http_body_util::BodyExt;
use queue_wire::BODY_MAX_BYTES;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Of a body that is too large this much is read, so that a caller that only listens after it wrote hears why.
const DRAIN_MAX_BYTES: usize = 4 * BODY_MAX_BYTES;
/// A body up to this is read as it comes; a larger one takes one of few places.
const SMALL_BYTES: usize = 64 * 1024;
/// Places of larger bodies: together they take at most as often [`BODY_MAX_BYTES`] of memory.
static PLACES: Semaphore = Semaphore::const_new(16);
/// How long a larger body waits for a place.
const PLACE_WAIT: Duration = Duration::from_secs(5);

/// A body that claims to be JSON, or claims nothing.
pub(super) struct JsonBody(pub(super) Vec<u8>);

impl<S: Sync> FromRequest<S> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        if !is_json(request.headers()) {
            return Err(ApiError::UnsupportedMediaType);
        }
        if !is_plain(request.headers()) {
            return Err(ApiError::UnsupportedEncoding);
        }
        match tokio::time::timeout(PATIENCE, read(request.into_body())).await {
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

fn is_plain(headers: &HeaderMap) -> bool {
    let encodings = headers.get_all(CONTENT_ENCODING).iter();
    encodings
        .map(|encoding| encoding.as_bytes().trim_ascii())
        .all(|encoding| encoding.eq_ignore_ascii_case(b"identity"))
}

async fn read(mut body: Body) -> Result<Vec<u8>, ApiError> {
    let mut whole = Vec::new();
    let mut length = 0;
    let mut place = None;
    while let Some(frame) = body.frame().await {
        // A connection that breaks here has nobody left to read the answer.
        let frame = frame.map_err(|_| ApiError::RequestTimeout)?;
        let data = frame.into_data().unwrap_or_else(|_| Bytes::new());
        length += data.len();
        if length > SMALL_BYTES && place.is_none() {
            place = Some(take_place().await?);
        }
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

async fn take_place() -> Result<SemaphorePermit<'static>, ApiError> {
    match tokio::time::timeout(PLACE_WAIT, PLACES.acquire()).await {
        Ok(Ok(place)) => Ok(place),
        _ => Err(Refusal::Unavailable.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Body, Bytes, FromRequest, JsonBody, PATIENCE, PLACES, SMALL_BYTES};
    use crate::http::problem::ApiError;
    use futures_util::{StreamExt as _, stream};
    use std::convert::Infallible;
    use std::time::Duration;

    /// A body of chunks, each of which takes its time; and then no end for ever.
    fn dripping(chunks: usize, bytes: usize, pause: Duration) -> Body {
        let chunk = move |_| async move {
            tokio::time::sleep(pause).await;
            Ok::<_, Infallible>(Bytes::from(vec![b' '; bytes]))
        };
        Body::from_stream(stream::iter(0..chunks).then(chunk).chain(stream::pending()))
    }

    async fn read(body: Body) -> Result<usize, ApiError> {
        JsonBody::from_request(axum::extract::Request::new(body), &()).await.map(|body| body.0.len())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_in_time_is_told_so() {
        let drip = dripping(usize::MAX, 1, PATIENCE / 50);
        assert!(matches!(read(drip).await, Err(ApiError::RequestTimeout)));
        let silence = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        assert!(matches!(read(silence).await, Err(ApiError::RequestTimeout)));
    }

    #[tokio::test(start_paused = true)]
    async fn few_large_bodies_are_read_at_once_and_any_number_of_small_ones() {
        let large = (0..PLACES.available_permits()).map(|_| read(dripping(2, SMALL_BYTES, Duration::ZERO)));
        let mut large = Box::pin(futures_util::future::join_all(large));
        while PLACES.available_permits() > 0 {
            assert!(futures_util::poll!(&mut large).is_pending());
            tokio::task::yield_now().await;
        }
        let one_more = read(Body::from(vec![b' '; SMALL_BYTES + 1])).await;
        assert!(matches!(one_more, Err(ApiError::Refused(_))), "{one_more:?}");
        assert_eq!(read(Body::from(vec![b' '; SMALL_BYTES])).await.ok(), Some(SMALL_BYTES));
        assert!(large.await.iter().all(|read| matches!(read, Err(ApiError::RequestTimeout))));
        assert_eq!(read(Body::from(vec![b' '; SMALL_BYTES + 1])).await.ok(), Some(SMALL_BYTES + 1));
    }
}
