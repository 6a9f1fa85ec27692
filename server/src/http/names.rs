//! Names in URLs: one segment of the path, or one part of the query, decoded once and checked.

use super::problem::ApiError;
use crate::access::Keys;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use percent_encoding::percent_decode_str;
use pgsemaphore_allocation::{ClientId, SemaphoreKey};
use queue_wire::{CLIENT_ID_MAX_BYTES, GROUP_MAX_BYTES, KEY_MAX_BYTES, check_text};

/// A page has this many entries unless the caller says otherwise.
const PAGE: u16 = 100;
/// Largest page.
const PAGE_MAX: u16 = 1_000;

/// The `{key}` of `/v1/semaphores/{key}`, which the caller may touch.
pub(super) struct Key(pub(super) SemaphoreKey);

/// The `{client_id}` of `/v1/clients/{client_id}`.
pub(super) struct Client(pub(super) ClientId);

/// The `{client_id}` of `/v1/semaphores/{key}/clients/{client_id}`.
pub(super) struct ClientOfKey(pub(super) ClientId);

/// The `{pattern}` of `/v1/policies/{pattern}`: a key, or a key's prefix with a `*` behind it.
pub(super) struct Pattern(pub(super) String);

/// The `{group}` of `/v1/policies/{pattern}/groups/{group}`; may be empty.
pub(super) struct GroupName(pub(super) String);

/// Which part of a list is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) prefix: String,
    pub(super) after: String,
    pub(super) limit: u16,
}

impl<S: Sync> FromRequestParts<S> for Key {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let key = segment(parts, 3, "key")?;
        check("key", &key, 1, KEY_MAX_BYTES)?;
        if !parts.extensions.get::<Keys>().is_some_and(|keys| keys.contain(&key)) {
            return Err(ApiError::ForbiddenKey);
        }
        Ok(Self(SemaphoreKey::new(key)))
    }
}

impl<S: Sync> FromRequestParts<S> for Client {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        client(parts, 3).map(Self)
    }
}

impl<S: Sync> FromRequestParts<S> for ClientOfKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        client(parts, 5).map(Self)
    }
}

impl<S: Sync> FromRequestParts<S> for Pattern {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let pattern = segment(parts, 3, "pattern")?;
        check("pattern", &pattern, 1, KEY_MAX_BYTES + usize::from(pattern.ends_with('*')))?;
        Ok(Self(pattern))
    }
}

impl<S: Sync> FromRequestParts<S> for GroupName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let group = segment(parts, 5, "group")?;
        check("group", &group, 0, GROUP_MAX_BYTES)?;
        Ok(Self(group))
    }
}

impl<S: Sync> FromRequestParts<S> for Page {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Self::read(parts.uri.query().unwrap_or_default())
    }
}

impl Page {
    fn read(query: &str) -> Result<Self, ApiError> {
        let prefix = value(query, "prefix")?.unwrap_or_default();
        let after = value(query, "after")?.unwrap_or_default();
        let limit = match value(query, "limit")? {
            None => PAGE,
            Some(text) => number(&text).ok_or_else(|| ApiError::Part {
                part: "limit",
                detail: format!("limit must be an integer from 1 to {PAGE_MAX}"),
            })?,
        };
        check("prefix", &prefix, 0, KEY_MAX_BYTES)?;
        check("after", &after, 0, KEY_MAX_BYTES + 1)?;
        Ok(Self { prefix, after, limit })
    }
}

fn number(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|limit| digits && (1..=PAGE_MAX).contains(limit))
}

/// The value of a part of the query, spelt as a form is: there `+` is a space.
fn value(query: &str, name: &'static str) -> Result<Option<String>, ApiError> {
    let mut found = None;
    for pair in query.split('&') {
        let (key, text) = pair.split_once('=').unwrap_or((pair, ""));
        if key != name {
            continue;
        }
        if found.is_some() {
            return Err(ApiError::Part { part: name, detail: format!("{name} is there twice") });
        }
        found = Some(decode(name, &text.replace('+', " "))?);
    }
    Ok(found)
}

fn client(parts: &Parts, at: usize) -> Result<ClientId, ApiError> {
    let client = segment(parts, at, "client_id")?;
    check("client_id", &client, 1, CLIENT_ID_MAX_BYTES)?;
    Ok(ClientId::new(client))
}

fn segment(parts: &Parts, at: usize, name: &'static str) -> Result<String, ApiError> {
    decode(name, parts.uri.path().split('/').nth(at).unwrap_or_default())
}

fn decode(name: &'static str, text: &str) -> Result<String, ApiError> {
    let wrong = |what: &str| ApiError::Part { part: name, detail: format!("{name} {what}") };
    let mut escapes = text.split('%').skip(1);
    if !escapes.all(|rest| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit())) {
        return Err(wrong("has a % that two hexadecimal digits don't follow"));
    }
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| wrong("must be UTF-8"))
}

fn check(part: &'static str, text: &str, min: usize, max: usize) -> Result<(), ApiError> {
    check_text(text, min, max).map_err(|why| ApiError::Part { part, detail: format!("{part} {why}") })
}

#[cfg(test)]
mod tests {
    use super::Page;

    #[test]
    fn a_page_is_read_strictly() {
        let page = |query: &str| Page::read(query).map_err(|error| error.to_string());
        let all = Page { prefix: String::new(), after: String::new(), limit: 100 };
        assert_eq!(page(""), Ok(all));
        let some = Page { prefix: "a b+".to_owned(), after: "é".to_owned(), limit: 1_000 };
        assert_eq!(page("prefix=a+b%2B&x=1&after=%C3%A9&limit=1000"), Ok(some));
        for bad in ["0", "1001", "-1", "+5", "1.0", "", "x", "99999999999999999999"] {
            assert!(page(&format!("limit={bad}")).is_err(), "{bad}");
        }
        for bad in ["prefix=%FF", "prefix=%00", "prefix=%zz", "prefix=%1", "after=a&after=b", "prefix=.."] {
            assert!(page(bad).is_err(), "{bad}");
        }
    }
}
