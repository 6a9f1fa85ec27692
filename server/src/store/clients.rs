//! Clients as people see them, and declaring one dead. An operator's settle is the function that psql users call.

use super::{Store, StoreError};
use pgsemaphore_allocation::{ClientId, SemaphoreKey};
use serde::Serialize;
use sqlx::FromRow;

/// As `pgsemaphore_data.settle` has it.
const HEARD_LATELY_MS: i64 = 600_000;

/// What a client holds of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, FromRow)]
pub struct KnownClient {
    /// The semaphore.
    pub key: String,
    /// The client.
    pub client_id: String,
    /// Highest generation of it heard on this key.
    pub generation: i64,
    /// Permits of its open grants that are not released.
    pub grants: i64,
    /// Permits of its open leases that still count.
    pub leases: i64,
    /// It holds permits and was not heard for over 10 minutes.
    pub unheard: bool,
    /// Time since its last message; up to 20 s too much.
    pub last_seen_ms_ago: i64,
}

impl KnownClient {
    /// Whether it was heard within 10 minutes: it is settled by force only.
    #[must_use]
    pub fn is_heard(&self) -> bool {
        self.last_seen_ms_ago < HEARD_LATELY_MS
    }
}

/// What came back when a client was declared dead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, FromRow, utoipa::ToSchema)]
pub struct Settled {
    /// Protocol version: 1.
    #[sqlx(skip)]
    pub v: u64,
    /// The semaphore.
    #[sqlx(skip)]
    pub key: String,
    /// The client.
    #[sqlx(skip)]
    pub client_id: String,
    /// The lowest generation of it that is admitted from now on.
    pub generation: i64,
    /// Permits of grants that came back.
    pub grants: i64,
    /// Permits of leases that came back.
    pub leases: i64,
}

/// Why a client was not declared dead.
#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    /// No such client was ever heard of on the key; nothing was done.
    #[error("no client of this name was ever heard of on this key")]
    NotFound,
    /// The client was heard lately and nobody said that it is dead all the same; nothing was done.
    #[error("{0}")]
    Heard(String),
    /// The database did not do it, as far as is known; asking again is safe.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// Declares a client dead on a key: what it holds comes back, and its processes are refused from now on. A client that
    /// was heard within 10 minutes is declared dead only by `force`.
    ///
    /// # Errors
    /// [`SettleError::NotFound`], [`SettleError::Heard`], or what the database said.
    pub async fn settle_client(
        &self,
        key: &SemaphoreKey,
        client: &ClientId,
        reason: Option<&str>,
        actor: &str,
        force: bool,
    ) -> Result<Settled, SettleError> {
        let query = sqlx::query_as(include_str!("../../queries/settle_client.sql"));
        let query = query.bind(key.as_str()).bind(client.as_str()).bind(reason).bind(actor).bind(force);
        let settled: Result<Settled, sqlx::Error> = query.fetch_one(self.pool()).await;
        match settled {
            Ok(settled) => {
                Ok(Settled { v: 1, key: key.to_string(), client_id: client.to_string(), ..settled })
            }
            Err(sqlx::Error::Database(e)) if e.code().as_deref() == Some("P0002") => {
                Err(SettleError::NotFound)
            }
            Err(sqlx::Error::Database(e)) if e.code().as_deref() == Some("55006") => {
                Err(SettleError::Heard(e.message().to_owned()))
            }
            Err(error) => Err(StoreError::from(error).into()),
        }
    }

    /// Clients of one key, or of all; only those that hold permits and were not heard for long, if asked so.
    ///
    /// # Errors
    /// What the database said.
    pub async fn clients(&self, key: Option<&str>, unheard: bool) -> Result<Vec<KnownClient>, StoreError> {
        let query = sqlx::query_as(include_str!("../../queries/list_clients.sql"));
        Ok(query.bind(key).bind(unheard).fetch_all(self.pool()).await?)
    }

    /// Keys on which a client holds something.
    pub(crate) async fn keys_of_client(&self, client: &ClientId) -> Result<Vec<SemaphoreKey>, StoreError> {
        let query = sqlx::query_scalar(include_str!("../../queries/read_keys_of_client.sql"));
        let keys: Vec<String> = query.bind(client.as_str()).fetch_all(self.pool()).await?;
        Ok(keys.into_iter().map(SemaphoreKey::new).collect())
    }
}
