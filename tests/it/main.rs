//! End-to-end tests, against real PostgreSQL clusters and the real binary.

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
mod locks;
mod lost_clients;
mod policies;
mod restarts;
mod schema;
mod silence;
mod sizes;
mod storage;
mod successors;
mod sweep;
mod takeover;
mod worlds;
