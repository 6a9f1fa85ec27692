//! Integers and texts with names, so that one can't be taken for another.

use std::fmt;
use std::ops::{Add, Sub};

/// Permits: an amount, or a headroom that may be negative.
pub type Permits = i64;

/// A duration in microseconds.
pub type Micros = i64;

/// A row of the key's table of blocks.
pub type Slot = i32;

/// The highest number of a round: the largest integer that every JSON reader keeps exact. Replies carry rounds, and
/// requests carry them back as `seen`.
pub const ROUND_MAX: u64 = (1 << 53) - 1;

/// A moment of the database's clock, in microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DbTime(pub i64);

impl DbTime {
    /// The moment as a number of a round. A clock that is wrong by centuries has none: 0.
    pub(crate) fn as_round(self) -> u64 {
        u64::try_from(self.0).ok().filter(|round| *round < ROUND_MAX).unwrap_or(0)
    }
}

impl Add<Micros> for DbTime {
    type Output = Self;

    fn add(self, duration: Micros) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

impl Sub for DbTime {
    type Output = Micros;

    fn sub(self, earlier: Self) -> Micros {
        self.0.saturating_sub(earlier.0)
    }
}

impl Sub<Micros> for DbTime {
    type Output = Self;

    fn sub(self, duration: Micros) -> Self {
        Self(self.0.saturating_sub(duration))
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Takes a text whose length and content the caller has checked.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// The name of a semaphore: 1 to 512 bytes.
    SemaphoreKey
}
name! {
    /// The name of a job-queue process: 1 to 256 bytes.
    ClientId
}
name! {
    /// A label inside a key: 0 to 256 bytes.
    Group
}

/// What names a block within its key: the round that made it and the row it is in. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId {
    /// The round that made the block.
    pub round: u64,
    /// The row it is in.
    pub slot: Slot,
}

impl BlockId {
    /// Reads an id as [`Display`](fmt::Display) writes it; any other spelling names no block.
    pub fn parse(text: &str) -> Option<Self> {
        let (round, slot) = text.split_once('-')?;
        let id = Self { round: round.parse().ok()?, slot: slot.parse().ok()? };
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}-{}", self.round, self.slot)
    }
}
