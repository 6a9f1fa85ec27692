//! pgsemaphore: a shared concurrency budget on PostgreSQL.

mod json;
pub mod refusal;
pub mod request;
pub mod store;
