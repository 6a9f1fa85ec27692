//! Requests, syncs, and what counts against a key.

use super::body::JsonBody;
use super::forward::{self, Forward};
use super::hop::PassedOn;
use super::names::{Key, Page};
use super::problem::ApiError;
use crate::clock;
use crate::holder::Holder;
use crate::request;
use crate::speaker::Speaker;
use crate::store::{SemaphorePage, Usage};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use pgsemaphore_allocation::SemaphoreKey;
use queue_wire::{Message, Reply};
use std::time::Instant;

/// Report, and ask for permits: answered after the key's next round, or with `wait_ms` the first that brings something.
#[utoipa::path(post, path = "/v1/semaphores/{key}/request", tag = "semaphores",
    params(("key" = String, Path, description = "1 to 512 bytes, percent-encoded")),
    request_body = Message, responses((status = 200, description = "What the round decided", body = Reply)))]
pub(super) async fn request(
    State(holder): State<Holder>,
    State(forward): State<Forward>,
    Key(key): Key,
    passed_on: Option<Extension<PassedOn>>,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    let arrival = clock::now();
    let message = request::request(&body)?;
    if let Some(Extension(passed_on)) = passed_on {
        let arrival = arrival.checked_sub(passed_on.waited).unwrap_or(arrival);
        return wait_here(&holder, key, message, arrival).await;
    }
    let speaker = Speaker::of(&message);
    if forward.home(&holder, &key).is_none() {
        forward.stays(&key, &speaker);
        drop(body); // it may be large, and the answer far away
        return wait_here(&holder, key, message, arrival).await;
    }
    drop(message);
    let passed_on = forward::Request { key, speaker, arrival, headers, body: body.into() };
    let answer = forward.pass_on(&holder, &passed_on).await?;
    let outcome = if answer.is_some() { "answered" } else { "fell_back" };
    holder.store().metrics().forwarded_calls.add([outcome.into()], 1);
    if let Some(answer) = answer {
        return Ok(answer);
    }
    let forward::Request { key, speaker, body, .. } = passed_on;
    forward.stays(&key, &speaker);
    wait_here(&holder, key, request::request(&body)?, arrival).await
}

async fn wait_here(
    holder: &Holder,
    key: SemaphoreKey,
    message: Message,
    arrival: Instant,
) -> Result<Response, ApiError> {
    Ok(Json(holder.request_since(key, message, arrival).await?).into_response())
}

/// Report without asking for permits: answered at once. `demand` is ignored.
#[utoipa::path(post, path = "/v1/semaphores/{key}/sync", tag = "semaphores",
    params(("key" = String, Path, description = "1 to 512 bytes, percent-encoded")),
    request_body = Message, responses((status = 200, description = "Verdicts of the blocks reported", body = Reply)))]
pub(super) async fn sync(
    State(holder): State<Holder>,
    Key(key): Key,
    JsonBody(body): JsonBody,
) -> Result<Json<Reply>, ApiError> {
    let message = request::sync(&body)?;
    drop(body); // it may be large, and the answer far away
    Ok(Json(holder.sync(key, message).await?))
}

/// Usage of one semaphore, in one snapshot.
#[utoipa::path(get, path = "/v1/semaphores/{key}", tag = "semaphores",
    params(("key" = String, Path, description = "1 to 512 bytes, percent-encoded")),
    responses((status = 200, description = "What counts against the key", body = Usage)))]
pub(super) async fn usage(State(holder): State<Holder>, Key(key): Key) -> Result<Json<Usage>, ApiError> {
    holder.store().usage(key.as_str()).await?.map(Json).ok_or(ApiError::SemaphoreNotFound)
}

/// Keys that somebody asked for, with limit and usage.
#[utoipa::path(get, path = "/v1/semaphores", tag = "semaphores",
    params(
        ("prefix" = Option<String>, Query, description = "only keys that start with this"),
        ("after" = Option<String>, Query, description = "only keys after this one: `next` of the page before"),
        ("limit" = Option<u16>, Query, description = "longest page", minimum = 1, maximum = 1000),
    ),
    responses((status = 200, description = "A page, bytewise by key", body = SemaphorePage)))]
pub(super) async fn list_semaphores(
    State(holder): State<Holder>,
    page: Page,
) -> Result<Json<SemaphorePage>, ApiError> {
    Ok(Json(holder.store().semaphores(&page.prefix, &page.after, page.limit).await?))
}
