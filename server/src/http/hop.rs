//! What a request carries that a holder passes on to its key's home, beside the body as it came.
//!
//! | header | says |
//! | --- | --- |
//! | `pgsemaphore-home` | the name of the holder that is meant; it answers with its own. Whoever else is reached, by a URL that is wrong or old, does nothing |
//! | `pgsemaphore-waited-ms` | how long ago the request arrived at the first holder |
//! | `authorization` | the token between holders |
//! | `x-request-id`, `traceparent`, `tracestate` | what they said at the first holder |
//!
//! The first holder has checked who calls and which keys are theirs. What is left of `wait_ms` is what the body says less
//! the time waited. A request that was passed on is never passed on again.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;

/// Whom a request is passed on to; and in its answer, who answers.
pub(super) const HOME: HeaderName = HeaderName::from_static("pgsemaphore-home");
/// Milliseconds since the request arrived at the first holder.
const WAITED: HeaderName = HeaderName::from_static("pgsemaphore-waited-ms");
/// What is passed on as it is.
const TRACE: [HeaderName; 3] = [
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
];
/// Longer than any request waits.
const WAITED_MAX: Duration = Duration::from_secs(600);

/// In the extensions of a request that another holder passed on.
#[derive(Debug, Clone, Copy)]
pub(super) struct PassedOn {
    /// How long ago it arrived there, by that holder's clock; never more.
    pub(super) waited: Duration,
}

impl PassedOn {
    /// What the headers of a request that was passed on say.
    pub(super) fn read(headers: &HeaderMap) -> Self {
        let waited = headers.get(WAITED).and_then(|waited| waited.to_str().ok()?.parse().ok());
        Self { waited: Duration::from_millis(waited.unwrap_or(0)).min(WAITED_MAX) }
    }
}

/// Which holder a request was passed on to, if it was.
pub(super) fn meant(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(HOME)
}

/// The headers for a holder of that name, of a request that came with `came` and has waited so long.
pub(super) fn headers(home: &str, waited: Duration, came: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    // Names of holders are hexadecimal.
    headers.extend(HeaderValue::from_str(home).map(|home| (HOME, home)));
    headers.insert(WAITED, u64::try_from(waited.as_millis()).unwrap_or(u64::MAX).into());
    for name in TRACE {
        came.get_all(&name).iter().for_each(|value| {
            headers.append(&name, value.clone());
        });
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::{HOME, PassedOn, WAITED, WAITED_MAX, headers, meant};
    use axum::http::HeaderMap;
    use std::time::Duration;

    #[test]
    fn what_is_written_is_read_and_nothing_else_is_passed_on() {
        let mut came = HeaderMap::new();
        for (name, value) in [
            ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
            ("tracestate", "a=1"),
            ("tracestate", "b=2"),
            ("x-request-id", "id"),
            ("authorization", "Bearer secret"),
            ("pgsemaphore-home", "forged"),
            ("cookie", "c"),
        ] {
            came.append(name, value.parse().unwrap());
        }
        let hop = headers("abc", Duration::from_micros(1_999), &came);
        assert_eq!(meant(&hop).unwrap(), "abc");
        assert_eq!(PassedOn::read(&hop).waited, Duration::from_millis(1));
        assert_eq!(hop["traceparent"], came["traceparent"]);
        assert_eq!(hop.get_all("tracestate").iter().collect::<Vec<_>>(), ["a=1", "b=2"]);
        assert_eq!(hop["x-request-id"], "id");
        assert_eq!(hop.keys_len(), 5);
        assert_eq!(hop.get_all(HOME).iter().count(), 1);
    }

    #[test]
    fn a_time_that_is_none_is_no_time() {
        for (text, waited) in [("", 0), ("-1", 0), ("1.5", 0), ("17", 17), ("18446744073709551615", 600_000)]
        {
            let headers = HeaderMap::from_iter([(WAITED, text.parse().unwrap())]);
            assert_eq!(PassedOn::read(&headers).waited, Duration::from_millis(waited), "{text}");
        }
        assert_eq!(WAITED_MAX, Duration::from_millis(600_000));
    }
}
