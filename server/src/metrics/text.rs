//! Prometheus's text format, version 0.0.4.

use super::{BOUNDS, Instrument, Kind, Label, Metrics, Value};
use std::fmt::Write as _;

/// What the text is, for the header of the same name.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All instruments that show something.
pub(crate) fn text(metrics: &Metrics) -> String {
    let mut text = String::new();
    metrics.instruments().into_iter().for_each(|instrument| write(&mut text, instrument));
    text
}

fn write(text: &mut String, instrument: &dyn Instrument) {
    let series = instrument.read();
    if series.is_empty() {
        return;
    }
    let name = instrument.name();
    let kind = match instrument.kind() {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    // Writing to a string does not fail.
    let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", instrument.help());
    for (values, value) in series {
        let labels = labels(instrument.labels(), &values);
        let _ = match value {
            Value::Count(count) => writeln!(text, "{name}{} {count}", braced(&labels)),
            Value::Level(level) => writeln!(text, "{name}{} {level}", braced(&labels)),
            Value::Distribution { buckets, sum } => {
                let all = write_buckets(text, name, &labels, &buckets);
                writeln!(text, "{name}_sum{0} {sum}\n{name}_count{0} {all}", braced(&labels))
            }
        };
    }
}

/// Writes how many are in each bucket and in those below it; gives how many there are.
fn write_buckets(text: &mut String, name: &str, labels: &str, buckets: &[u64]) -> u64 {
    let bounds = BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
    let comma = if labels.is_empty() { "" } else { "," };
    bounds.zip(buckets).fold(0, |below, (bound, count)| {
        let all = below + count;
        let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {all}");
        all
    })
}

fn labels(names: &[&str], values: &[Label]) -> String {
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs = names.iter().zip(values).map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    pairs.collect::<Vec<_>>().join(",")
}

fn braced(labels: &str) -> String {
    if labels.is_empty() { String::new() } else { format!("{{{labels}}}") }
}

#[cfg(test)]
mod tests {
    use super::text;
    use crate::metrics::Metrics;
    use std::time::Duration;

    #[test]
    fn numbers_labels_and_distributions_are_written_as_prometheus_reads_them() {
        let metrics = Metrics::default();
        metrics.permits_granted.add([], 3);
        metrics.key_limit.set(["a\"b\\c\nd".into()], -1);
        metrics.wait.record([], Duration::from_millis(1));
        metrics.wait.record([], Duration::from_secs(100));
        let text = text(&metrics);
        for lines in [
            "# HELP pgsemaphore_permits_granted_total Permits of new grants.\n\
             # TYPE pgsemaphore_permits_granted_total counter\npgsemaphore_permits_granted_total 3\n",
            "pgsemaphore_key_limit{key=\"a\\\"b\\\\c\\nd\"} -1\n",
            "pgsemaphore_rounds_total{kind=\"timer\",outcome=\"failed\"} 0\n",
            "# TYPE pgsemaphore_wait_seconds histogram\npgsemaphore_wait_seconds_bucket{le=\"0.001\"} 1\n",
            "pgsemaphore_wait_seconds_bucket{le=\"60\"} 1\npgsemaphore_wait_seconds_bucket{le=\"+Inf\"} 2\n\
             pgsemaphore_wait_seconds_sum 100.001\npgsemaphore_wait_seconds_count 2\n",
        ] {
            assert!(text.contains(lines), "{lines}\n---\n{text}");
        }
        assert!(!text.contains("pgsemaphore_key_contended"), "what has no series is not mentioned");
    }
}
