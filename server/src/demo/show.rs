//! What the demo shows: bars on a terminal, a line now and then elsewhere, and a table at the end.

use std::collections::BTreeMap;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::jobs::Counts;

/// Without a terminal, a line each time another share of the jobs is done.
const LINES: i64 = 10;

pub(super) struct Progress {
    bars: BTreeMap<&'static str, ProgressBar>,
    on_terminal: bool,
    lines_shown: i64,
}

impl Progress {
    pub(super) fn new(tenants: &[(&'static str, i32)]) -> Self {
        let all = MultiProgress::new();
        let style = ProgressStyle::with_template("  {prefix:<8} [{bar:30}] {pos:>3} of {len} done, {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> ");
        let bar = |(tenant, jobs): &(&'static str, i32)| {
            let bar = ProgressBar::new(u64::from(jobs.unsigned_abs()))
                .with_style(style.clone())
                .with_prefix(*tenant);
            (*tenant, all.add(bar))
        };
        Self { bars: tenants.iter().map(bar).collect(), on_terminal: !all.is_hidden(), lines_shown: 0 }
    }

    pub(super) fn update(&mut self, counts: &BTreeMap<String, Counts>) {
        for (tenant, bar) in &self.bars {
            let count = counts.get(*tenant).copied().unwrap_or_default();
            bar.set_position(count.done.unsigned_abs());
            bar.set_message(format!("{} running, {} waiting", count.running, count.waiting));
        }
        if !self.on_terminal {
            self.update_lines(counts);
        }
    }

    fn update_lines(&mut self, counts: &BTreeMap<String, Counts>) {
        let total: i64 = counts.values().map(|count| count.waiting + count.running + count.done).sum();
        let done: i64 = counts.values().map(|count| count.done).sum();
        if total == 0 || done * LINES / total < self.lines_shown {
            return;
        }
        self.lines_shown = done * LINES / total + 1;
        let each = |(tenant, count): (&String, &Counts)| {
            format!("{tenant} {} done, {} running, {} waiting", count.done, count.running, count.waiting)
        };
        eprintln!("  {done:>3} of {total} done: {}", counts.iter().map(each).collect::<Vec<_>>().join("; "));
    }

    pub(super) fn finish(&self) {
        for bar in self.bars.values() {
            bar.finish();
        }
    }
}
