//! pgsemaphore: a shared concurrency budget on PostgreSQL.

pub mod embedded;
