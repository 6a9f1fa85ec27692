//! The HTTP interface: names and bodies in, replies and problems out.
//!
//! Authoritative for URLs, statuses and the shape of errors. Not authoritative for what a message means (the holder) or
//! what a policy may say (the database's `configure`). A fault of the caller is a 4xx that names the field; what the
//! holder can't do now is a 503 with `Retry-After`.

mod access;
mod body;
mod browsers;
mod clients;
mod connection;
mod ending;
mod forward;
mod health;
mod hop;
mod measure;
mod metrics;
mod names;
mod openapi;
mod peers;
mod policies;
mod problem;
mod request_id;
mod router;
mod semaphores;
mod server;
mod socket;
mod tls;
mod underway;

pub use openapi::document;
pub use peers::Peers;
pub use router::paths;
pub use server::{Options, serve};
pub use tls::{Tls, TlsFiles};
