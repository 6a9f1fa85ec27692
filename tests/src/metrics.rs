//! What a holder shows at `/metrics`, read as Prometheus does.

use std::collections::{BTreeMap, BTreeSet};

/// Values by series: the name with its labels as they are written.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// Asks the holder at `url`.
    ///
    /// # Panics
    ///
    /// When it does not answer in the text format.
    pub async fn of(url: &str) -> Self {
        let answer = crate::client().get(format!("{url}/metrics")).send().await.expect("an answer");
        assert_eq!(answer.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
        Self::read(&answer.text().await.expect("text"))
    }

    fn read(text: &str) -> Self {
        let mut typed = BTreeSet::new();
        let mut values = BTreeMap::new();
        for line in text.lines() {
            if let Some(comment) = line.strip_prefix("# TYPE ") {
                assert!(typed.insert(comment.split(' ').next().expect("a name")), "{line} comes twice");
            } else if !line.starts_with("# HELP ") {
                let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
                let name = base_name(series);
                assert!(typed.contains(name) || typed.contains(series), "no type before {line}");
                let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
                assert_eq!(values.insert(series.to_owned(), value), None, "{series} comes twice");
            }
        }
        Self(values)
    }

    /// The value of a series, as `name` or `name{label="value"}`.
    ///
    /// # Panics
    ///
    /// When there is no such series.
    #[must_use]
    pub fn value(&self, series: &str) -> f64 {
        self.find(series).unwrap_or_else(|| panic!("no series {series} among {:?}", self.0.keys()))
    }

    /// The same, if it is there.
    #[must_use]
    pub fn find(&self, series: &str) -> Option<f64> {
        self.0.get(series).copied()
    }

    /// All series.
    pub fn series(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The names of the series, without labels.
    #[must_use]
    pub fn names(&self) -> BTreeSet<&str> {
        self.series().map(|series| series.split('{').next().unwrap_or(series)).collect()
    }
}

/// The name that the type is declared for.
fn base_name(series: &str) -> &str {
    let name = series.split('{').next().unwrap_or(series);
    let part = ["_bucket", "_sum", "_count"].into_iter().find_map(|part| name.strip_suffix(part));
    part.filter(|base| base.ends_with("_seconds")).unwrap_or(name)
}
