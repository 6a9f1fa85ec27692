//! The holder: a server that allocates the permits of shared concurrency budgets out of PostgreSQL.
//!
//! The path of a call is the names of the modules: [`request`] decodes it, `pending` keeps it until its key's round,
//! `round` allocates in one transaction of the [`store`], `reply` says what was decided. What a round decides is in the
//! crate `pgsemaphore_allocation`.

pub mod access;
mod actor;
mod address;
mod changes;
mod claims;
pub mod cli;
mod clock;
mod demo;
pub mod embedded;
mod functions;
mod hearing;
mod hinted;
mod hints;
mod holder;
mod homes;
mod housekeeping;
pub mod http;
mod json;
mod keys;
mod live;
mod metrics;
mod open_calls;
mod outbox;
mod panics;
mod parked;
mod pending;
mod policy_body;
mod policy_changes;
mod refusal;
mod rendezvous;
mod reply;
pub mod request;
mod round;
mod self_check;
mod speaker;
mod stirred;
pub mod store;
mod takeover;
mod telemetry;
mod trouble;
mod waiting;

pub use holder::{Holder, Settings};
pub use live::Unusable;
pub use refusal::Refusal;
pub use round::{Heard, Moment, Pace, StillWaits, Turn, TurnResult, transact, transact_at};
pub use store::{Store, StoreError};

use std::sync::LazyLock;

/// The schema, as migrations that are compiled in. A database may have newer ones.
pub static MIGRATOR: LazyLock<sqlx::migrate::Migrator> = LazyLock::new(|| {
    let mut migrator = sqlx::migrate!();
    migrator.set_ignore_missing(true);
    migrator
});
