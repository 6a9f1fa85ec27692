//! The kit of the end-to-end tests: a database of its own for each test, the real binary as a process, and waiting.
//!
//! Nothing here sleeps to be right: [`until`] waits on a condition, ports are free ones, and every process that a test
//! starts ends with the test.

mod api;
mod cluster;
mod holder;
mod process;
mod until;

pub use api::{Answer, Api};
pub use cluster::{Db, private_cluster};
pub use holder::{InProcess, encode, message, verify};
pub use process::{Process, Serve};
pub use until::{HANG, until, until_some, within_reason};
