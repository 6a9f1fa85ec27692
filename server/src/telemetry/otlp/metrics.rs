//! The instruments of a holder, as OpenTelemetry knows them.
//!
//! The name of an instrument is the one at `/metrics` with a dot behind `pgsemaphore`, and without `_total` and
//! `_seconds`: the unit says the latter. Collectors that write Prometheus's names put both back.

use crate::holder::Holder;
use crate::metrics::{BOUNDS, Instrument, Kind, Label, Metrics, Value};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

/// Has the meter show all that the holder counts.
pub(super) fn observe(meter: &Meter, holder: &Holder) {
    for (at, instrument) in holder.metrics().instruments().into_iter().enumerate() {
        let (name, help) = (name(instrument.name()), instrument.help());
        let holder = holder.clone();
        match instrument.kind() {
            Kind::Counter => {
                let show = move |value: &dyn opentelemetry::metrics::AsyncInstrument<u64>| {
                    each(holder.metrics(), at, |read, labels| match read {
                        Value::Count(count) => value.observe(count, labels),
                        Value::Level(_) | Value::Distribution { .. } => {}
                    });
                };
                meter.u64_observable_counter(name).with_description(help).with_callback(show).build();
            }
            Kind::Gauge => {
                let show = move |value: &dyn opentelemetry::metrics::AsyncInstrument<i64>| {
                    each(holder.metrics(), at, |read, labels| match read {
                        Value::Level(level) => value.observe(level, labels),
                        Value::Count(_) | Value::Distribution { .. } => {}
                    });
                };
                meter.i64_observable_gauge(name).with_description(help).with_callback(show).build();
            }
            Kind::Histogram => {
                let histogram = meter.f64_histogram(name).with_description(help).with_unit("s");
                let histogram = histogram.with_boundaries(BOUNDS.to_vec()).build();
                let names = instrument.labels().to_vec();
                instrument.listen(Box::new(move |seconds, values| {
                    histogram.record(seconds, &attributes(&names, values));
                }));
            }
        }
    }
}

fn name(prometheus: &str) -> String {
    let name = prometheus.trim_end_matches("_total").trim_end_matches("_seconds");
    name.replacen('_', ".", 1)
}

fn each(metrics: &Metrics, at: usize, mut show: impl FnMut(Value, &[KeyValue])) {
    let instruments = metrics.instruments();
    let instrument: &dyn Instrument = instruments[at];
    for (values, value) in instrument.read() {
        show(value, &attributes(instrument.labels(), &values));
    }
}

fn attributes(names: &[&'static str], values: &[Label]) -> Vec<KeyValue> {
    names.iter().zip(values).map(|(name, value)| KeyValue::new(*name, value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn names_follow_from_those_at_metrics() {
        for (prometheus, expected) in [
            ("pgsemaphore_rounds_total", "pgsemaphore.rounds"),
            ("pgsemaphore_transaction_phase_seconds", "pgsemaphore.transaction_phase"),
            ("pgsemaphore_live_holders", "pgsemaphore.live_holders"),
        ] {
            assert_eq!(name(prometheus), expected);
        }
    }
}
