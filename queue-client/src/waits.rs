//! When a long wait is told in the log: after 10 s, 1 and 10 minutes, for each group.
//!
//! Why not each waiter: thousands may wait for one reason. A group starts anew when nobody waits in it any more.

use std::collections::BTreeMap;

const AFTER_MS: [u64; 3] = [10_000, 60_000, 600_000];
/// Groups are looked through no more often than this.
const LOOK_PERIOD_MS: u64 = 1_000;

/// How often the wait of each group was told.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    told: BTreeMap<String, usize>,
    look_at: u64,
}

impl Waits {
    /// The groups whose wait is to be told now, of all `waiting` ones with the time since which somebody waits there.
    pub(crate) fn due<'a>(
        &mut self,
        now_ms: u64,
        waiting: impl Iterator<Item = (&'a str, u64)>,
    ) -> Vec<String> {
        if now_ms < self.look_at {
            return Vec::new();
        }
        let before = std::mem::take(&mut self.told);
        let mut next = now_ms + AFTER_MS[0];
        let mut due = Vec::new();
        for (group, since) in waiting {
            let told = before.get(group).copied().unwrap_or(0);
            let waited = now_ms.saturating_sub(since);
            let now_told = told.max(AFTER_MS.iter().filter(|after| waited >= **after).count());
            if now_told > told {
                due.push(group.to_owned());
            }
            if let Some(after) = AFTER_MS.get(now_told) {
                next = next.min(since + after);
            }
            if now_told > 0 {
                self.told.insert(group.to_owned(), now_told);
            }
        }
        self.look_at = next.max(now_ms + LOOK_PERIOD_MS);
        due
    }

    /// When to ask again, if somebody waits.
    pub(crate) fn look_at(&self) -> u64 {
        self.look_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_three_times_and_a_later_one_again() {
        let mut waits = Waits::default();
        let mut told = Vec::new();
        let mut now = 500;
        while now < 2_000_000 {
            if !waits.due(now, [("g", 500)].into_iter()).is_empty() {
                told.push(now - 500);
            }
            assert!(waits.look_at() > now);
            now = waits.look_at();
        }
        assert_eq!(told, AFTER_MS);
        assert!(waits.due(now, std::iter::empty()).is_empty());
        now = waits.look_at();
        assert_eq!(waits.due(now, [("g", now - 10_000)].into_iter()), ["g"]);
    }

    #[test]
    fn groups_that_never_empty_are_told_no_more_often() {
        let mut waits = Waits::default();
        let mut told = 0;
        for now in (0..3_600_000).step_by(500) {
            let since = u64::saturating_sub(now, 15_000); // the oldest of them has always waited for 15 s
            told += waits.due(now, [("g", since)].into_iter()).len();
        }
        assert_eq!(told, 1);
    }
}
