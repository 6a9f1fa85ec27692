//! Policies over HTTP. What a policy may say is judged by the database's `configure`; here only what JSON leaves open is.

use super::body::JsonBody;
use super::names::{GroupName, Page, Pattern};
use super::problem::ApiError;
use crate::holder::Holder;
use crate::policy_body::{self, checked};
use crate::request::decode;
use crate::store::{Policy, PolicyError, PolicyPage};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Who changes a policy over HTTP.
const ACTOR: &str = "http";

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
    policy_body::scan(&body)?;
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
