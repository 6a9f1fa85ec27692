//! A call that is open counts as hearing from its client, at whichever holder it is, whatever the call waits for.

use crate::calls::{Call, call};
use pgsemaphore_tests::{Caller, Db, InProcess, message, until, verify};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const KEY: &str = "k";
const SETTLE_AFTER_MS: u64 = 5000;

/// Rounds follow each other so slowly that a request waits for its first one longer than clients may be silent.
fn policy() -> Value {
    json!({
        "limit": 4, "round_wait_ms": 0, "round_period_ms": 60_000, "grant_timeout_ms": 3_600_000,
        "settle_lost_clients_after_ms": SETTLE_AFTER_MS
    })
}

/// Two clients with two running items each, from one round: `alive`, and `dead`, which says nothing any more.
async fn alive_and_dead(db: &Db, caller: &Caller) {
    let mut gathering = policy();
    gathering["round_wait_ms"] = json!(1000);
    caller.policy("*", &gathering).await;
    let ask = async |client: &str| {
        let demand = json!({"demand": [{"group": "", "count": 2}]});
        let reply = caller.insist(KEY, &message(client, demand)).await;
        json!({"seen": reply["round"], "grants": [{"id": reply["grants"][0]["id"], "claimed": 2}]})
    };
    let (alive, dead) = tokio::join!(ask("alive"), ask("dead"));
    caller.policy("*", &policy()).await;
    // The one that is alive is heard first.
    caller.insist_sync(KEY, &message("alive", alive)).await;
    caller.insist_sync(KEY, &message("dead", dead)).await;
    assert_eq!(holds(db, "alive").await + holds(db, "dead").await, 4);
}

async fn holds(db: &Db, client: &str) -> i64 {
    let query = "SELECT coalesce(sum(grants), 0)::bigint FROM pgsemaphore.client_usage WHERE client_id = $1";
    sqlx::query_scalar(query).bind(client).fetch_one(db.pool()).await.expect("the view")
}

/// The silent client is settled; who was heard before it, and has a call open since, is not.
async fn only_the_dead_one_is_settled<T>(db: &Db, open: &JoinHandle<T>) {
    until("the dead one is settled", async || holds(db, "dead").await == 0).await;
    assert!(!open.is_finished(), "the call is open");
    assert_eq!(holds(db, "alive").await, 2);
    assert_eq!(verify(db).await, []);
}

fn request(caller: &Caller) -> Call {
    let wants = json!({"wait_ms": 60_000, "demand": [{"group": "", "count": 1}]});
    call(caller, KEY, message("alive", wants))
}

fn parked_sync(caller: &Caller) -> JoinHandle<()> {
    let caller = caller.clone();
    tokio::spawn(async move {
        let _heard = caller.sync(KEY, &message("alive", json!({"wait_ms": 60_000}))).await;
    })
}

/// O-11.
#[tokio::test]
async fn a_client_is_heard_while_its_request_waits_for_a_round() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    alive_and_dead(&db, &holder.caller()).await;
    only_the_dead_one_is_settled(&db, &request(&holder.caller())).await;
}

/// O-11.
#[tokio::test]
async fn a_client_is_heard_while_its_sync_is_parked() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    alive_and_dead(&db, &holder.caller()).await;
    only_the_dead_one_is_settled(&db, &parked_sync(&holder.caller())).await;
}

/// O-11: the holder at which the call is open notes it for the other one, which judges.
#[tokio::test]
async fn a_client_is_heard_whichever_holder_its_request_waits_at() {
    let db = Db::new().await;
    let judge = InProcess::start(db.url()).await;
    alive_and_dead(&db, &judge.caller()).await;
    let other = InProcess::start_apart(db.url()).await;
    only_the_dead_one_is_settled(&db, &request(&other.caller())).await;
}

/// O-11: the same for a parked sync.
#[tokio::test]
async fn a_client_is_heard_whichever_holder_its_sync_is_parked_at() {
    let db = Db::new().await;
    let judge = InProcess::start(db.url()).await;
    alive_and_dead(&db, &judge.caller()).await;
    let other = InProcess::start_apart(db.url()).await;
    only_the_dead_one_is_settled(&db, &parked_sync(&other.caller())).await;
}

/// O-11: leniency ends with the call.
#[tokio::test]
async fn a_client_whose_call_has_ended_is_silent() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    alive_and_dead(&db, &holder.caller()).await;
    let open = request(&holder.caller());
    until("the dead one is settled", async || holds(&db, "dead").await == 0).await;
    assert_eq!(holds(&db, "alive").await, 2);
    open.abort();
    until("the other one is settled, too", async || holds(&db, "alive").await == 0).await;
}

/// O-11: an open call of a process that was replaced does not speak for its successor.
#[tokio::test]
async fn a_process_that_was_replaced_is_not_heard() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let caller = holder.caller();
    alive_and_dead(&db, &caller).await;
    let process = |generation: u64, mut fields: Value| {
        (fields["generation"], fields["process"]) =
            (json!(generation), json!(format!("process-{generation}")));
        message("alive", fields)
    };
    let successor = process(2, json!({"resume": true}));
    caller.insist_sync(KEY, &successor).await;
    let replaced = json!({"wait_ms": 60_000, "demand": [{"group": "", "count": 1}]});
    let open = call(&caller, KEY, process(1, replaced));
    until("the successor is silent", async || holds(&db, "alive").await == 0).await;
    assert!(!open.is_finished(), "the call is open");
}
