//! Nothing is counted.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Inner;
use crate::error::AcquireError;
use crate::events::Event;
use crate::ledger::Tally;

#[derive(Default)]
pub(crate) struct Metrics;

pub(crate) struct Wait;

impl Metrics {
    pub(crate) fn observe(&self, _: &Arc<Inner>) {}

    pub(crate) fn event(&self, _: &Event) {}

    pub(crate) fn tally(&self, _: Tally) {}

    pub(crate) fn call(&self, _: &'static str, _: &'static str, _: Duration) {}

    pub(crate) fn wait(&self) -> Wait {
        Wait
    }
}

impl Wait {
    pub(crate) fn ended<T>(self, _: &Result<T, AcquireError>) {}
}
