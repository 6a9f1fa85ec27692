//! End-to-end tests, against real PostgreSQL clusters and the real binary.

mod access;
mod command_line;
mod commits;
mod crashes;
mod demo;
mod differential;
mod durability;
mod embedded;
mod grants;
mod hangups;
mod holders;
mod input;
mod kit;
mod leased_clients;
mod leases;
mod limits;
mod locks;
mod policies;
mod schema;
mod secrets;
mod sizes;
mod storage;
mod sweep;
mod tls;
mod worlds;
