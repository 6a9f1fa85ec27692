//! What a holder counts: one set of instruments, shown at `/metrics` and sent by OTLP.
//!
//! No instrument has a label for keys or clients, except those of keys that the configuration lists. So the number of
//! series does not grow with what is in use. Counting is an atomic operation and never waits.

mod calls;
mod family;
mod text;
mod turns;

pub(crate) use calls::{CallUnderWay, call_of};
pub(crate) use family::{BOUNDS, Instrument, Kind, Label, Value};
use family::{Counter, Family, Gauge, Histogram};
pub(crate) use text::{CONTENT_TYPE, text};
pub(crate) use turns::report;

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

/// Instruments: field, kind, name, labels with the values that are shown from the start, help.
macro_rules! instruments {
    ($($field:ident: $metric:ident $name:literal {$($label:ident: [$($value:literal),*]),*} $help:literal;)*) => {
        /// The instruments of a holder.
        pub(crate) struct Metrics {
            $(
                #[doc = $help]
                pub(crate) $field: Family<$metric, { <[&str]>::len(&[$(stringify!($label)),*]) }>,
            )*
        }

        impl Default for Metrics {
            fn default() -> Self {
                Self {
                    $($field: Family::new($name, $help, [$(stringify!($label)),*], [$(&[$($value),*]),*]),)*
                }
            }
        }

        impl Metrics {
            /// All of them.
            pub(crate) fn instruments(&self) -> Vec<&dyn Instrument> {
                vec![$(&self.$field),*]
            }
        }
    };
}

instruments! {
    rounds: Counter "pgsemaphore_rounds_total" {
        kind: ["round", "sync", "timer"], outcome: ["committed", "looked_at", "failed"]
    } "Transactions of keys: committed, only looked at and rolled back, or given up.";
    transaction_phase: Histogram "pgsemaphore_transaction_phase_seconds" {
        kind: ["round", "sync", "timer"], phase: ["take", "load", "plan", "apply", "commit"]
    } "What the steps of a transaction took, in the attempt that succeeded.";
    transaction_retries: Counter "pgsemaphore_transaction_retries_total" {
        reason: ["serialization", "deadlock", "fence", "connection"]
    } "Attempts at transactions that had to be repeated.";
    check_violations: Counter "pgsemaphore_check_violations_total" {}
        "Plans that would have broken a promise; they were refused. Must be 0.";
    panics: Counter "pgsemaphore_panics_total" {
        task: ["actor", "transaction", "takeover", "settle", "heartbeat", "policies", "deadlines", "sweep", "self_check",
            "open_calls", "listener", "hints", "outbox"]
    } "Tasks that panicked; each started anew. Must be 0.";
    requests: Counter "pgsemaphore_requests_total" {call: [], status: []}
        "Calls over HTTP by what they ask for and how they were answered; 499: the caller hung up.";
    request_duration: Histogram "pgsemaphore_request_seconds" {call: []}
        "How long calls over HTTP took, the time that they were kept open included.";
    forwarded_calls: Counter "pgsemaphore_forwarded_calls_total" {outcome: ["answered", "fell_back"]}
        "Requests that were meant for another holder: answered by it, or served here since it did not.";
    waiting_requests: Gauge "pgsemaphore_waiting_requests" {}
        "Requests and syncs that wait for an answer, parked ones included.";
    parked_calls: Gauge "pgsemaphore_parked_calls" {}
        "Of those, how many were looked at and are kept open until there is something to say.";
    wait: Histogram "pgsemaphore_wait_seconds" {}
        "From a request's arrival to the moment of its first round.";
    permits_granted: Counter "pgsemaphore_permits_granted_total" {} "Permits of new grants.";
    permits_claimed: Counter "pgsemaphore_permits_claimed_total" {} "Permits of grants that were claimed.";
    permits_released: Counter "pgsemaphore_permits_released_total" {}
        "Permits of grants and leases that clients reported as released.";
    permits_reclaimed: Counter "pgsemaphore_permits_reclaimed_total" {}
        "Permits that came back without a report: not claimed in time, or of clients that were declared dead.";
    leases_issued: Counter "pgsemaphore_leases_issued_total" {} "New leases.";
    leased_permits: Counter "pgsemaphore_leased_permits_total" {} "Permits of new leases.";
    leases_retired: Counter "pgsemaphore_leases_retired_total" {
        reason: ["silent", "not_eligible", "over_budget", "taken_over", "given_back"]
    } "Leases that ended.";
    blocked_demand: Counter "pgsemaphore_blocked_demand_total" {
        reason: ["paused", "not_permitted", "limit_resolution_error", "group_limit", "limit"]
    } "Items that rounds left without a permit, counted again in each round.";
    function_failures: Counter "pgsemaphore_function_failures_total" {
        field: ["limit_function", "group_limit_function", "can_grant_function"]
    } "Calls of functions of policies that failed, by the field that names them.";
    unheard_permits: Gauge "pgsemaphore_unheard_permits" {}
        "Permits in the database of clients that were not heard for over 10 minutes.";
    drift_counters: Gauge "pgsemaphore_drift_counters" {}
        "Counters that the self-audit found different from the blocks. Must be 0.";
    audited_keys: Counter "pgsemaphore_audited_keys_total" {} "Keys whose counters were counted again.";
    database_connections: Gauge "pgsemaphore_database_connections" {state: ["idle", "used"]}
        "Connections to the database.";
    database_up: Gauge "pgsemaphore_database_up" {} "1 if this holder's latest sign of life could be written to the database.";
    live_holders: Gauge "pgsemaphore_live_holders" {} "Holders over this database that are alive.";
    active_keys: Gauge "pgsemaphore_active_keys" {} "Keys that this holder has in memory.";
    build_info: Gauge "pgsemaphore_build_info" {version: []} "1; the label says which version runs.";
    key_limit: Gauge "pgsemaphore_key_limit" {key: []} "The limit of a key of --metrics-key.";
    key_permits: Gauge "pgsemaphore_key_permits" {key: [], kind: []}
        "What counts against the limit of a key of --metrics-key, grants and leases.";
    key_contended: Gauge "pgsemaphore_key_contended" {key: []}
        "1 while somebody lacks permits of a key of --metrics-key.";
}
