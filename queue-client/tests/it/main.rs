//! The client against a scripted holder in memory. Time is tokio's paused clock, so waiting takes none.
#![allow(clippy::unwrap_used)]

mod acquire;
mod drain;
mod outage;
mod scripted;
