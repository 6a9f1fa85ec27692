//! Clients that are gone: declared dead by an operator, or succeeded by their next process.

use super::body::JsonBody;
use super::names::{Client, ClientOfKey, Key};
use super::problem::ApiError;
use crate::access::Keys;
use crate::holder::Holder;
use crate::json::{self, Rules};
use crate::request::{self, Invalid, decode};
use crate::store::Settled;
use axum::extract::State;
use axum::{Extension, Json};
use queue_wire::{TakenOver, Takeover, check_text};
use serde::Deserialize;

/// Who settles, for the audit.
const ACTOR: &str = "http";
/// Longest reason, in bytes.
const REASON_MAX_BYTES: usize = 1_000;
const RULES: Rules = Rules { lists_of_objects: &[], integers_only: true, decimal: "", no_nul: true };

/// Why a client is settled, and whether although it was heard lately.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Settle {
    /// Kept in the audit: 1 to 1000 bytes.
    reason: Option<String>,
    /// Also a client that was heard within 10 minutes; without it that is refused with `client_heard`.
    #[serde(default)]
    force: bool,
}

/// Declare a client dead: what it holds of the key comes back, and its processes are refused from now on.
#[utoipa::path(post, path = "/v1/semaphores/{key}/clients/{client_id}/settle", tag = "clients",
    params(
        ("key" = String, Path, description = "1 to 512 bytes, percent-encoded"),
        ("client_id" = String, Path, description = "1 to 256 bytes, percent-encoded"),
    ),
    request_body = Option<Settle>, responses((status = 200, description = "What came back", body = Settled)))]
pub(super) async fn settle_client(
    State(holder): State<Holder>,
    Key(key): Key,
    ClientOfKey(client): ClientOfKey,
    JsonBody(body): JsonBody,
) -> Result<Json<Settled>, ApiError> {
    let Settle { reason, force } = settle(&body)?;
    Ok(Json(holder.settle(&key, &client, reason.as_deref(), ACTOR, force).await?))
}

fn settle(body: &[u8]) -> Result<Settle, Invalid> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Settle::default());
    }
    json::scan(body, RULES).fault.map_or(Ok(()), Err)?;
    let settle: Settle = decode(body)?;
    if let Some(Err(why)) = settle.reason.as_deref().map(|reason| check_text(reason, 1, REASON_MAX_BYTES)) {
        return Err(Invalid::field("/reason", format!("reason {why}")));
    }
    Ok(settle)
}

/// Speak for a client from now on, on all keys where it holds something: its earlier processes start nothing more. With a
/// token that is restricted to keys, only those.
#[utoipa::path(post, path = "/v1/clients/{client_id}/takeover", tag = "clients",
    params(("client_id" = String, Path, description = "1 to 256 bytes, percent-encoded")),
    request_body = Takeover,
    responses((status = 200, description = "What came back or, with `resume`, goes on", body = TakenOver)))]
pub(super) async fn take_over(
    State(holder): State<Holder>,
    Client(client): Client,
    Extension(keys): Extension<Keys>,
    JsonBody(body): JsonBody,
) -> Result<Json<TakenOver>, ApiError> {
    Ok(Json(holder.take_over(client, request::takeover(&body)?, &keys).await?))
}
