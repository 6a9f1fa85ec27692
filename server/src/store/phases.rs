//! How long the steps of an attempt take.

use crate::clock;
use std::time::{Duration, Instant};

/// A step of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Take,
    Load,
    Plan,
    Apply,
    Commit,
}

impl Phase {
    /// All of them, in their order.
    pub(crate) const ALL: [Self; 5] = [Self::Take, Self::Load, Self::Plan, Self::Apply, Self::Commit];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Take => "take",
            Self::Load => "load",
            Self::Plan => "plan",
            Self::Apply => "apply",
            Self::Commit => "commit",
        }
    }
}

/// How long those took that the attempt came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Phases {
    latest: Instant,
    took: [Option<Duration>; Phase::ALL.len()],
}

impl Phases {
    pub(super) fn begin() -> Self {
        Self { latest: clock::now(), took: Default::default() }
    }

    /// What was done since the last phase ended, or the attempt began, was this one.
    pub(crate) fn end(&mut self, phase: Phase) {
        let now = clock::now();
        self.took[phase as usize] = Some(now - self.latest);
        self.latest = now;
    }

    pub(crate) fn took(&self, phase: Phase) -> Option<Duration> {
        self.took[phase as usize]
    }
}
