//! How many items ran at once, from the records of when each started and stopped.

use std::collections::BTreeMap;

use super::records::{Event, Record};

/// What the records of one key or group say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Peak {
    /// Items that started.
    pub(super) items: usize,
    /// The greatest number that ran at the same moment.
    pub(super) at_once: usize,
}

/// The peak of all records together.
pub(super) fn overall<'a>(records: impl IntoIterator<Item = &'a Record>) -> Peak {
    // At the same nanosecond a stop comes first: the item had stopped when its permit was given back.
    let mut steps: Vec<(u64, Event)> = records.into_iter().map(|record| (record.at, record.event)).collect();
    steps.sort_unstable();
    let mut peak = Peak::default();
    let mut running: usize = 0;
    for (_, event) in steps {
        match event {
            Event::Stop => running = running.saturating_sub(1),
            Event::Start => {
                running += 1;
                peak.items += 1;
                peak.at_once = peak.at_once.max(running);
            }
        }
    }
    peak
}

/// The peak of each group.
pub(super) fn per_group(records: &[Record]) -> BTreeMap<&str, Peak> {
    let mut groups: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for record in records {
        groups.entry(&record.group).or_default().push(record);
    }
    groups.into_iter().map(|(group, records)| (group, overall(records))).collect()
}

/// How often each item started.
pub(super) fn starts(records: &[Record]) -> BTreeMap<i64, usize> {
    let mut starts = BTreeMap::new();
    for record in records.iter().filter(|record| record.event == Event::Start) {
        *starts.entry(record.item).or_default() += 1;
    }
    starts
}

/// How much of `limit` was in use from the first start to the last stop, in percent.
pub(super) fn percent_in_use(records: &[&Record], limit: usize) -> u64 {
    let times = |event| records.iter().filter(move |record| record.event == event).map(|record| record.at);
    let (Some(first), Some(last)) = (times(Event::Start).min(), times(Event::Stop).max()) else { return 0 };
    let total = |event| times(event).map(u128::from).sum::<u128>();
    let busy = total(Event::Stop).saturating_sub(total(Event::Start));
    let whole = u128::from(last.saturating_sub(first)) * limit as u128;
    u64::try_from((busy * 100).checked_div(whole).unwrap_or(0)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_is_a_share_of_the_limit_from_first_to_last() {
        let records = [ran(1, "a", 0, 10), ran(2, "a", 0, 5), ran(3, "a", 10, 15)].concat();
        let records: Vec<&Record> = records.iter().collect();
        assert_eq!(percent_in_use(&records, 2), 66);
        assert_eq!(percent_in_use(&[], 2), 0);
    }

    fn ran(item: i64, group: &str, from: u64, to: u64) -> [Record; 2] {
        [(Event::Start, from), (Event::Stop, to)].map(|(event, at)| Record {
            at,
            event,
            key: "k".into(),
            group: group.into(),
            client: "c".into(),
            item,
            in_rush: true,
        })
    }

    #[test]
    fn nothing_ran() {
        assert_eq!(overall(&[]), Peak::default());
    }

    #[test]
    fn one_after_the_other_is_one_at_once() {
        let records = [ran(1, "a", 0, 10), ran(2, "a", 10, 20), ran(3, "a", 20, 30)].concat();
        assert_eq!(overall(&records), Peak { items: 3, at_once: 1 });
    }

    #[test]
    fn the_order_of_the_records_does_not_matter() {
        let mut records = [ran(1, "a", 0, 10), ran(2, "a", 9, 20), ran(3, "a", 8, 9)].concat();
        assert_eq!(overall(&records).at_once, 2);
        records.reverse();
        assert_eq!(overall(&records).at_once, 2);
    }

    #[test]
    fn an_item_that_never_stopped_runs_on() {
        let records = [ran(1, "a", 0, 10)[..1].to_vec(), ran(2, "a", 100, 110).to_vec()].concat();
        assert_eq!(overall(&records).at_once, 2);
    }

    #[test]
    fn groups_are_counted_apart() {
        let records = [ran(1, "a", 0, 10), ran(2, "b", 5, 15), ran(3, "a", 6, 7)].concat();
        let groups = per_group(&records);
        assert_eq!(groups["a"], Peak { items: 2, at_once: 2 });
        assert_eq!(groups["b"], Peak { items: 1, at_once: 1 });
        assert_eq!(overall(&records).at_once, 3);
    }

    #[test]
    fn an_item_that_ran_twice_shows() {
        let records = [ran(1, "a", 0, 1), ran(2, "a", 1, 2), ran(1, "a", 2, 3)].concat();
        assert_eq!(starts(&records), BTreeMap::from([(1, 2), (2, 1)]));
    }
}
