//! The client against holders in memory. Time is tokio's paused clock where a test plays the holder, so waiting takes
//! none.
#![allow(clippy::unwrap_used)]

mod acquire;
mod drain;
mod leases;
mod outage;
mod scripted;
mod stress;
mod successor;
