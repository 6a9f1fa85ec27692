//! The client against holders in memory. Time is tokio's paused clock where a test plays the holder, so waiting takes
//! none.
#![allow(clippy::unwrap_used)]

mod acquire;
mod blocked;
mod cancel;
mod drain;
mod events;
mod first_hour;
mod leases;
mod limits;
mod logs;
#[cfg(feature = "otel")]
mod metrics;
mod outage;
mod own_thread;
mod permit_layer;
mod poller;
mod runtimes;
mod scripted;
mod services;
mod stress;
mod successor;
mod unknown;
