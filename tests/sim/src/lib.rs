//! Worlds without I/O in which the real allocation is tried.
//!
//! Authoritative for nothing: it holds the parts that tests of the pure crates share. [`MemoryStore`] stands in for
//! PostgreSQL, and gives a round exactly what its contract asks for, so that a missing row shows.

mod store;

pub use store::{Conflict, Difference, Limits, MemoryStore, Rows, Transaction};
