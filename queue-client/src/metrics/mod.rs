//! What a client counts. With the feature `otel` it is shown by the application's meter; without it nothing is counted.
//!
//! Authoritative for names and attributes of instruments: none has a key, a group or a client, so their number does not
//! grow with use. Nothing is counted where a permit is drawn from a lease: the ledger's marks say it later.

#[cfg(not(feature = "otel"))]
mod off;
#[cfg(feature = "otel")]
mod otel;

#[cfg(not(feature = "otel"))]
pub(crate) use off::Metrics;
#[cfg(feature = "otel")]
pub(crate) use otel::Metrics;

/// How a call to the holder ended that was answered.
pub(crate) const ANSWERED: &str = "answered";
/// How a call ended that nobody waits for any more.
pub(crate) const GIVEN_UP: &str = "given_up";
