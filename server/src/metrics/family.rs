//! Instruments: a number, or a distribution, for each set of labels that was used.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

/// Upper bounds of the buckets of all distributions, in seconds.
pub(crate) const BOUNDS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// The value of a label.
pub(crate) type Label = Cow<'static, str>;

/// What an instrument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only rises.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts durations by their length.
    Histogram,
}

/// What an instrument shows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// Of a counter.
    Count(u64),
    /// Of a gauge.
    Level(i64),
    /// Of a histogram: how many in each bucket, the last one without bound; and their sum in seconds.
    Distribution { buckets: [u64; BOUNDS.len() + 1], sum: f64 },
}

/// What an instrument is made of.
pub(crate) trait Metric: Default + Send + Sync + 'static {
    const KIND: Kind;

    fn value(&self) -> Value;
}

/// A number that only rises.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

/// A number.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicI64);

/// Durations.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl Metric for Counter {
    const KIND: Kind = Kind::Counter;

    fn value(&self) -> Value {
        Value::Count(self.0.load(Ordering::Relaxed))
    }
}

impl Metric for Gauge {
    const KIND: Kind = Kind::Gauge;

    fn value(&self) -> Value {
        Value::Level(self.0.load(Ordering::Relaxed))
    }
}

impl Metric for Histogram {
    const KIND: Kind = Kind::Histogram;

    fn value(&self) -> Value {
        Value::Distribution {
            buckets: std::array::from_fn(|at| self.buckets[at].load(Ordering::Relaxed)),
            sum: Duration::from_micros(self.micros.load(Ordering::Relaxed)).as_secs_f64(),
        }
    }
}

/// Hears of each duration as it is recorded, with the values of its labels.
pub(crate) type Listener = Box<dyn Fn(f64, &[Label]) + Send + Sync>;

/// An instrument with its labels.
pub(crate) struct Family<M, const N: usize> {
    name: &'static str,
    help: &'static str,
    labels: [&'static str; N],
    series: RwLock<BTreeMap<[Label; N], Arc<M>>>,
    listener: OnceLock<Listener>,
}

impl<M: Metric, const N: usize> Family<M, N> {
    /// `values` of labels are shown from the start; where those of a label are empty, as they come up.
    pub(super) fn new(
        name: &'static str,
        help: &'static str,
        labels: [&'static str; N],
        values: [&[&'static str]; N],
    ) -> Self {
        let family = Self { name, help, labels, series: RwLock::default(), listener: OnceLock::new() };
        let all: usize = values.iter().map(|values| values.len()).product();
        for mut n in 0..all {
            let labels = values.map(|values| {
                let value = values[n % values.len()];
                n /= values.len();
                Cow::Borrowed(value)
            });
            family.at(labels);
        }
        family
    }

    fn at(&self, labels: [Label; N]) -> Arc<M> {
        let known = self.series.read().unwrap_or_else(PoisonError::into_inner).get(&labels).cloned();
        known.unwrap_or_else(|| {
            self.series.write().unwrap_or_else(PoisonError::into_inner).entry(labels).or_default().clone()
        })
    }
}

impl<const N: usize> Family<Counter, N> {
    pub(crate) fn add(&self, labels: [Label; N], count: u64) {
        self.at(labels).0.fetch_add(count, Ordering::Relaxed);
    }
}

impl<const N: usize> Family<Gauge, N> {
    pub(crate) fn set(&self, labels: [Label; N], level: i64) {
        self.at(labels).0.store(level, Ordering::Relaxed);
    }

    /// Sets several at once: no reader sees some of them without the others.
    pub(crate) fn set_all(&self, levels: impl IntoIterator<Item = ([Label; N], i64)>) {
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        for (labels, level) in levels {
            series.entry(labels).or_default().0.store(level, Ordering::Relaxed);
        }
    }

    pub(crate) fn level(&self, labels: [Label; N]) -> i64 {
        self.at(labels).0.load(Ordering::Relaxed)
    }
}

impl<const N: usize> Family<Histogram, N> {
    pub(crate) fn record(&self, labels: [Label; N], duration: Duration) {
        let seconds = duration.as_secs_f64();
        if let Some(listener) = self.listener.get() {
            listener(seconds, &labels);
        }
        let histogram = self.at(labels);
        let bucket = BOUNDS.partition_point(|bound| *bound < seconds);
        histogram.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        histogram.micros.fetch_add(micros, Ordering::Relaxed);
    }
}

/// An instrument, to be read.
pub(crate) trait Instrument: Send + Sync {
    fn name(&self) -> &'static str;

    fn help(&self) -> &'static str;

    fn kind(&self) -> Kind;

    fn labels(&self) -> &[&'static str];

    /// What it shows, by the values of its labels in their order.
    fn read(&self) -> Vec<(Vec<Label>, Value)>;

    /// Has one listener told of each duration from now on.
    #[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "only what sends durations listens"))]
    fn listen(&self, listener: Listener);
}

impl<M: Metric, const N: usize> Instrument for Family<M, N> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn help(&self) -> &'static str {
        self.help
    }

    fn kind(&self) -> Kind {
        M::KIND
    }

    fn labels(&self) -> &[&'static str] {
        &self.labels
    }

    fn read(&self) -> Vec<(Vec<Label>, Value)> {
        let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
        series.iter().map(|(labels, metric)| (labels.to_vec(), metric.value())).collect()
    }

    fn listen(&self, listener: Listener) {
        let _one_is_enough = self.listener.set(listener);
    }
}
