//! A panic costs one task of a holder its current work: no key and no duty stays silent afterwards.
//!
//! The panics come from a `tracing` subscriber, as they may in an application that embeds the holder.

use pgsemaphore_tests::{Db, InProcess, Metrics, Worker, until, verify};
use serde_json::json;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Where the subscriber panics, once, if `key` is among the fields or is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Span(&'static str),
    Event(&'static str),
}

struct PanicsOnce {
    at: At,
    key: &'static str,
    left: AtomicU64,
}

impl PanicsOnce {
    fn new(at: At, key: &'static str) -> Self {
        Self { at, key, left: AtomicU64::new(1) }
    }

    fn come(&self, at: bool, fields: &Fields) {
        let here = at && (self.key.is_empty() || fields.key == self.key);
        if here && self.left.swap(0, Ordering::SeqCst) > 0 {
            panic!("a subscriber that panics, as is meant here");
        }
    }
}

#[derive(Default)]
struct Fields {
    key: String,
    message: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "key" => self.key = format!("{value:?}"),
            "message" => self.message = format!("{value:?}"),
            _ => {}
        }
    }
}

impl Subscriber for PanicsOnce {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        span.record(&mut fields);
        self.come(At::Span(span.metadata().name()) == self.at, &fields);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.come(matches!(self.at, At::Event(message) if message == fields.message), &fields);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn policy() -> serde_json::Value {
    json!({"limit": 3, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000})
}

async fn panics(holder: &InProcess, task: &str) -> f64 {
    Metrics::of(holder.url()).await.value(&format!("pgsemaphore_panics_total{{task=\"{task}\"}}"))
}

/// The holder runs on the test's own thread, so the subscriber of that thread is the holder's.
#[tokio::test]
async fn a_key_goes_on_after_a_panic_of_its_actor_or_of_its_transaction() {
    for (task, at) in [("actor", At::Span("transaction")), ("transaction", At::Event("transaction"))] {
        let db = Db::new().await;
        let _guard = tracing::subscriber::set_default(PanicsOnce::new(at, "poison"));
        let holder = InProcess::start(db.url()).await;
        holder.policy("*", policy()).await;
        let caller = holder.caller();
        let mut worker = Worker::new("w");
        let refused = caller.request("poison", &worker.wants(2)).await.expect("an answer");
        refused.must_be_unavailable();
        worker.hear(&caller.insist("poison", &worker.wants(2)).await);
        assert_eq!(worker.permits(), 2, "{task}");
        assert_eq!(panics(&holder, task).await, 1.0, "{task}");
        assert_eq!(verify(&db).await, []);
    }
}

#[tokio::test]
async fn a_duty_starts_anew_after_a_panic() {
    let db = Db::new().await;
    let _guard = tracing::subscriber::set_default(PanicsOnce::new(At::Event("swept"), ""));
    let holder = InProcess::start_forgetting(db.url(), Duration::from_secs(1)).await;
    holder.policy("*", policy()).await;
    let caller = holder.caller();
    let keys = async || {
        let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM pgsemaphore_data.semaphores")
            .fetch_one(db.pool())
            .await
            .expect("the table");
        rows
    };
    let _ = caller.insist("first", &Worker::new("w").wants(0)).await;
    until("the sweep panics", async || panics(&holder, "sweep").await > 0.0).await;
    let _ = caller.insist("second", &Worker::new("w").wants(0)).await;
    until("idle keys are forgotten all the same", async || keys().await == 0).await;
    assert_eq!(panics(&holder, "sweep").await, 1.0);
}
