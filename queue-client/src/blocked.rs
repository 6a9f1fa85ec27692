//! Why who waits waits, for people who ask.
//!
//! Authoritative for nothing: it remembers what holders said last, and decides nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant as StdInstant};

use queue_wire::{Blocked as Entry, Reason};
use tokio::time::Instant;

/// Items of one group that wait in this process, and why.
///
/// Its text is for people, such as `3 wait in "nightly": the shared limit is reached, for 12 s`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blocked {
    /// The group.
    pub group: String,
    /// How many wait.
    pub waiting: u64,
    /// Why, as far as this process has heard.
    pub cause: Cause,
    /// Since when for this cause, or since when the oldest of them waits if that is later.
    pub since: StdInstant,
}

/// Why an item waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// A holder has been asked, or is about to be, and has not said no; or its yes is being confirmed.
    Asked,
    /// No holder answers. Calls are repeated, with pauses of up to 10 s.
    Unreachable,
    /// The holder said that there is no permit for it now, and why.
    Refused(Reason),
}

#[cfg(feature = "otel")]
impl Cause {
    pub(crate) const ALL: [Self; 8] = [
        Self::Asked,
        Self::Unreachable,
        Self::Refused(Reason::Limit),
        Self::Refused(Reason::GroupLimit),
        Self::Refused(Reason::Paused),
        Self::Refused(Reason::NotPermitted),
        Self::Refused(Reason::LimitResolutionError),
        Self::Refused(Reason::Other),
    ];

    /// In metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Unreachable => "unreachable",
            Self::Refused(Reason::Limit) => "limit",
            Self::Refused(Reason::GroupLimit) => "group_limit",
            Self::Refused(Reason::Paused) => "paused",
            Self::Refused(Reason::NotPermitted) => "not_permitted",
            Self::Refused(Reason::LimitResolutionError) => "limit_resolution_error",
            Self::Refused(Reason::Other) => "other",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "the holder is asked",
            Self::Unreachable => "no holder answers",
            Self::Refused(Reason::Limit) => "the shared limit is reached",
            Self::Refused(Reason::GroupLimit) => "the group's limit is reached",
            Self::Refused(Reason::Paused) => "an operator has paused it",
            Self::Refused(Reason::NotPermitted) => "the policy does not permit it",
            Self::Refused(Reason::LimitResolutionError) => "the limit can't be resolved",
            Self::Refused(Reason::Other) => "the holder has a reason that this version does not know",
        })
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, waiting, cause, since } = self;
        write!(f, "{waiting} wait in {group:?}: {cause}, for {} s", since.elapsed().as_secs())
    }
}

/// What was heard last.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    refused: BTreeMap<String, (Reason, Instant)>,
    unreachable: Option<Instant>,
}

impl Standing {
    /// A request that stated demand of the groups `asked` was answered. Returns the entries that say something new.
    pub(crate) fn answered<'a>(&mut self, asked: &[String], blocked: &'a [Entry]) -> Vec<&'a Entry> {
        let now = Instant::now();
        let was = asked.iter().filter_map(|group| self.refused.remove_entry(group));
        let mut before: BTreeMap<String, (Reason, Instant)> = was.collect();
        let news = blocked.iter().filter(|entry| {
            let same = before.remove(&entry.group).filter(|(reason, _)| *reason == entry.reason);
            let since = same.map_or(now, |(_, since)| since);
            self.refused.insert(entry.group.clone(), (entry.reason, since));
            same.is_none()
        });
        news.collect()
    }

    /// Groups in which nobody waits any more need no reason.
    pub(crate) fn retain(&mut self, waits: impl Fn(&str) -> bool) {
        self.refused.retain(|group, _| waits(group));
    }

    /// Nobody answers; true if that is new.
    pub(crate) fn unreachable(&mut self) -> bool {
        let new = self.unreachable.is_none();
        self.unreachable.get_or_insert_with(Instant::now);
        new
    }

    pub(crate) fn is_unreachable(&self) -> bool {
        self.unreachable.is_some()
    }

    /// A holder answered: how long none did, if so.
    pub(crate) fn reachable(&mut self) -> Option<Duration> {
        self.unreachable.take().map(|since| since.elapsed())
    }

    pub(crate) fn of(&self, group: &str) -> Option<(Cause, Instant)> {
        if let Some(since) = self.unreachable {
            return Some((Cause::Unreachable, since));
        }
        self.refused.get(group).map(|(reason, since)| (Cause::Refused(*reason), *since))
    }
}
