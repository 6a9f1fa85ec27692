//! Worlds without I/O in which the real allocation and the real client's ledger are tried.
//!
//! [`MemoryStore`] stands in for PostgreSQL, and gives a round exactly what its contract asks for, so that a missing row
//! shows. A world puts processes with ledgers, holders, a network and clocks around it, all of them faulty, and takes
//! one random step after another; [`simulate`] runs one from its seed, byte for byte the same each time. What happens is
//! judged by an audit, which is written from the promises P1 to P7 and shares no code with the allocation.
//!
//! [`search()`] tries every way through a world that is small enough for it.
//!
//! Authoritative for what the promises mean in a faulty world. Not authoritative for how a server stores, waits or
//! talks: its shell is tested elsewhere, against PostgreSQL.

mod audit;
mod plant;
mod random;
pub mod script;
mod search;
mod store;
mod trace;
mod world;

pub use audit::Violation;
pub use plant::Plant;
pub use search::{Bounds, Search, search};
pub use store::{Conflict, Difference, Limits, MemoryStore, Rows, Transaction};
pub use world::{Outcome, Simulate, Totals, WORLD_STEPS, simulate, simulate_hanging, simulate_many};
