//! The HTTP interface: names and bodies in, replies and problems out.
//!
//! Authoritative for URLs, statuses and the shape of errors. Not authoritative for what a message means (the holder) or
//! what a policy may say (the database's `configure`). A fault of the caller is a 4xx that names the field; what the
//! holder can't do now is a 503 with `Retry-After`.

mod body;
mod clients;
mod health;
mod names;
mod openapi;
mod policies;
mod problem;
mod request_id;
mod router;
mod semaphores;

pub use openapi::document;
pub use router::router;

use crate::holder::Holder;
use tokio::net::TcpListener;

/// Serves until `shutdown` is done and the calls that were under way then are answered.
pub async fn serve(
    listener: TcpListener,
    holder: Holder,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    axum::serve(listener, router(holder)).with_graceful_shutdown(shutdown).await
}
