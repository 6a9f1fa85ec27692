//! Policies over HTTP. What a policy may say is judged by the database's `configure`; here only what JSON leaves open is.

use super::body::JsonBody;
use super::names::{GroupName, Page, Pattern};
use super::problem::ApiError;
use crate::holder::Holder;
use crate::json::{self, Rules};
use crate::request::{Invalid, decode};
use crate::store::{Policy, PolicyError, PolicyPage};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// Who changes a policy over HTTP.
const ACTOR: &str = "http";
/// The one field that may have a fraction.
const DECIMAL: &str = "lease_extra_ratio";
/// Longest spelling of it.
const DECIMAL_MAX_BYTES: usize = 32;
const RULES: Rules = Rules { lists_of_objects: &[], integers_only: true, decimal: DECIMAL, no_nul: true };

/// The ceiling of a group.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupLimit {
    /// 0 to 2^31 - 1.
    limit: i64,
}

/// The ceiling of a group, as it is set.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct GroupLimitSet {
    group: String,
    limit: i64,
}

#[derive(Deserialize)]
struct Ratio {
    lease_extra_ratio: Option<Box<RawValue>>,
}

/// Policies, bytewise by pattern.
#[utoipa::path(get, path = "/v1/policies", tag = "policies",
    params(
        ("after" = Option<String>, Query, description = "only patterns after this one: `next` of the page before"),
        ("limit" = Option<u16>, Query, description = "longest page", minimum = 1, maximum = 1000),
    ),
    responses((status = 200, description = "A page", body = PolicyPage)))]
pub(super) async fn list_policies(
    State(holder): State<Holder>,
    page: Page,
) -> Result<Json<PolicyPage>, ApiError> {
    Ok(Json(holder.store().policies(&page.after, page.limit).await?))
}

/// One policy.
#[utoipa::path(get, path = "/v1/policies/{pattern}", tag = "policies",
    params(("pattern" = String, Path, description = "a key, or a prefix that ends in *")),
    responses((status = 200, description = "Every field, unset ones null", body = Policy)))]
pub(super) async fn get_policy(
    State(holder): State<Holder>,
    Pattern(pattern): Pattern,
) -> Result<Json<Policy>, ApiError> {
    let policy = holder.store().policy(&pattern).await?;
    Ok(Json(policy.ok_or(PolicyError::NotFound)?))
}

/// Replace a policy: fields left out take their defaults, `group_limits` left out are kept.
#[utoipa::path(put, path = "/v1/policies/{pattern}", tag = "policies",
    params(("pattern" = String, Path, description = "a key, or a prefix that ends in *")),
    request_body(content = ref("#/components/schemas/PolicyFields")), responses((status = 200, description = "The policy as it is now", body = Policy)))]
pub(super) async fn put_policy(
    State(holder): State<Holder>,
    Pattern(pattern): Pattern,
    JsonBody(body): JsonBody,
) -> Result<Json<Policy>, ApiError> {
    let policy = holder.store().put_policy(&pattern, checked(&body)?, ACTOR).await?;
    holder.policies_changed();
    Ok(Json(policy))
}

/// Delete a policy and its group limits. What is admitted goes on.
#[utoipa::path(delete, path = "/v1/policies/{pattern}", tag = "policies",
    params(("pattern" = String, Path, description = "a key, or a prefix that ends in *")),
    responses((status = 204, description = "It is gone")))]
pub(super) async fn delete_policy(
    State(holder): State<Holder>,
    Pattern(pattern): Pattern,
) -> Result<StatusCode, ApiError> {
    holder.store().delete_policy(&pattern, ACTOR).await?;
    holder.policies_changed();
    Ok(StatusCode::NO_CONTENT)
}

/// Set the ceiling of a group.
#[utoipa::path(put, path = "/v1/policies/{pattern}/groups/{group}", tag = "policies",
    params(
        ("pattern" = String, Path, description = "a key, or a prefix that ends in *"),
        ("group" = String, Path, description = "0 to 256 bytes; the empty group is the empty segment"),
    ),
    request_body = GroupLimit, responses((status = 200, description = "It is set", body = GroupLimitSet)))]
pub(super) async fn put_group_limit(
    State(holder): State<Holder>,
    Pattern(pattern): Pattern,
    GroupName(group): GroupName,
    JsonBody(body): JsonBody,
) -> Result<Json<GroupLimitSet>, ApiError> {
    json::scan(&body, RULES).fault.map_or(Ok(()), Err)?;
    let GroupLimit { limit } = decode(&body)?;
    holder.store().set_group_limit(&pattern, &group, Some(limit), ACTOR).await?;
    Ok(Json(GroupLimitSet { group, limit }))
}

/// Remove the ceiling of a group.
#[utoipa::path(delete, path = "/v1/policies/{pattern}/groups/{group}", tag = "policies",
    params(
        ("pattern" = String, Path, description = "a key, or a prefix that ends in *"),
        ("group" = String, Path, description = "0 to 256 bytes; the empty group is the empty segment"),
    ),
    responses((status = 204, description = "The group has no ceiling of its own")))]
pub(super) async fn delete_group_limit(
    State(holder): State<Holder>,
    Pattern(pattern): Pattern,
    GroupName(group): GroupName,
) -> Result<StatusCode, ApiError> {
    holder.store().set_group_limit(&pattern, &group, None, ACTOR).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The body as text that PostgreSQL reads as the same JSON.
fn checked(body: &[u8]) -> Result<&str, Invalid> {
    json::scan(body, RULES).fault.map_or(Ok(()), Err)?;
    let Ratio { lease_extra_ratio } = decode(body)?;
    let plain = |ratio: &str| {
        let digits = ratio.trim_start_matches('-');
        !digits.starts_with(|first: char| first.is_ascii_digit())
            || (ratio == digits && !ratio.contains(['e', 'E']) && ratio.len() <= DECIMAL_MAX_BYTES)
    };
    if !lease_extra_ratio.is_none_or(|ratio| plain(ratio.get())) {
        let detail =
            format!("{DECIMAL} must be a number from 0 to 1000 with at most 6 decimals, without exponent");
        return Err(Invalid::field(format!("/{DECIMAL}"), detail));
    }
    std::str::from_utf8(body).map_err(|_| Invalid::Json("the body is not UTF-8".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::checked;
    use crate::request::Invalid;

    fn fault(body: &str) -> String {
        match checked(body.as_bytes()) {
            Err(Invalid::Field { field, .. }) => field,
            other => panic!("{body}: {other:?}"),
        }
    }

    #[test]
    fn what_json_leaves_open_is_refused_with_its_field() {
        for number in ["1.0", "1.5", "1e3", "-0", "1e400", "18446744073709551616"] {
            assert_eq!(fault(&format!(r#"{{"limit":{number}}}"#)), "/limit");
            assert_eq!(fault(&format!(r#"{{"group_limits":{{"a/b":{number}}}}}"#)), "/group_limits/a~1b");
        }
        for number in ["1e0", "-0", "-0.0", "1E-1", "0.1000000000000000000000000000000000", "1e400"] {
            assert_eq!(fault(&format!(r#"{{"lease_extra_ratio":{number}}}"#)), "/lease_extra_ratio");
        }
        assert_eq!(fault(r#"{"limit":1,"limit":1}"#), "/limit");
        assert_eq!(fault(r#"{"limit_function":"a\u0000"}"#), "/limit_function");
        assert_eq!(fault(r#"{"paused_groups":["a","\ud800"]}"#), "/paused_groups/1");
        assert_eq!(fault("[]"), "");
        assert!(matches!(checked(b""), Err(Invalid::Json(_))));
    }

    #[test]
    fn the_rest_is_left_to_the_database() {
        for body in [
            r#"{"limit":5,"lease_extra_ratio":0.5}"#,
            r#"{"lease_extra_ratio":null}"#,
            r#"{"lease_extra_ratio":"x"}"#,
            r#"{"unknown":[]}"#,
            r#"{"limit":-1}"#,
        ] {
            assert_eq!(checked(body.as_bytes()), Ok(body));
        }
    }
}
