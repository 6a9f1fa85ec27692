//! What the records prove: a table, and every promise that was broken.

use std::collections::BTreeMap;

use super::jobs::Counts;
use super::overlap::{self, Peak};
use super::records::Record;
use super::{CAPPED, LIMIT, TENANTS};
use crate::cli::{Rows, table};

pub(super) struct Verdict {
    pub(super) table: Rows,
    pub(super) broken: Vec<String>,
}

pub(super) fn judge(records: &[Record], counts: &BTreeMap<String, Counts>) -> Verdict {
    let peaks = overlap::per_group(records);
    let starts = overlap::starts(records);
    let mut broken = Vec::new();
    let mut rows = table(&["TENANT", ">JOBS", ">RAN", ">DONE", ">LIMIT", ">MOST AT ONCE"]);
    let mut add = |name: &str, jobs: i64, peak: Peak, done: i64, limit: Option<usize>| {
        rows.add_row([
            name.to_owned(),
            jobs.to_string(),
            peak.items.to_string(),
            done.to_string(),
            limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string()),
            peak.at_once.to_string(),
        ]);
        if i64::try_from(peak.items) != Ok(jobs) || done != jobs {
            broken.push(format!("{name}: {jobs} jobs, of which {} ran and {done} are done", peak.items));
        }
        if let Some(limit) = limit.filter(|limit| peak.at_once > *limit) {
            broken.push(format!("{name}: {} at once, the limit is {limit}", peak.at_once));
        }
    };
    for (tenant, jobs) in TENANTS {
        let limit = (tenant == CAPPED.0).then_some(CAPPED.1);
        let done = counts.get(tenant).map_or(0, |count| count.done);
        add(tenant, jobs.into(), peaks.get(tenant).copied().unwrap_or_default(), done, limit);
    }
    let jobs = TENANTS.iter().map(|(_, jobs)| i64::from(*jobs)).sum();
    let done = counts.values().map(|count| count.done).sum();
    add("together", jobs, overlap::overall(records), done, Some(LIMIT));
    broken
        .extend(starts.iter().filter(|(_, n)| **n > 1).map(|(item, n)| format!("job {item} ran {n} times")));
    Verdict { table: rows, broken }
}
