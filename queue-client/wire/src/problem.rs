//! Errors as they travel: `application/problem+json` (RFC 9457) with a stable `code`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::printable;

/// The body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// Always `about:blank`: the code says it.
    #[serde(rename = "type")]
    pub kind: String,
    /// The HTTP status in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// Stable, for programs.
    pub code: Code,
    /// What is wrong and what to do, for people.
    pub detail: String,
    /// What is wrong: a JSON Pointer into the body, or the bare name of a part of the path or the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// With `client_fenced`: the lowest generation admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The request's id, also in the header `x-request-id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// For people: what another process says of itself, on one line.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.status, printable(&self.title), printable(&self.detail))
    }
}

/// Stable codes of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each code is its own name; the API document describes them")]
pub enum Code {
    InvalidJson,
    InvalidRequest,
    UnsupportedVersion,
    Unauthenticated,
    Forbidden,
    SemaphoreNotFound,
    PolicyNotFound,
    ClientNotFound,
    NotFound,
    MethodNotAllowed,
    RequestTimeout,
    Superseded,
    ClientFenced,
    ClientHeard,
    BodyTooLarge,
    UnsupportedMediaType,
    TooManyWaiting,
    Unavailable,
    ShuttingDown,
    /// A fault of the holder itself; never caused by an input.
    Internal,
    /// A code of a newer holder.
    #[serde(other)]
    Other,
}
