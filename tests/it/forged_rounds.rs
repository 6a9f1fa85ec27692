//! Numbers that callers say: none moves the key's round far, and no reply carries one that a request may not carry.

use std::time::Duration;

use pgsemaphore_tests::{Db, InProcess, Worker, message, until, verify};
use serde_json::{Value, json};

const KEY: &str = "k";
const DAY_US: u64 = 24 * 3600 * 1_000_000;
/// Forged messages.
const MESSAGES: u64 = 300;
/// The highest integer that JSON carries exactly.
const HIGHEST: u64 = (1 << 53) - 1;

async fn start(db: &Db) -> InProcess {
    let holder = InProcess::start(db.url()).await;
    holder.policy("*", json!({"limit": 3, "round_wait_ms": 0, "round_period_ms": 0})).await;
    holder
}

/// The database's clock in microseconds.
async fn clock(db: &Db) -> u64 {
    let query = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let now: i64 = sqlx::query_scalar(query).fetch_one(db.pool()).await.expect("the clock");
    now.unsigned_abs()
}

fn round(reply: &Value) -> u64 {
    reply["round"].as_u64().expect("a round")
}

/// A client takes two permits, claims them and gives them back.
async fn uses_two(holder: &InProcess) {
    let caller = holder.caller();
    let mut worker = Worker::new("honest");
    worker.hear(&caller.insist(KEY, &worker.wants(2)).await);
    assert_eq!(worker.permits(), 2);
    worker.claim();
    worker.hear(&caller.insist_sync(KEY, &worker.reports()).await);
    worker.release();
    worker.hear(&caller.insist_sync(KEY, &worker.reports()).await);
    assert_eq!(worker.blocks.len(), 0);
}

/// O-03: each message says that it has seen a round almost a day above the key's. The first one moves the round to the
/// end of the next day at most, all others are refused, and other clients go on.
#[tokio::test]
async fn forged_messages_move_the_round_a_day_at_most() {
    let db = Db::new().await;
    let holder = start(&db).await;
    uses_two(&holder).await;
    let (_, reply) = holder.sync(KEY, message("reader", json!({}))).await;
    let mut highest = round(&reply);
    let mut refused = 0;
    for n in 0..MESSAGES {
        let forged = message(&format!("forger-{n}"), json!({"seen": highest + DAY_US - 1}));
        let (status, answer) = match n % 2 {
            0 => holder.sync(KEY, forged).await,
            _ => holder.request(KEY, forged).await,
        };
        match status {
            200 => highest = highest.max(round(&answer)),
            _ => {
                assert_eq!((status, &answer["code"]), (400, &json!("invalid_request")), "{answer}");
                assert_eq!(answer["field"], "/seen");
                refused += 1;
            }
        }
    }
    assert!(refused >= MESSAGES - 1, "{refused} of {MESSAGES} were refused");
    assert!(highest <= clock(&db).await + DAY_US, "{highest}");
    uses_two(&holder).await;
    let (_, reply) = holder.sync(KEY, message("reader", json!({}))).await;
    assert!(round(&reply) <= highest + MESSAGES + 2, "a key whose round is ahead goes on by 1: {reply}");
    assert_eq!(verify(&db).await, []);
}

/// O-03: a key whose round is ahead of the clock keeps its row. Without it the rounds would start again below.
#[tokio::test]
async fn a_key_whose_round_is_ahead_is_not_forgotten() {
    let db = Db::new().await;
    let holder = InProcess::start_forgetting(db.url(), Duration::from_millis(300)).await;
    holder.policy("*", json!({"limit": 3, "round_wait_ms": 0, "round_period_ms": 0})).await;
    let ahead = clock(&db).await + 3600 * 1_000_000;
    assert_eq!(holder.sync("ahead", message("w", json!({"seen": ahead}))).await.0, 200);
    let exists = async |key: &str| {
        let query = "SELECT EXISTS (SELECT FROM pgsemaphore_data.semaphores WHERE key = $1)";
        sqlx::query_scalar::<_, bool>(query).bind(key).fetch_one(db.pool()).await.expect("an answer")
    };
    for key in ["idle", "idle again"] {
        assert_eq!(holder.request(key, message("w", json!({}))).await.0, 200);
        until("an idle key is forgotten", async || !exists(key).await).await;
    }
    assert!(exists("ahead").await);
    let (_, reply) = holder.request("ahead", message("w", json!({}))).await;
    assert_eq!(round(&reply), ahead + 1);
}

/// O-03: a row that is damaged holds the highest round but one. Its last round is numbered, then requests are told so,
/// and everything can still be given back.
#[tokio::test]
async fn a_key_without_numbers_takes_everything_back() {
    let db = Db::new().await;
    let holder = start(&db).await;
    uses_two(&holder).await;
    let damage = "UPDATE pgsemaphore_data.semaphores SET version = version + 1, round = $1";
    let damage = async |round: u64| {
        sqlx::query(damage).bind(i64::try_from(round).expect("it fits")).execute(db.pool()).await
    };
    assert!(damage(HIGHEST + 1).await.is_err(), "the table refuses a round that no reply may carry");
    assert!(damage(HIGHEST - 1).await.is_ok());
    let demand = json!({"seen": HIGHEST - 1, "demand": [{"group": "", "count": 1}]});
    let (status, reply) = holder.request(KEY, message("w", demand.clone())).await;
    assert_eq!((status, round(&reply)), (200, HIGHEST), "{reply}");
    let (status, problem) = holder.request(KEY, message("other", demand)).await;
    assert_eq!((status, &problem["code"]), (503, &json!("unavailable")));
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("round numbers")), "{problem}");
    let report = json!([{"id": reply["grants"][0]["id"], "claimed": 1, "released": 1}]);
    let (status, reply) = holder.sync(KEY, message("w", json!({"seen": HIGHEST, "grants": report}))).await;
    assert_eq!((status, &reply["grants"][0]["status"]), (200, &json!("settled")), "{reply}");
    assert_eq!(holder.usage(KEY).await["grants"], 0);
}

/// O-03: the same of generations. Nobody comes after the highest one, so no reply names a generation after it.
#[tokio::test]
async fn no_generation_is_named_that_nobody_may_say() {
    let db = Db::new().await;
    let holder = start(&db).await;
    let speak =
        |process: &str, generation: u64| message("w", json!({"generation": generation, "process": process}));
    assert_eq!(holder.request(KEY, speak("first", HIGHEST - 1)).await.0, 200);
    let (status, problem) = holder.sync(KEY, speak("second", HIGHEST - 1)).await;
    assert_eq!((status, &problem["generation"]), (409, &json!(HIGHEST)), "{problem}");
    assert_eq!(holder.request(KEY, speak("third", HIGHEST)).await.0, 200);
    let (status, problem) = holder.sync(KEY, speak("fourth", HIGHEST)).await;
    assert_eq!((status, &problem["code"]), (409, &json!("client_fenced")));
    assert_eq!(problem.get("generation"), None, "{problem}");
    assert!(
        problem["detail"].as_str().is_some_and(|detail| detail.contains("another client_id")),
        "{problem}"
    );
}
