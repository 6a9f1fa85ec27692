//! Keeps web pages away from a holder: a browser on the same machine sends what any page tells it to send.
//!
//! Two ways lead from a page to a holder that listens on loopback and wants no token:
//! - DNS rebinding: the page's own name starts to resolve to 127.0.0.1. The browser then takes the holder for the page's
//!   server, and the page reads every answer. `Host` still carries the page's name, so only names of this machine are
//!   answered.
//! - A simple POST to 127.0.0.1 from any page. The page can't read the answer, but the write happens. The browser states
//!   in `Sec-Fetch-Site`, or in `Origin`, that another site sent it.
//!
//! With tokens neither way works, because a page does not know the token. `--insecure` opens the first way: the operator
//! says that every name may be called, as behind a proxy. The second stays closed, because programs don't send these
//! headers.

use super::problem::ApiError;
use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use std::net::IpAddr;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The names by which a holder may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hosts {
    /// All of them.
    Any,
    /// Those of this machine: names of loopback, and the address on which the holder listens.
    Own(IpAddr),
}

/// Refuses calls that a web page may have caused.
pub(super) async fn refuse_pages(
    State(hosts): State<Hosts>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if !called(&request).all(|host| hosts.answers(host)) {
        return Err(ApiError::ForeignHost);
    }
    if is_write(request.method()) && is_from_a_page_elsewhere(&request) {
        return Err(ApiError::CrossSite);
    }
    Ok(next.run(request).await)
}

impl Hosts {
    fn answers(self, called: Option<Authority>) -> bool {
        match self {
            Self::Any => true,
            Self::Own(address) => called.is_some_and(|called| is_own(called.host(), address)),
        }
    }
}

/// Every host that a call names: of its URI (`:authority` in HTTP/2) and of its headers `Host`. One that is no host is
/// `None`. A call of HTTP/1.0 may name no host; browsers always name one.
fn called(request: &Request) -> impl Iterator<Item = Option<Authority>> {
    let headers = request.headers().get_all(HOST).iter().map(authority);
    request.uri().authority().cloned().map(Some).into_iter().chain(headers)
}

fn authority(value: &HeaderValue) -> Option<Authority> {
    value.to_str().ok()?.parse().ok()
}

/// Browsers resolve `localhost`, and names under it, to loopback alone.
fn is_own(host: &str, listens: IpAddr) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    if name == "localhost" || name.ends_with(".localhost") {
        return true;
    }
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
    address.parse().is_ok_and(|address: IpAddr| {
        let address = address.to_canonical();
        address.is_loopback() || address == listens.to_canonical() && !address.is_unspecified()
    })
}

fn is_write(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Older browsers send `Origin` alone.
fn is_from_a_page_elsewhere(request: &Request) -> bool {
    let headers = request.headers();
    let fetched = |site: &HeaderValue| site != "same-origin" && site != "none";
    headers.get_all(SEC_FETCH_SITE).iter().any(fetched)
        || headers
            .get_all(ORIGIN)
            .iter()
            .any(|origin| !is_same_origin(origin, request.uri().authority(), headers))
}

fn is_same_origin(origin: &HeaderValue, authority: Option<&Authority>, headers: &HeaderMap) -> bool {
    let called = authority.map(Authority::as_str).or_else(|| headers.get(HOST)?.to_str().ok());
    let page = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    page.zip(called).is_some_and(|((_, page), called)| page.eq_ignore_ascii_case(called))
}

#[cfg(test)]
mod tests {
    use super::{Hosts, Request, called, is_from_a_page_elsewhere};
    use axum::body::Body;
    use std::net::IpAddr;

    fn request(uri: &str, headers: &[(&str, &str)]) -> Request {
        let request =
            headers.iter().fold(Request::post(uri), |request, (name, value)| request.header(*name, *value));
        request.body(Body::empty()).expect("a request")
    }

    fn answers(listens: &str, request: &Request) -> bool {
        let hosts = Hosts::Own(listens.parse::<IpAddr>().expect("an address"));
        called(request).all(|host| hosts.answers(host))
    }

    #[test]
    fn names_of_this_machine_are_answered() {
        for host in [
            "localhost",
            "localhost:7432",
            "LOCALHOST.",
            "app.localhost:1",
            "127.0.0.1",
            "127.9.9.9:80",
            "[::1]",
            "[::1]:7432",
            "[::ffff:127.0.0.1]:7432",
        ] {
            assert!(answers("127.0.0.1", &request("/", &[("host", host)])), "{host}");
        }
        assert!(answers("198.18.0.1", &request("/", &[("host", "198.18.0.1:7432")])));
        assert!(answers("127.0.0.1", &request("/", &[])), "no browser leaves it out");
        assert!(answers("::1", &request("http://[::1]:7432/", &[])));
    }

    #[test]
    fn other_names_are_not() {
        for host in [
            "rebound.example",
            "rebound.example:7432",
            "localhost.example",
            "notlocalhost",
            "localhost@evil.example",
            "127.0.0.1.example",
            "127.0.0.1@evil.example",
            "0.0.0.0:7432",
            "[::]:7432",
            "198.18.0.2",
            "[fe80::1]",
            "",
            "local host",
            "\u{e9}",
        ] {
            assert!(!answers("127.0.0.1", &request("/", &[("host", host)])), "{host}");
        }
        assert!(!answers("0.0.0.0", &request("/", &[("host", "0.0.0.0:7432")])));
        let both = [("host", "localhost"), ("host", "rebound.example")];
        assert!(!answers("127.0.0.1", &request("/", &both)));
        assert!(!answers("127.0.0.1", &request("http://rebound.example/", &[("host", "localhost")])));
    }

    #[test]
    fn a_browser_says_which_site_sent_it() {
        let from = |more: &[(&str, &str)]| {
            let headers = [&[("host", "localhost:7432")], more].concat();
            is_from_a_page_elsewhere(&request("/", &headers))
        };
        for own in [
            &[][..],
            &[("sec-fetch-site", "none")],
            &[("sec-fetch-site", "same-origin"), ("origin", "http://localhost:7432")],
            &[("origin", "https://LOCALHOST:7432")],
        ] {
            assert!(!from(own), "{own:?}");
        }
        for other in [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("origin", "http://localhost:3000"),
            ("origin", "https://evil.example"),
            ("origin", "null"),
            ("origin", ""),
        ] {
            assert!(from(&[other]), "{other:?}");
        }
        assert!(from(&[("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")]));
    }
}
