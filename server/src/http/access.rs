//! Lets a call pass if its caller may make it.

use super::connection::Peer;
use super::hop::{self, HOME, PassedOn};
use super::problem::ApiError;
use crate::access::{Access, Keys, Scope};
use crate::holder::Holder;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;

/// What a holder may pass on to another.
const REQUEST: &str = "/v1/semaphores/{key}/request";

/// Which scope an operation needs; none: it is open to all. What nobody has thought of here is for admins.
///
/// A client's token may be restricted to keys. Extractor `Key` heeds that; an operation of clients without a key in its
/// path has to ask the [`Keys`](crate::access::Keys) in the request's extensions itself.
pub(super) fn needs(method: &Method, route: &str) -> Option<Scope> {
    match (method.as_str(), route) {
        ("GET" | "HEAD", "/healthz" | "/readyz") => None,
        ("GET" | "HEAD", _) => Some(Scope::Reader),
        ("POST", REQUEST | "/v1/semaphores//request") => Some(Scope::Client),
        ("POST", "/v1/semaphores/{key}/sync" | "/v1/semaphores//sync") => Some(Scope::Client),
        ("POST", "/v1/clients/{client_id}/takeover" | "/v1/clients//takeover") => Some(Scope::Client),
        _ => Some(Scope::Admin),
    }
}

/// What callers have to show.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) access: Access,
    /// A certificate of TLS.
    pub(super) certificate: bool,
    /// Those who pass a request on to it know its name and its database.
    pub(super) holder: Holder,
}

/// Refuses callers that lack the rights; tells the rest of the way which keys the caller may touch.
pub(super) async fn authorize(
    State(gate): State<Gate>,
    route: MatchedPath,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let Some(scope) = needs(request.method(), route.as_str()) else {
        return Ok(next.run(request).await);
    };
    let certified = request.extensions().get::<Peer>().is_some_and(|peer| peer.certified);
    if gate.certificate && !certified {
        return Err(ApiError::Unauthenticated("this holder wants a client certificate"));
    }
    let token = bearer(request.headers());
    let rights = gate.access.rights(token).ok_or(match token {
        Some(_) => ApiError::Unauthenticated("this token is not valid"),
        None => ApiError::Unauthenticated("this holder wants a token: send Authorization: Bearer TOKEN"),
    })?;
    if let Some(keys) = rights.keys(Scope::Holder)
        && route.as_str() == REQUEST
        && hop::is_hop(request.headers())
    {
        return take_passed_on(&gate.holder, keys, request, next).await;
    }
    let keys = rights.keys(scope).ok_or(ApiError::Forbidden(match scope {
        Scope::Client => "this token is not one of a client",
        Scope::Reader => "this token is not one of a reader",
        Scope::Admin => "this token is not one of an admin",
        Scope::Holder => "this token is not one of a holder",
    }))?;
    request.extensions_mut().insert(keys);
    Ok(next.run(request).await)
}

/// Another holder has let the caller in. The answer says who gives it.
async fn take_passed_on(
    holder: &Holder,
    keys: Keys,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let is_meant = hop::meant(request.headers()).is_some_and(|(name, db)| holder.homes().is_meant(name, db));
    if !is_meant {
        return Err(ApiError::AnotherHolder);
    }
    let passed_on = PassedOn::read(request.headers());
    request.extensions_mut().insert(passed_on);
    request.extensions_mut().insert(keys);
    let mut answer = next.run(request).await;
    answer.headers_mut().extend(HeaderValue::from_str(holder.name()).map(|name| (HOME, name)));
    Ok(answer)
}

/// The one token that is sent.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::bearer;
    use axum::http::HeaderMap;
    use axum::http::header::AUTHORIZATION;

    #[test]
    fn one_bearer_token_is_read() {
        let read = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            values.iter().for_each(|value| {
                headers.append(AUTHORIZATION, value.parse().unwrap());
            });
            bearer(&headers).map(|token| String::from_utf8_lossy(token).into_owned())
        };
        assert_eq!(read(&["Bearer abc"]).as_deref(), Some("abc"));
        assert_eq!(read(&["bEARER  abc "]).as_deref(), Some("abc"));
        for wrong in [&[][..], &["abc"], &["Basic abc"], &["Bearer"], &["Bearer a", "Bearer a"]] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }
}
