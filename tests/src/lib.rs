//! The kit of the end-to-end tests: a database of its own for each test, the real binary as a process, faults on demand,
//! and waiting.
//!
//! Nothing here sleeps to be right: [`until`] waits on a condition, ports are free ones, and every process that a test
//! starts ends with the test.

mod api;
mod authority;
mod caller;
mod cluster;
mod collector;
mod encrypted;
pub mod faults;
mod holder;
mod homes;
pub mod hostile;
mod metrics;
mod network;
mod process;
mod proxy;
mod standby;
mod tools;
mod truth;
mod until;
mod worker;

pub use api::{Answer, Api};
pub use authority::{Authority, Certificate};
pub use caller::{Caller, Heard};
pub use cluster::{Db, private_cluster, reachable_cluster};
pub use collector::{Collector, Log, Series, Span};
pub use holder::{InProcess, client, encode, message, used, verify};
pub use homes::{home_of, key_at, unbroken_since, until_acquainted};
pub use metrics::Metrics;
pub use network::{Neighbour, Network};
pub use process::{Process, Serve};
pub use proxy::{Act, COMMIT, Mode, Proxy, Way};
pub use standby::Standby;
pub use tools::program;
pub use truth::{Running, Truth};
pub use until::{HANG, until, until_some, within_reason};
pub use worker::{Held, Worker};
