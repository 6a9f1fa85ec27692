//! pgsemaphore: a shared concurrency budget on PostgreSQL.

pub mod holder;
pub mod http;
mod json;
pub mod refusal;
pub mod request;
pub mod store;
