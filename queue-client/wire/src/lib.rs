//! The messages between a client and its holder, protocol version 1.
//!
//! Authoritative for field names, defaults and ranges of what travels over HTTP. Both sides use these types: a client
//! writes a [`Message`] and reads a [`Reply`], a holder the other way round. Reading a [`Message`] is strict about
//! known fields (a value out of its range is an error that says the range), reading a [`Reply`] is lenient: unknown
//! fields are ignored and unknown enum values become `Other`. Unknown fields are ignored in both.
//!
//! Not authoritative for what a message does; nothing here has I/O or a clock.

mod limits;
mod message;
mod printable;
mod problem;
mod reply;
mod strict;
mod takeover;

pub use strict::check_text;

pub use limits::*;
pub use message::{Demand, GrantReport, LeaseReport, Message};
pub use printable::printable;
pub use problem::{Code, Problem};
pub use reply::{Blocked, GrantVerdict, LeaseVerdict, Reason, Reply, Status};
pub use takeover::{FencedKey, TakenOver, TakenOverKey, Takeover};
