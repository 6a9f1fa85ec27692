//! End-to-end tests, against real PostgreSQL clusters and the real binary.

mod commits;
mod crashes;
mod embedded;
mod grants;
mod input;
mod kit;
mod policies;
mod storage;
