//! Stand-in of the store.

mod policies;
mod usage;

pub use policies::{Policy, PolicyError, PolicyPage};
pub use usage::{BlockedUsage, ClientUsage, GroupUsage, SemaphorePage, SemaphoreUsage, Usage};

use sqlx::PgPool;

/// Access to the database.
#[derive(Debug, Clone)]
pub struct Store {
    pool: PgPool,
}

impl Store {
    /// A store over a pool.
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Whether the database can be used and its schema is current.
    pub async fn ready(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT").execute(self.pool()).await.map(|_| ()).map_err(StoreError::from)
    }
}

/// Why the database did not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database is away or can't be used.
    #[error("the database is unavailable")]
    Unavailable(#[from] sqlx::Error),
}
