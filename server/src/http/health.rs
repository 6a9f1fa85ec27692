//! Whether the process lives, and whether it can do its work.

use super::problem::ApiError;
use crate::holder::Holder;
use crate::refusal::Refusal;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use std::time::Duration;
use utoipa::ToSchema;

/// The database must answer within this for the holder to count as ready.
const READY_TIMEOUT: Duration = Duration::from_millis(900);

/// All is well.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Health {
    status: &'static str,
}

/// It can do its work.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Readiness {
    status: &'static str,
    /// Counters that were found different from what they count. It works all the same; `pgsemaphore audit` says more.
    drift: i64,
}

/// The process lives; the database is not asked.
#[utoipa::path(get, path = "/healthz", tag = "health",
    responses((status = 200, description = "It lives", body = Health)))]
pub(super) async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// The database is reachable, takes writes, and its schema is current; and the holder is not about to end.
#[utoipa::path(get, path = "/readyz", tag = "health",
    responses((status = 200, description = "It is", body = Readiness)))]
pub(super) async fn readyz(State(holder): State<Holder>) -> Result<Json<Readiness>, ApiError> {
    let ready = || Json(Readiness { status: "ok", drift: holder.drift() });
    match tokio::time::timeout(READY_TIMEOUT, holder.store().ready()).await {
        Ok(answer) => answer.map(|()| ready()).map_err(ApiError::from),
        Err(_) => Err(holder.store().unfit().map_or(Refusal::Unavailable.into(), ApiError::from)),
    }
}
