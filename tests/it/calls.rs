//! Calls of a test that are under way beside it.

use pgsemaphore_tests::{Caller, Db, Heard, until, within_reason};
use serde_json::Value;
use tokio::task::JoinHandle;

/// A request that is under way.
pub(crate) type Call = JoinHandle<Option<Heard>>;

pub(crate) fn call(caller: &Caller, key: &str, message: Value) -> Call {
    let (caller, key) = (caller.clone(), key.to_owned());
    tokio::spawn(async move { caller.request(&key, &message).await })
}

/// Makes a call that gets nothing in its first round.
pub(crate) async fn park(db: &Db, caller: &Caller, key: &str, message: Value) -> Call {
    let client = message["client_id"].as_str().expect("who speaks").to_owned();
    let call = call(caller, key, message);
    until("its first round is over", async || is_blocked(db, &client).await).await;
    call
}

pub(crate) async fn is_blocked(db: &Db, client: &str) -> bool {
    let query = "SELECT EXISTS (SELECT FROM pgsemaphore.blocked WHERE client_id = $1)";
    sqlx::query_scalar(query).bind(client).fetch_one(db.pool()).await.expect("the view")
}

pub(crate) async fn heard(call: Call) -> Heard {
    within_reason("an answer", call).await.expect("no panic").expect("an answer")
}
