//! What a request carries that a holder passes on to its key's home, beside the body as it came.
//!
//! | header | says |
//! | --- | --- |
//! | `pgsemaphore-home` | the name of the holder that is meant; it answers with its own. Whoever else is reached, by a URL that is wrong or old, does nothing |
//! | `pgsemaphore-database` | the database in which the first holder found that holder; it refuses a request of another database, which may be a copy of its own |
//! | `pgsemaphore-waited-ms` | how long ago the request arrived at the first holder |
//! | `authorization` | the token between holders |
//! | `x-request-id`, `traceparent`, `tracestate` | what they said at the first holder |
//!
//! The first holder has checked who calls and which keys are theirs. What is left of `wait_ms` is what the body says less
//! the time waited. A request that was passed on is never passed on again.

use crate::homes::Peer;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;

/// Whom a request is passed on to; and in its answer, who answers.
pub(super) const HOME: HeaderName = HeaderName::from_static("pgsemaphore-home");
/// The database that both holders are to use.
const DATABASE: HeaderName = HeaderName::from_static("pgsemaphore-database");
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

/// Whether a request was passed on.
pub(super) fn is_hop(headers: &HeaderMap) -> bool {
    headers.contains_key(HOME)
}

/// The holder to which a request was passed on, and the database in which it was found.
pub(super) fn meant(headers: &HeaderMap) -> Option<(&str, &str)> {
    let text = |name| headers.get(name)?.to_str().ok();
    text(HOME).zip(text(DATABASE))
}

/// The headers for a holder, of a request that came with `came` and has waited so long.
pub(super) fn headers(home: &Peer, waited: Duration, came: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    // A name that no header can carry is not one that a holder gave itself. It is left out, and the request is refused.
    for (header, value) in [(HOME, &home.name), (DATABASE, &home.database)] {
        headers.extend(HeaderValue::from_str(value).map(|value| (header, value)));
    }
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
    use super::{HOME, PassedOn, WAITED, WAITED_MAX, headers, is_hop, meant};
    use crate::homes::Peer;
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
        let home = Peer {
            name: "abc".to_owned(),
            url: "http://h:1".to_owned(),
            database: "1/2/3".to_owned(),
            steady: true,
        };
        let hop = headers(&home, Duration::from_micros(1_999), &came);
        assert!(is_hop(&hop));
        assert_eq!(meant(&hop), Some(("abc", "1/2/3")));
        assert_eq!(PassedOn::read(&hop).waited, Duration::from_millis(1));
        assert_eq!(hop["traceparent"], came["traceparent"]);
        assert_eq!(hop.get_all("tracestate").iter().collect::<Vec<_>>(), ["a=1", "b=2"]);
        assert_eq!(hop["x-request-id"], "id");
        assert_eq!(hop.keys_len(), 6);
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
