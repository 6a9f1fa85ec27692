//! Every error and what it is in HTTP: one status per code, one code per error. Text of the database never leaves.

use crate::refusal::Refusal;
use crate::request::Invalid;
use crate::store::{PolicyError, SettleError, StoreError};
use crate::trouble;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use queue_wire::{BODY_MAX_BYTES, Code, Problem, SAFE_INTEGER_MAX};

/// What a 503 or 429 tells the caller to wait, in seconds.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("1");

/// Why a call is not answered with a success.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    /// The body is wrong.
    #[error(transparent)]
    Body(#[from] Invalid),
    /// A part of the path or the query is wrong.
    #[error("{detail}")]
    Part { part: &'static str, detail: String },
    #[error("the content type must be application/json: send the header content-type, as curl --json does")]
    UnsupportedMediaType,
    #[error("the body must not be compressed: send it without the header content-encoding")]
    UnsupportedEncoding,
    #[error("the body must be at most {BODY_MAX_BYTES} bytes")]
    BodyTooLarge,
    #[error("the body did not arrive in time")]
    RequestTimeout,
    /// Nobody knows who calls.
    #[error("{0}")]
    Unauthenticated(&'static str),
    /// The caller may not do this.
    #[error("{0}")]
    Forbidden(&'static str),
    /// The caller may do this, but not with this key.
    #[error("this token is not for this key")]
    ForbiddenKey,
    /// Called by a name that this machine does not have.
    #[error(
        "this holder wants no token, so it answers only calls of its own machine: call it as localhost or 127.0.0.1, \
         give it tokens (--client-token-file, --admin-token-file), or say --insecure"
    )]
    ForeignHost,
    /// A browser sent it for a page of another site.
    #[error(
        "a web page of another site sent this, as Origin or Sec-Fetch-Site says: such writes are refused"
    )]
    CrossSite,
    /// Passed on to another holder than this one, or in another database than its own.
    #[error(
        "another holder was meant, or one over another database: does its --advertise-url lead to it alone, and is the \
         database of the holder that passed this on a copy?"
    )]
    AnotherHolder,
    #[error("there is nothing at this path; GET /openapi.json lists what there is")]
    RouteNotFound,
    #[error("this path has other methods; the header Allow lists them")]
    MethodNotAllowed,
    #[error("this key has neither a policy nor state; set a policy with PUT /v1/policies/{{pattern}}")]
    SemaphoreNotFound,
    #[error("no client of this name was ever heard of on this key")]
    ClientNotFound,
    #[error("{0}; if nothing of it runs any more, pass {{\"force\": true}}")]
    ClientHeard(String),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the holder failed; its log says more")]
    Internal,
}

/// The status of a code.
pub(super) fn status(code: Code) -> StatusCode {
    match code {
        Code::InvalidJson | Code::InvalidRequest | Code::UnsupportedVersion => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::Forbidden => StatusCode::FORBIDDEN,
        Code::SemaphoreNotFound | Code::PolicyNotFound | Code::ClientNotFound | Code::NotFound => {
            StatusCode::NOT_FOUND
        }
        Code::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        Code::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
        Code::Superseded | Code::ClientFenced | Code::ClientHeard => StatusCode::CONFLICT,
        Code::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Code::TooManyWaiting => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable | Code::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
        Code::Internal | Code::Other => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl ApiError {
    fn code(&self) -> Code {
        match self {
            Self::Body(Invalid::Json(_)) => Code::InvalidJson,
            Self::Body(Invalid::Version) => Code::UnsupportedVersion,
            Self::Body(Invalid::Field { .. })
            | Self::Part { .. }
            | Self::Policy(PolicyError::Invalid { .. })
            | Self::Refused(Refusal::Invalid { .. }) => Code::InvalidRequest,
            Self::UnsupportedMediaType | Self::UnsupportedEncoding => Code::UnsupportedMediaType,
            Self::BodyTooLarge => Code::BodyTooLarge,
            Self::RequestTimeout => Code::RequestTimeout,
            Self::Unauthenticated(_) => Code::Unauthenticated,
            Self::Forbidden(_) | Self::ForbiddenKey | Self::ForeignHost | Self::CrossSite => Code::Forbidden,
            Self::RouteNotFound => Code::NotFound,
            Self::MethodNotAllowed => Code::MethodNotAllowed,
            Self::SemaphoreNotFound | Self::Refused(Refusal::SemaphoreNotFound) => Code::SemaphoreNotFound,
            Self::Refused(Refusal::Superseded) => Code::Superseded,
            Self::Refused(Refusal::Fenced { .. }) => Code::ClientFenced,
            Self::ClientNotFound => Code::ClientNotFound,
            Self::ClientHeard(_) => Code::ClientHeard,
            Self::Refused(Refusal::TooManyWaiting) => Code::TooManyWaiting,
            Self::Refused(Refusal::ShuttingDown) => Code::ShuttingDown,
            Self::Policy(PolicyError::NotFound) => Code::PolicyNotFound,
            Self::Store(_)
            | Self::Policy(PolicyError::Store(_))
            | Self::Refused(Refusal::Unavailable | Refusal::RoundsUsedUp)
            | Self::AnotherHolder => Code::Unavailable,
            Self::Internal => Code::Internal,
        }
    }

    fn field(&self) -> Option<String> {
        match self {
            Self::Body(Invalid::Field { field, .. }) => Some(field.clone()),
            Self::Part { part, .. } => Some((*part).to_owned()),
            Self::ForbiddenKey => Some("key".to_owned()),
            Self::Policy(PolicyError::Invalid { field, .. }) if field.is_empty() => Some(String::new()),
            Self::Policy(PolicyError::Invalid { field, .. }) => Some(format!("/{field}")),
            Self::Refused(Refusal::Invalid { field, .. }) => Some((*field).to_owned()),
            _ => None,
        }
    }

    fn generation(&self) -> Option<u64> {
        match self {
            Self::Refused(Refusal::Fenced { generation }) if *generation <= SAFE_INTEGER_MAX => {
                Some(*generation)
            }
            _ => None,
        }
    }

    fn problem(&self) -> Problem {
        let code = self.code();
        let status = status(code);
        let detail = match self {
            Self::Store(error) | Self::Policy(PolicyError::Store(error)) => unavailable(error),
            other => other.to_string(),
        };
        Problem {
            kind: "about:blank".to_owned(),
            title: status.canonical_reason().unwrap_or_default().to_owned(),
            status: status.as_u16(),
            code,
            detail,
            field: self.field(),
            generation: self.generation(),
            request_id: None,
        }
    }
}

/// What a caller may know of a database that did not do it: a state that an operator has to end, but no text of its own.
fn unavailable(error: &StoreError) -> String {
    match error {
        StoreError::Standby | StoreError::ReadOnly | StoreError::NotDurable | StoreError::Schema { .. } => {
            error.to_string()
        }
        _ => Refusal::Unavailable.to_string(),
    }
}

impl From<SettleError> for ApiError {
    fn from(error: SettleError) -> Self {
        match error {
            SettleError::NotFound => Self::ClientNotFound,
            SettleError::Heard(what) => Self::ClientHeard(what),
            SettleError::Store(error) => Self::Store(error),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if let Self::Store(error) | Self::Policy(PolicyError::Store(error)) = &self {
            trouble::tell(&"a call failed", error);
        }
        let problem = self.problem();
        let mut response = status(problem.code).into_response();
        // The body follows once the request's id is known; until then its length is not.
        response.headers_mut().remove(CONTENT_LENGTH);
        if matches!(problem.code, Code::TooManyWaiting | Code::Unavailable | Code::ShuttingDown) {
            response.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_S);
        }
        if matches!(self, Self::UnsupportedEncoding) {
            response.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        if problem.code == Code::Unauthenticated {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(problem);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::{ApiError, RETRY_AFTER, status};
    use crate::refusal::Refusal;
    use crate::store::{PolicyError, StoreError};
    use axum::response::IntoResponse;
    use queue_wire::{Code, Problem};

    #[test]
    fn what_may_work_later_says_when_and_tells_nothing_of_the_database() {
        let secret = || StoreError::from(sqlx::Error::Protocol("SELECT secret".to_owned()));
        for (error, code) in [
            (ApiError::Store(secret()), Code::Unavailable),
            (ApiError::Policy(PolicyError::Store(secret())), Code::Unavailable),
            (ApiError::Refused(Refusal::Unavailable), Code::Unavailable),
            (ApiError::Refused(Refusal::ShuttingDown), Code::ShuttingDown),
            (ApiError::Refused(Refusal::TooManyWaiting), Code::TooManyWaiting),
        ] {
            let response = error.into_response();
            let problem = response.extensions().get::<Problem>().expect("a problem");
            assert_eq!((problem.code, response.status()), (code, status(code)));
            assert_eq!(response.headers()[RETRY_AFTER], "1");
            assert!(!problem.detail.contains("secret"), "{}", problem.detail);
        }
        let now = ApiError::Refused(Refusal::Superseded).into_response();
        assert!(!now.headers().contains_key(RETRY_AFTER));
    }
}
