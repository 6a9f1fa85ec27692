//! What to do about a call that got no answer, where that can be seen from the error.
//!
//! Authoritative for nothing: a text that is not known has no hint.

use std::error::Error;

use crate::error::chain;

/// Parts of texts of the libraries below, and what they mean.
const HINTS: [(&[&str], &str); 4] = [
    (
        &["InvalidContentType", "wrong version number"],
        "it does not speak TLS there: write http:// in its URL, or start the holder with --tls-cert and --tls-key",
    ),
    (
        &["invalid HTTP version", "invalid HTTP status-line", "frame with invalid size", "PROTOCOL_ERROR"],
        "it does not speak plain HTTP there: write https:// in its URL if the holder has a certificate, and look whether \
         the port is a holder's",
    ),
    (
        &["UnknownIssuer"],
        "its certificate is of an authority that is not trusted here: name that by authorities() or PGSEMAPHORE_CA",
    ),
    (
        &[
            "Connection refused",
            "onnection reset",
            "dns error",
            "failed to lookup",
            "broken pipe",
            "onnection closed",
        ],
        "look whether a holder (`pgsemaphore serve`) listens at that address",
    ),
];

/// An error with what it comes from, and what to do about it.
pub(crate) fn explained(error: &(dyn Error + 'static)) -> String {
    let text = chain(error);
    let known = HINTS.iter().find(|(parts, _)| parts.iter().any(|part| text.contains(part)));
    match known {
        Some((_, hint)) => format!("{text}; {hint}"),
        None => text,
    }
}
