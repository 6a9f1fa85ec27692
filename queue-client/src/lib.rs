//! Permits of a shared concurrency budget, for job queues.
//!
//! A *semaphore* is one budget with a name, its key: "account 42 may run 100 jobs at once". Many processes admit work
//! under it; a *holder* keeps the accounts, in PostgreSQL. This crate is what a job queue embeds: it waits for its share
//! and turns it into [`Permit`]s, one for each item that runs.
//!
//! # Guarantees
//!
//! - **Never more than is counted.** An item gets its permit only when the holder counts it as in use: confirmed one by
//!   one, or as a part of a *lease*, which is counted whole from before it comes here until this client says that it has
//!   stopped drawing. However messages are lost, repeated, late or out of order, whoever crashes, and whatever any clock
//!   says, the holder counts at least the permits that are held here.
//! - **Nothing is freed twice, nothing is lost.** Reports are cumulative marks that only move forward, said until the
//!   holder has confirmed them. What was granted and never used comes back by itself.
//! - **In order.** Within a group of one process, first in, first out. Across processes the holder serves the oldest
//!   first, by ages measured here, so wrong clocks don't jump the queue.
//! - **Outages are waited through,** with pauses that grow and jitter. What waiting can't cure fails the waiting
//!   acquires with an error that says what to do.
//! - **Dropping is safe.** A dropped acquire loses no permit, a dropped permit is released, on a panic too.
//!
//! Not guaranteed: that an item stops. A permit is a contract; let it live as long as the work. What a process that dies
//! had claimed stays counted until it is declared dead: by a successor of the same [`client_id`](Builder::client_id), by
//! an operator, or by the policy. A process that was declared dead and lives is shut out: its acquires fail with
//! [`AcquireError::Fenced`], and its permits say by [`Permit::is_counted`] that they are beyond the budget.
//!
//! # Example
//!
//! ```no_run
//! use queue_client::QueueClient;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let client = QueueClient::builder().url("http://127.0.0.1:7432").build()?;
//!     let account = client.semaphore("account:42");
//!     client.check().await?; // says what is wrong, now and not later
//!
//!     let mut jobs = tokio::task::JoinSet::new();
//!     for job in 0..20 {
//!         let account = account.clone();
//!         jobs.spawn(async move {
//!             let permit = account.acquire("nightly").await?; // waits while the budget is in use
//!             run(job).await;
//!             drop(permit); // released
//!             Ok::<_, queue_client::AcquireError>(())
//!         });
//!     }
//!     while let Some(ended) = jobs.join_next().await {
//!         ended??;
//!     }
//!
//!     client.drain().await?; // gives everything back
//!     Ok(())
//! }
//!
//! async fn run(_job: u32) { /* call the provider */ }
//! ```
//!
//! [`Semaphore::acquire`] waits as long as it takes, [`acquire_timeout`](Semaphore::acquire_timeout) says at its end why
//! it waited, [`Group::poll`] is a loop for queues that are polled, [`acquire_up_to`](Semaphore::acquire_up_to) what such a
//! loop is made of, and [`try_acquire`](Semaphore::try_acquire) takes what is here. [`PermitLayer`] puts a tower service under permits, and an
//! [`HttpTransport`] takes layers by [`ServiceTransport`].
//!
//! # What is going on
//!
//! [`Semaphore::blocked`] says why whoever waits here waits, and since when. [`QueueClient::events`] is a stream of what
//! happens; the log has what matters of it, by `tracing`, and with the feature `otel` the application's meter counts it and
//! its traces go on at the holder. [`QueueClient::drain_timeout`] says what is left.
//!
//! The tasks of a client run on the runtime that acquires. One that is blocked delays heartbeats, which costs time and
//! never the limit, and is told by [`Event::HeartbeatLate`]; see [`Builder::own_thread`].
//!
//! The crate's README has tables of what a permit goes through and of what happens when something fails.
//!
//! # Work that outlives the process
//!
//! ```no_run
//! use queue_client::{DetachedPermit, QueueClient};
//!
//! # async fn example(stored: Vec<DetachedPermit>) -> Result<(), Box<dyn std::error::Error>> {
//! // At each start, with what the jobs that still run were stored with. All else that worker-7 held goes back.
//! let client = QueueClient::builder().url("http://127.0.0.1:7432").client_id("worker-7").resume(stored).build()?;
//!
//! let detached = client.semaphore("account:42").acquire("nightly").await?.detach();
//! let job = serde_json::to_string(&detached)?; // store it with the job, then start that
//!
//! // When the job has ended, in this process or a later one:
//! drop(client.resume(&serde_json::from_str(&job)?)?);
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! One task per key, which lives while anything is waited for or held, talks to a holder. Demand goes out in a *request*
//! that waits for the key's next round, and is kept by the holder while it gets nothing; what it is granted is claimed in
//! a *sync*, one for all that wait; released permits are reported at once, those that come up meanwhile together. Every five minutes at least, or as often as the
//! policy asks for, what is held is reported whole. Nothing waits for a call that hangs: what it said is said again, at
//! another address, in time for what the holder promised. The decisions are made by [`ledger::Ledger`], a
//! state machine without I/O, clock or randomness; messages go by any [`Transport`], by default [`HttpTransport`].
//!
//! Where the semaphore's policy provides leases, a request may also bring one: a block of permits that are given at once
//! from then on, without a message. Keep a [`Group`] for them, which saves looking its name up. A lease is reported at
//! half its time to live, and kept until others lack permits while nothing of its group waits here; the holder tells by
//! a sync that is *parked* there while there is a lease. What comes back from a lease counts again at the holder when it
//! is reported: at once if somebody lacks it, else with whatever is said next.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod addresses;
mod admission;
mod blocked;
mod builder;
mod check;
mod client;
mod credentials;
mod detached;
mod driver;
mod driving;
mod environment;
mod error;
mod events;
mod generation;
mod hint;
mod holder_url;
mod http;
pub mod ledger;
mod metrics;
mod own_thread;
mod permit;
mod permit_layer;
mod place;
mod poller;
mod service;
mod shared;
mod spans;
mod takeover;
mod told;
mod transport;
mod waits;
mod warning;

pub use admission::{Group, Semaphore};
pub use blocked::{Blocked, Cause};
pub use builder::Builder;
pub use client::QueueClient;
pub use credentials::Credentials;
pub use detached::DetachedPermit;
pub use error::{AcquireError, BuildError, CheckError, DrainError, ResumeError, TakeOverError, Undrained};
pub use events::{EVENTS_MAX, Event, Events};
pub use http::HttpTransport;
pub use permit::Permit;
pub use permit_layer::{PermitError, PermitLayer, PermitService};
pub use poller::Poller;
pub use queue_wire as wire;
pub use service::{Answer, Ask, ServiceTransport};
pub use transport::{CallError, Calling, Endpoint, Transport};

/// The examples in these documents compile.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../README.md")]
    struct OfTheCrate;
    #[doc = include_str!("../../docs/shared-limit.md")]
    struct SharedLimit;
}
