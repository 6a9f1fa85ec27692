//! The entries of demand of a round, in the order in which they are served.

use super::Committed;
use pgsemaphore_allocation::{Micros, Permits};
use queue_client::wire::Reply;

pub(super) struct Entry<'a> {
    pub(super) client: &'a str,
    pub(super) group: &'a str,
    pub(super) count: Permits,
    pub(super) seen: u64,
    /// Ids that the same message reports.
    pub(super) reported: Vec<&'a str>,
    /// Whether its client can hold leases.
    pub(super) takes_leases: bool,
    pub(super) reply: &'a Reply,
    since: Micros,
    call: usize,
}

/// Oldest first, then by arrival, then as the message lists them.
pub(super) fn in_order<'a>(committed: &Committed<'a>) -> Vec<Entry<'a>> {
    let mut entries = Vec::new();
    for (call, told) in committed.calls.iter().enumerate() {
        let Some(reply) = told.reply else { continue };
        let mut groups = Vec::<(&str, u64, u64)>::new();
        for demand in &told.message.demand {
            match groups.iter_mut().find(|(group, ..)| *group == demand.group) {
                None => groups.push((&demand.group, demand.count, demand.oldest_age_ms)),
                Some((_, count, age)) => {
                    *count += demand.count;
                    *age = demand.oldest_age_ms.max(*age);
                }
            }
        }
        let grants = told.message.grants.iter().flatten().map(|report| report.id.as_str());
        let leases = told.message.leases.iter().flatten().map(|report| report.id.as_str());
        let reported: Vec<_> = grants.chain(leases).collect();
        for (group, count, age) in groups.into_iter().filter(|(_, count, _)| *count > 0) {
            entries.push(Entry {
                client: &told.message.client_id,
                group,
                count: super::permits(count),
                seen: told.message.seen,
                reported: reported.clone(),
                takes_leases: told.message.leases.is_some(),
                reply,
                since: told.arrived - super::permits(age).saturating_mul(1000),
                call,
            });
        }
    }
    entries.sort_by_key(|entry| (entry.since, entry.call));
    entries
}
