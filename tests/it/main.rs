//! End-to-end tests, against real PostgreSQL clusters and the real binary.

mod command_line;
mod demo;
mod embedded;
mod grants;
mod input;
mod kit;
mod leases;
mod policies;
mod schema;
mod storage;
