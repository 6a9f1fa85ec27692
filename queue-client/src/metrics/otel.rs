//! Instruments of OpenTelemetry's API: where they are sent is the application's business.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use tokio::time::Instant;

use crate::blocked::Cause;
use crate::client::Inner;
use crate::error::AcquireError;
use crate::events::Event;
use crate::ledger::Tally;
use crate::shared::State;

/// The name of the instrumentation scope.
const SCOPE: &str = "queue-client";
/// Upper bounds of the buckets of all distributions, in seconds.
const BOUNDS: [f64; 17] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];

pub(crate) struct Metrics {
    meter: Meter,
    acquire: Histogram<f64>,
    call: Histogram<f64>,
    granted: Counter<u64>,
    leased: Counter<u64>,
    drawn: Counter<u64>,
    released: Counter<u64>,
    leases_retired: Counter<u64>,
    late_heartbeats: Counter<u64>,
    fenced: Counter<u64>,
    uncounted: Counter<u64>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::of(opentelemetry::global::meter(SCOPE))
    }
}

impl Metrics {
    pub(crate) fn of(meter: Meter) -> Self {
        let counter = |name, description| {
            let counter = meter.u64_counter(name).with_description(description).build();
            counter.add(0, &[]); // shown from the start
            counter
        };
        let seconds = |name, description| {
            let histogram = meter.f64_histogram(name).with_description(description).with_unit("s");
            histogram.with_boundaries(BOUNDS.to_vec()).build()
        };
        Self {
            acquire: seconds("queue_client.acquire", "How long acquires waited that found no permit here."),
            call: seconds("queue_client.call", "How long calls to the holder took."),
            granted: counter("queue_client.permits_granted", "Permits of grants for items here."),
            leased: counter("queue_client.permits_leased", "Permits of leases."),
            drawn: counter("queue_client.permits_drawn", "Permits of leases that items took."),
            released: counter("queue_client.permits_released", "Permits that items gave back."),
            leases_retired: counter("queue_client.leases_retired", "Leases that the holder wanted back."),
            late_heartbeats: counter(
                "queue_client.late_heartbeats",
                "Heartbeats that something delayed here.",
            ),
            fenced: counter("queue_client.fenced", "Semaphores from which this process was shut out."),
            uncounted: counter(
                "queue_client.uncounted_items",
                "Items that ceased to be counted while they ran.",
            ),
            meter,
        }
    }

    /// Shows what there is of the client, whenever the application looks.
    pub(crate) fn observe(&self, client: &Arc<Inner>) {
        let (in_use, idle) = ("Permits that items have.", "Permits of leases that no item has.");
        self.level("queue_client.permits_in_use", in_use, client, |state| state.ledger.running());
        self.level("queue_client.permits_idle", idle, client, |state| state.ledger.idle());
        let unreachable = "Semaphores of which no holder answers.";
        self.level("queue_client.unreachable_semaphores", unreachable, client, |state| {
            u64::from(state.standing.is_unreachable())
        });
        self.waiting(client);
    }

    fn level(&self, name: &'static str, what: &'static str, client: &Arc<Inner>, of: fn(&State) -> u64) {
        let client = Arc::downgrade(client);
        let gauge = self.meter.u64_observable_gauge(name).with_description(what);
        let gauge = gauge.with_callback(move |level| {
            if let Some(client) = client.upgrade() {
                level.observe(client.in_use().iter().map(|shared| of(&shared.state())).sum(), &[]);
            }
        });
        gauge.build();
    }

    fn waiting(&self, client: &Arc<Inner>) {
        let client = Arc::downgrade(client);
        let gauge = self.meter.u64_observable_gauge("queue_client.waiting");
        let gauge =
            gauge.with_description("Items that wait for a permit, by why.").with_callback(move |level| {
                let Some(client) = client.upgrade() else { return };
                let mut waiting = Cause::ALL.map(|cause| (cause, 0));
                for shared in client.in_use() {
                    shared.state().count_waiting(&mut waiting);
                }
                for (cause, items) in waiting {
                    level.observe(items, &[KeyValue::new("cause", cause.name())]);
                }
            });
        gauge.build();
    }

    pub(crate) fn event(&self, event: &Event) {
        match event {
            Event::Granted { permits, .. } => self.granted.add(*permits, &[]),
            Event::Leased { permits, .. } => self.leased.add(*permits, &[]),
            Event::LeaseRetired { .. } => self.leases_retired.add(1, &[]),
            Event::Fenced { .. } => self.fenced.add(1, &[]),
            Event::Uncounted { items, .. } => self.uncounted.add(*items, &[]),
            Event::HeartbeatLate { .. } => self.late_heartbeats.add(1, &[]),
            // Levels say these.
            Event::Blocked { .. } | Event::Unreachable { .. } | Event::Reachable { .. } => {}
            Event::Contended { .. } | Event::Missed { .. } => {}
        }
    }

    pub(crate) fn tally(&self, tally: Tally) {
        self.drawn.add(tally.drawn, &[]);
        self.released.add(tally.released, &[]);
    }

    pub(crate) fn call(&self, endpoint: &'static str, outcome: &'static str, took: Duration) {
        let attributes = [KeyValue::new("endpoint", endpoint), KeyValue::new("outcome", outcome)];
        self.call.record(took.as_secs_f64(), &attributes);
    }

    /// Somebody begins to wait.
    pub(crate) fn wait(&self) -> Wait<'_> {
        Wait { acquire: &self.acquire, since: Instant::now(), outcome: super::GIVEN_UP }
    }
}

/// A wait, which is counted when it ends, however it does.
pub(crate) struct Wait<'a> {
    acquire: &'a Histogram<f64>,
    since: Instant,
    outcome: &'static str,
}

impl Wait<'_> {
    pub(crate) fn ended<T>(mut self, result: &Result<T, AcquireError>) {
        self.outcome = if result.is_ok() { "served" } else { "failed" };
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let outcome = [KeyValue::new("outcome", self.outcome)];
        self.acquire.record(self.since.elapsed().as_secs_f64(), &outcome);
    }
}
