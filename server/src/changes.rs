//! What others changed of a key, as far as this holder knows: whether calls that are parked here have to be looked at.
//!
//! Anybody can send a hint. So a hint is believed only where the key's row shows a version that this holder has not
//! seen: each writing transaction of a key makes one.

use crate::hints::News;

/// The version of a key's row that this holder knows, and what it did not look at yet.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    version: Option<i64>,
    /// Others changed something since parked requests, or parked syncs, were last looked at.
    requests: bool,
    syncs: bool,
    /// What hints said, and the version that was read after them; none if nothing has to be read.
    told: Option<(News, Option<i64>)>,
}

impl Changes {
    /// A transaction of this holder found one version of the row and left another. A round looks at all parked requests.
    pub(crate) fn follow(&mut self, versions: Option<(i64, i64)>, is_round: bool) {
        let Some((before, after)) = versions else {
            return if self.version.is_some() {
                self.lose_track()
            };
        };
        if self.version.is_some_and(|known| known != before) {
            self.mark();
        }
        self.requests &= !is_round;
        self.version = Some(after);
    }

    /// A transaction of this holder had an unknown outcome.
    pub(crate) fn lose_track(&mut self) {
        self.version = None;
        self.mark();
    }

    /// A hint came, and the row was at this version after it.
    pub(crate) fn hear(&mut self, news: News, version: i64) {
        self.note(news, Some(version));
    }

    /// Parked calls have to be looked at, whatever the row's version is.
    pub(crate) fn assume(&mut self) {
        self.mark();
        self.note(News::Changed, None);
    }

    /// What parked calls are to be looked at for, if they are. To be asked while no transaction is under way.
    pub(crate) fn take(&mut self) -> Option<News> {
        let (news, read) = self.told.take()?;
        if read.is_some_and(|read| self.version.is_none_or(|known| known < read)) {
            self.mark();
            self.version = read;
        }
        let syncs = news == News::Changed && std::mem::take(&mut self.syncs);
        let requests = std::mem::take(&mut self.requests);
        let freed = requests.then_some(News::Freed);
        if syncs { Some(News::Changed) } else { freed }
    }

    fn note(&mut self, news: News, read: Option<i64>) {
        let told = self.told.map_or((news, read), |(told, before)| (told.max(news), before.max(read)));
        self.told = Some(told);
    }

    fn mark(&mut self) {
        (self.requests, self.syncs) = (true, true);
    }
}

#[cfg(test)]
mod tests {
    use super::Changes;
    use crate::hints::News;

    /// A holder that knows version 7.
    fn at_seven() -> Changes {
        let mut changes = Changes::default();
        changes.follow(Some((6, 7)), false);
        changes
    }

    #[test]
    fn a_hint_without_a_new_version_tells_nothing() {
        let mut changes = at_seven();
        for news in [News::Freed, News::Changed] {
            changes.hear(news, 7);
            assert_eq!(changes.take(), None);
        }
    }

    #[test]
    fn a_new_version_is_told_once() {
        for news in [News::Freed, News::Changed] {
            let mut changes = at_seven();
            changes.hear(news, 8);
            assert_eq!(changes.take(), Some(news));
            changes.hear(news, 8);
            assert_eq!(changes.take(), None);
        }
    }

    #[test]
    fn a_hint_of_an_own_transaction_tells_nothing() {
        let mut changes = at_seven();
        changes.hear(News::Changed, 8);
        changes.follow(Some((7, 8)), false);
        assert_eq!(changes.take(), None);
    }

    /// Others wrote before an own transaction did, so the version that is read later is known.
    #[test]
    fn a_change_between_own_transactions_is_told_by_its_hint() {
        let mut changes = at_seven();
        changes.follow(Some((8, 9)), false);
        assert_eq!(changes.take(), None);
        changes.hear(News::Changed, 9);
        assert_eq!(changes.take(), Some(News::Changed));
    }

    /// Of two changes the later one is read already when the first one's hint comes.
    #[test]
    fn what_came_back_leaves_parked_syncs_for_the_hint_that_concerns_them() {
        let mut changes = at_seven();
        changes.hear(News::Freed, 9);
        assert_eq!(changes.take(), Some(News::Freed));
        changes.hear(News::Changed, 9);
        assert_eq!(changes.take(), Some(News::Changed));
    }

    #[test]
    fn a_round_has_looked_at_parked_requests() {
        let mut changes = at_seven();
        changes.follow(Some((8, 9)), true);
        changes.hear(News::Freed, 9);
        assert_eq!(changes.take(), None);
        changes.hear(News::Changed, 9);
        assert_eq!(changes.take(), Some(News::Changed));
    }

    #[test]
    fn after_an_unknown_outcome_every_hint_is_believed() {
        let mut changes = at_seven();
        changes.lose_track();
        changes.hear(News::Changed, 7);
        assert_eq!(changes.take(), Some(News::Changed));
    }

    #[test]
    fn what_is_assumed_needs_no_new_version() {
        let mut changes = at_seven();
        changes.assume();
        assert_eq!(changes.take(), Some(News::Changed));
        assert_eq!(changes.take(), None);
    }
}
