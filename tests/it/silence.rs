//! Clients that are silent for as long as the policy says are declared dead; those that nobody could hear are not.

use std::time::Duration;

use pgsemaphore_tests::{Db, InProcess, Serve, message, until, verify};
use serde_json::{Value, json};

const KEY: &str = "k";

fn policy(settle_after_ms: Value) -> Value {
    json!({
        "limit": 3, "round_wait_ms": 0, "round_period_ms": 0, "settle_lost_clients_after_ms": settle_after_ms
    })
}

/// A client with two running items.
async fn runs_two(holder: &InProcess, client: &str) -> Value {
    let (_, reply) =
        holder.request(KEY, message(client, json!({"demand": [{"group": "", "count": 2}]}))).await;
    let reports = json!([{"id": reply["grants"][0]["id"], "claimed": 2}]);
    let (status, reply) =
        holder.sync(KEY, message(client, json!({"seen": reply["round"], "grants": reports}))).await;
    assert_eq!(status, 200, "{reply}");
    reply
}

async fn settled(db: &Db) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM pgsemaphore.audit WHERE action = 'settle_silent'")
        .fetch_one(db.pool())
        .await
        .expect("the view")
}

#[tokio::test]
async fn a_silent_client_is_settled_without_any_request() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("*", policy(json!(5000))).await;
    let reply = runs_two(&holder, "w").await;
    assert_eq!(reply["report_within_ms"], 1666);
    until("what it held comes back", async || holder.usage(KEY).await["grants"] == 0).await;
    assert_eq!(settled(&db).await, 1);
    let (status, problem) = holder.sync(KEY, message("w", json!({}))).await;
    assert_eq!((status, &problem["code"]), (409, &json!("client_fenced")));
    assert_eq!(verify(&db).await, []);
}

/// It is heard by what it says, and by a call that it keeps open.
#[tokio::test]
async fn one_that_is_heard_is_not() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("*", policy(json!(5000))).await;
    let _ = runs_two(&holder, "dead").await;
    let speaks = async {
        loop {
            let (status, _) = holder.sync(KEY, message("alive", json!({}))).await;
            assert_eq!(status, 200);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    let demand = json!({"demand": [{"group": "", "count": 1}]});
    assert_eq!(holder.request(KEY, message("alive", demand)).await.0, 200);
    tokio::select! {
        () = speaks => {}
        () = until("the dead one is settled", async || settled(&db).await == 1) => {}
    }
    assert_eq!(holder.usage(KEY).await["grants"], 1);
}

/// The policy begins to speak of silence when nobody says anything any more.
#[tokio::test]
async fn keys_without_messages_learn_of_the_policy() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("*", policy(Value::Null)).await;
    let reply = runs_two(&holder, "w").await;
    assert_eq!(reply.get("report_within_ms"), None);
    sqlx::query("SELECT pgsemaphore.configure('*', '{\"settle_lost_clients_after_ms\": 5000}')")
        .execute(db.pool())
        .await
        .expect("it is configured");
    until("what it held comes back", async || holder.usage(KEY).await["grants"] == 0).await;
}

/// All holders are away for longer than clients may be silent: nobody is settled when they come back.
#[tokio::test]
async fn an_outage_of_all_holders_kills_nobody() {
    const SETTLE_AFTER: Duration = Duration::from_secs(6);
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("*", policy(json!(6000))).await;
    let _ = runs_two(&holder, "w").await;
    holder.stop().await;
    // The clock of this test is the silence itself: it must pass.
    let passed = async || {
        let query =
            "SELECT clock_timestamp() - last_seen > make_interval(secs => $1) FROM pgsemaphore_data.clients";
        let secs = (SETTLE_AFTER * 2).as_secs_f64();
        sqlx::query_scalar::<_, bool>(query).bind(secs).fetch_one(db.pool()).await.expect("the row")
    };
    until("the client is silent for long", passed).await;
    let serve = Serve::start(db.url()).await;
    let holder = pgsemaphore_tests::Caller::of(serve.url());
    // A timer that was overdue has looked, and found that nobody listened.
    let looked = async || {
        let query = "SELECT next_deadline > clock_timestamp() FROM pgsemaphore_data.semaphores";
        sqlx::query_scalar::<_, bool>(query).fetch_one(db.pool()).await.expect("the row")
    };
    until("the timer has looked", looked).await;
    assert_eq!(settled(&db).await, 0);
    let heard = holder.sync(KEY, &message("w", json!({}))).await.expect("an answer");
    assert_eq!(heard.status, 200);
    assert_eq!(holder.usage(KEY).await["grants"], 2);
}
