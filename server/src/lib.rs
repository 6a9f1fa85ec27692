//! pgsemaphore: a shared concurrency budget on PostgreSQL.

pub mod embedded;
pub mod holder;
pub mod http;
mod json;
pub mod refusal;
pub mod request;
pub mod store;

/// The schema's migrations, in the order in which `pgsemaphore migrate` runs them.
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!();
