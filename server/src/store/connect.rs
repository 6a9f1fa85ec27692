//! Connections: pinned plans, timeouts, and the check that commits are durable.

use super::StoreError;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection, PgPool, Postgres};
use std::str::FromStr;
use std::time::Duration;

/// A caller waits at most this long for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);
/// A connection that idled longer is tried before it is used.
const TRY_AFTER_IDLE: Duration = Duration::from_secs(1);

/// Settings of each session. Plans are pinned because the planner prefers sequential scans on small tables, and a
/// sequential scan under SERIALIZABLE conflicts with every writer of the table. Timeouts are in milliseconds: whoever
/// hangs in a transaction loses its locks.
pub const SESSION_SETTINGS: [(&str, &str); 7] = [
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("lock_timeout", "5000"),
    ("statement_timeout", "20000"),
    ("idle_in_transaction_session_timeout", "20000"),
];

pub(super) fn options(url: &str) -> Result<PgConnectOptions, StoreError> {
    let options = PgConnectOptions::from_str(url).map_err(StoreError::Url)?;
    Ok(options.application_name("pgsemaphore").options(SESSION_SETTINGS))
}

pub(super) async fn pool(options: &PgConnectOptions, connections: u32) -> Result<PgPool, StoreError> {
    let durable = durable(&mut connect(options).await?).await?;
    if !durable {
        return Err(StoreError::NotDurable);
    }
    let pool = PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .test_before_acquire(false)
        .before_acquire(|connection, meta| {
            Box::pin(async move {
                let fresh = meta.idle_for < TRY_AFTER_IDLE;
                Ok(fresh || connection.ping().await.is_ok())
            })
        })
        .after_connect(|connection, _| {
            Box::pin(async move {
                if durable_connection(connection).await? {
                    return Ok(());
                }
                tracing::error!("{}", StoreError::NotDurable);
                Err(sqlx::Error::Configuration(Box::new(StoreError::NotDurable)))
            })
        });
    Ok(pool.connect_lazy_with(options.clone()))
}

async fn connect(options: &PgConnectOptions) -> Result<sqlx::PgConnection, StoreError> {
    let connected = tokio::time::timeout(ACQUIRE_TIMEOUT, sqlx::PgConnection::connect_with(options)).await;
    connected.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map_err(|error| match error.into() {
        StoreError::Fault(error) => StoreError::Unavailable(error),
        other => other,
    })
}

async fn durable(connection: &mut sqlx::PgConnection) -> Result<bool, StoreError> {
    Ok(durable_connection(connection).await?)
}

async fn durable_connection(connection: &mut sqlx::PgConnection) -> Result<bool, sqlx::Error> {
    let setting: String =
        sqlx::query_scalar::<Postgres, _>("SHOW synchronous_commit").fetch_one(connection).await?;
    Ok(setting != "off")
}
