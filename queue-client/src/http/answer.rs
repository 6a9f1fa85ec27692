//! From an HTTP response to a reply, or to why there is none.
//!
//! Authoritative for which answers are a holder's. A holder answers 200 with JSON of the protocol, or a problem document
//! (`application/problem+json`) with a code that this version knows. Anything else is *foreign*: a balancer's 404 or 502
//! page, a login page, a compressed body that nobody asked for. It says nothing about the message, which is said again.
//! Only a redirect that calls itself permanent is an error at once: waiting does not cure it.

use std::time::Duration;

use queue_wire::{Code, Problem};
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, DATE, HeaderMap, HeaderName, LOCATION, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde::de::DeserializeOwned;

use crate::transport::CallError;

/// A body beyond this is no holder's.
const BODY_MAX_BYTES: usize = 16 * 1024 * 1024;
/// So much of a foreign header is shown to people.
const SHOWN_MAX_CHARS: usize = 200;

pub(super) async fn read<A: DeserializeOwned>(response: Response) -> Result<A, CallError> {
    let (status, headers) = (response.status(), response.headers().clone());
    if matches!(status, StatusCode::MOVED_PERMANENTLY | StatusCode::PERMANENT_REDIRECT) {
        return Err(moved(status, &headers));
    }
    let body = body(response).await?;
    if status == StatusCode::OK {
        return serde_json::from_slice(&body).map_err(|_| foreign(status, &headers));
    }
    let is_problem = shown(&headers, &CONTENT_TYPE).starts_with("application/problem+json");
    let problem = serde_json::from_slice::<Problem>(&body).ok().filter(|_| is_problem);
    match problem.filter(|problem| problem.code != Code::Other) {
        Some(problem) => Err(classify(status, retry_after(&headers), problem)),
        None => Err(foreign(status, &headers)),
    }
}

async fn body(mut response: Response) -> Result<Vec<u8>, CallError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| CallError::Unreachable(Box::new(error)))? {
        if body.len() + chunk.len() > BODY_MAX_BYTES {
            return Err(foreign(response.status(), response.headers()));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn classify(status: StatusCode, after: Option<Duration>, problem: Problem) -> CallError {
    match (status, problem.code) {
        (StatusCode::NOT_FOUND, Code::SemaphoreNotFound) => CallError::NotFound(Box::new(problem)),
        (StatusCode::CONFLICT, Code::Superseded) => CallError::Superseded,
        (StatusCode::CONFLICT, Code::ClientFenced) => CallError::Fenced { generation: problem.generation },
        (StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS, _) => {
            CallError::RetryLater { after, detail: problem.detail }
        }
        _ if status.is_client_error() && status != StatusCode::CONFLICT => {
            CallError::Refused(Box::new(problem))
        }
        _ => CallError::RetryLater { after, detail: format!("{status}: {}", problem.detail) },
    }
}

fn foreign(status: StatusCode, headers: &HeaderMap) -> CallError {
    let parts = [CONTENT_TYPE, CONTENT_ENCODING, LOCATION].map(|name| {
        let value = shown(headers, &name);
        if value.is_empty() { value } else { format!(", {name}: {value:?}") }
    });
    let detail = format!("{status}{}", parts.concat());
    CallError::Foreign { after: retry_after(headers), detail }
}

fn moved(status: StatusCode, headers: &HeaderMap) -> CallError {
    let to = shown(headers, &LOCATION);
    CallError::Refused(Box::new(Problem {
        kind: "about:blank".to_owned(),
        title: status.canonical_reason().unwrap_or_default().to_owned(),
        status: status.as_u16(),
        code: Code::Other,
        detail: format!(
            "the address redirects permanently to {to:?}, and calls do not follow redirects: \
             give the client the URL of the holders themselves"
        ),
        field: None,
        generation: None,
        request_id: None,
    }))
}

fn shown(headers: &HeaderMap, name: &HeaderName) -> String {
    let value = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.chars().take(SHOWN_MAX_CHARS).collect()
}

/// Seconds, or a date, which counts from the date of the answer itself: no clocks are compared. What is neither says
/// nothing. The driver bounds how long it obeys.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let after = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !after.is_empty() && after.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(after.parse().unwrap_or(u64::MAX)));
    }
    let now = httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()?;
    Some(httpdate::parse_http_date(after).ok()?.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// O-14: each form that `Retry-After` comes in, and what is none.
    #[test]
    fn retry_after_is_seconds_or_a_date_and_garbage_says_nothing() {
        let after = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(DATE, "Tue, 01 Dec 2026 00:00:00 GMT".parse().unwrap());
            headers.insert(RETRY_AFTER, value.parse().unwrap());
            retry_after(&headers).map(|after| after.as_secs())
        };
        assert_eq!(after("3"), Some(3));
        assert_eq!(after("18446744073709551615"), Some(u64::MAX));
        assert_eq!(after("99999999999999999999999"), Some(u64::MAX));
        assert_eq!(after("Tue, 01 Dec 2026 00:00:07 GMT"), Some(7));
        assert_eq!(after("Mon, 30 Nov 2026 00:00:00 GMT"), Some(0), "in the past");
        for garbage in ["", "-1", "1.5", "soon", "7 s", "+3"] {
            assert_eq!(after(garbage), None, "{garbage:?}");
        }
    }
}
