//! A key that is kept busy still does what is due: deadlines and calls take turns.

use pgsemaphore_allocation::SemaphoreKey;
use pgsemaphore_tests::{Db, InProcess, Worker, until, verify};
use serde_json::json;
use tokio::task::JoinSet;

/// O-15: an unclaimed grant comes back and a silent client is settled while syncs of the key never pause.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_due_happens_while_syncs_never_pause() {
    const SPEAKERS: usize = 8;
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let policy = json!({"limit": 9, "grant_timeout_ms": 500, "settle_lost_clients_after_ms": 5000});
    holder.policy("*", policy).await;
    let caller = holder.caller();
    let mut silent = Worker::new("silent");
    silent.hear(&caller.insist("k", &silent.wants(2)).await);
    silent.claim();
    let _ = caller.insist_sync("k", &silent.reports()).await;
    let _ = caller.insist("k", &Worker::new("unclaimed").wants(3)).await;

    let mut speakers = JoinSet::new();
    for n in 0..SPEAKERS {
        let holder = holder.holder().clone();
        let message: queue_wire::Message =
            serde_json::from_value(Worker::new(format!("speaker-{n}")).reports()).expect("a message");
        speakers.spawn(async move {
            loop {
                holder.sync(SemaphoreKey::new("k"), message.clone()).await.expect("a reply");
            }
        });
    }
    let counted = async |client_id: &str| {
        let query = sqlx::query_scalar(
            "SELECT coalesce(sum(grants), 0)::bigint FROM pgsemaphore.client_usage WHERE client_id = $1",
        );
        let grants: i64 = query.bind(client_id).fetch_one(db.pool()).await.expect("the view");
        grants
    };
    until("the unclaimed grant comes back", async || counted("unclaimed").await == 0).await;
    until("the silent client is settled", async || counted("silent").await == 0).await;
    assert_eq!(speakers.len(), SPEAKERS);
    assert!(speakers.try_join_next().is_none(), "the speakers still speak");
    speakers.shutdown().await;
    assert_eq!(verify(&db).await, []);
}
