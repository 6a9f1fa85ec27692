//! pgsemaphore: a shared concurrency budget on PostgreSQL.

pub mod embedded;

/// The schema's migrations, in the order in which `pgsemaphore migrate` runs them.
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!();
