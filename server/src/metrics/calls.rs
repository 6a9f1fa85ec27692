//! Calls over HTTP: what they are named, and how each is counted once, also if its caller hangs up.

use super::Metrics;
use crate::clock;
use std::sync::Arc;
use std::time::Instant;

/// How a call counts whose caller hung up before it was answered.
const HUNG_UP: &str = "499";

/// The name of an operation in metrics and traces; a path that is none has one name for all.
pub(crate) fn call_of(method: &str, route: Option<&str>) -> &'static str {
    // Empty names have routes of their own.
    let route = route.map(|route| route.replace("//", "/{}/"));
    let mut parts = route
        .as_deref()
        .unwrap_or_default()
        .split('/')
        .skip(1)
        .map(|part| if part.is_empty() || part.starts_with('{') { "{}" } else { part });
    let parts = (parts.next(), parts.next(), parts.next(), parts.next(), parts.next());
    match (method, parts) {
        ("POST", (_, _, Some("{}"), Some("request"), None)) => "request",
        ("POST", (_, _, Some("{}"), Some("sync"), None)) => "sync",
        ("POST", (_, _, Some("{}"), Some("takeover"), None)) => "takeover",
        ("POST", (_, _, Some("{}"), Some("clients"), Some(_))) => "settle",
        ("GET", (_, Some("semaphores"), None, ..)) => "list_semaphores",
        ("GET", (_, Some("semaphores"), Some(_), None, _)) => "usage",
        ("GET", (_, Some("policies"), None, ..)) => "list_policies",
        ("GET", (_, Some("policies"), Some(_), None, _)) => "get_policy",
        ("PUT", (_, Some("policies"), Some(_), None, _)) => "put_policy",
        ("DELETE", (_, Some("policies"), Some(_), None, _)) => "delete_policy",
        ("PUT", (_, Some("policies"), Some(_), Some("groups"), _)) => "put_group_limit",
        ("DELETE", (_, Some("policies"), Some(_), Some("groups"), _)) => "delete_group_limit",
        ("GET", (Some("healthz"), ..)) => "healthz",
        ("GET", (Some("readyz"), ..)) => "readyz",
        ("GET", (Some("metrics"), ..)) => "metrics",
        ("GET", (Some("openapi.json"), ..)) => "openapi",
        _ => "other",
    }
}

/// A call that is under way.
pub(crate) struct CallUnderWay {
    metrics: Arc<Metrics>,
    call: &'static str,
    began: Instant,
    /// Three digits, once it is answered.
    status: Option<String>,
}

impl CallUnderWay {
    pub(crate) fn begin(metrics: Arc<Metrics>, call: &'static str) -> Self {
        Self { metrics, call, began: clock::now(), status: None }
    }

    pub(crate) fn answered(mut self, status: &str) {
        self.status = Some(status.to_owned());
    }
}

impl Drop for CallUnderWay {
    fn drop(&mut self) {
        let status = self.status.take().map_or(HUNG_UP.into(), Into::into);
        self.metrics.requests.add([self.call.into(), status], 1);
        self.metrics.request_duration.record([self.call.into()], self.began.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::call_of;
    use crate::http::paths;

    #[test]
    fn every_route_has_a_name_of_its_own() {
        for path in paths() {
            let methods = ["GET", "POST", "PUT", "DELETE"].map(|method| call_of(method, Some(path)));
            assert!(methods.iter().any(|call| *call != "other"), "{path}");
        }
        for (method, path, call) in [
            ("GET", "/v1/semaphores", "list_semaphores"),
            ("GET", "/v1/semaphores/", "usage"),
            ("POST", "/v1/semaphores//request", "request"),
            ("POST", "/v1/semaphores/{key}/clients//settle", "settle"),
            ("POST", "/v1/semaphores//clients//settle", "settle"),
            ("POST", "/v1/clients/{client_id}/takeover", "takeover"),
            ("PUT", "/v1/policies/{pattern}/groups/", "put_group_limit"),
            ("GET", "/healthz", "healthz"),
            ("POST", "/healthz", "other"),
        ] {
            assert_eq!(call_of(method, Some(path)), call, "{method} {path}");
        }
        assert_eq!(call_of("GET", None), "other");
    }
}
