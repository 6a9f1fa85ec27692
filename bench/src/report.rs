//! Tables in Markdown on standard output, and at their end what was to be reached.

use std::time::Duration;

/// The targets met so far, with what was measured.
#[derive(Default)]
pub struct Report {
    targets: Vec<[String; 4]>,
}

impl Report {
    /// A target, and whether it was reached.
    pub fn target(&mut self, what: &str, wanted: &str, measured: String, reached: bool) {
        let verdict = if reached { "reached" } else { "**NOT reached**" };
        self.targets.push([what.into(), wanted.into(), measured, verdict.into()]);
    }

    /// Prints all targets.
    pub fn print_targets(self) {
        title("Targets");
        table(&["target", "wanted", "measured", ""], self.targets);
    }
}

pub fn title(text: &str) {
    println!("\n## {text}\n");
}

/// Prints a table; numbers are texts by now.
pub fn table<const N: usize>(head: &[&str; N], rows: impl IntoIterator<Item = [String; N]>) {
    println!("| {} |", head.join(" | "));
    println!("|{}", " --- |".repeat(N));
    rows.into_iter().for_each(|row| println!("| {} |", row.join(" | ")));
    println!();
}

/// The middle one of some values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Milliseconds of the middle one.
pub fn median_ms(times: &[Duration]) -> f64 {
    median(times.iter().copied().map(ms))
}

pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Three digits that count.
pub fn short(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}
