//! Many callers of few rows: what they cost the database, and what its conflicts cost them.

use std::time::Duration;

use futures_util::future::join_all;
use pgsemaphore_allocation::SemaphoreKey;
use pgsemaphore_tests::{Api, Caller, Db, InProcess, Serve, Worker, faults, until, verify, within_reason};
use serde_json::{Value, json};

fn policy(limit: u64, round_wait_ms: u64) -> Value {
    json!({
        "limit": limit, "round_wait_ms": round_wait_ms, "round_period_ms": 0, "grant_timeout_ms": 3_600_000
    })
}

async fn count(db: &Db, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(db.pool()).await.expect(query)
}

/// Case 13: callers that queue behind one locked row hold all connections, and other keys and probes starve.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_key_costs_one_connection_however_many_wait_for_it() {
    const LOCKED: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'pgsemaphore' AND wait_event_type = 'Lock'";
    let db = Db::new().await;
    let holder = InProcess::start_with(db.url(), 3, Duration::from_secs(600)).await;
    let (caller, api) = (holder.caller(), Api::new(holder.url()));
    holder.policy("*", policy(100, 0)).await;
    let _ = caller.insist("locked", &Worker::new("w").wants(0)).await;
    let lock = faults::RowLock::hold(db.url(), "locked").await;
    let asks = |caller: Caller, n: usize| async move {
        caller.insist("locked", &Worker::new(format!("c{n}")).wants(1)).await
    };
    let waiting: Vec<_> = (0..100).map(|n| tokio::spawn(asks(caller.clone(), n))).collect();
    faults::until_locked_out(db.pool(), 1).await;

    let free = (0..60).map(|n| {
        let caller = caller.clone();
        async move { caller.insist(&format!("free-{n}"), &Worker::new("w").wants(1)).await }
    });
    for reply in join_all(free).await {
        assert_eq!(reply["grants"][0]["permits"], 1);
    }
    assert!(count(&db, LOCKED).await <= 1, "one transaction of the key at a time");
    until("it is ready all the same", async || api.get("/readyz").await.status == 200).await;
    assert_eq!(api.get("/healthz").await.status, 200);
    lock.release().await;
    for reply in join_all(waiting).await {
        assert_eq!(reply.expect("no panic")["grants"][0]["permits"], 1);
    }
    assert_eq!(verify(&db).await, []);
}

/// Case 23: everybody writes to the row of a hot key, and the database's work grows with the number of clients.
#[tokio::test]
async fn hundreds_of_calls_for_one_key_are_a_few_transactions() {
    const CLIENTS: usize = 300;
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("hot", policy(30, 200)).await;
    let (key, holder) = (|| SemaphoreKey::new("hot"), holder.holder());
    let begun = || holder.store().attempts().begun;
    let message = |message: Value| serde_json::from_value(message).expect("a message");
    let mut workers: Vec<Worker> = (0..CLIENTS).map(|n| Worker::new(format!("c{n}"))).collect();
    let before = begun();
    let requests =
        join_all(workers.iter().map(|worker| holder.request(key(), message(worker.wants(1))))).await;
    assert!(begun() - before < CLIENTS as u64 / 10, "{} for requests", begun() - before);
    for (worker, reply) in workers.iter_mut().zip(requests) {
        worker.hear(&serde_json::to_value(reply.expect("a reply")).expect("JSON"));
        worker.claim();
    }
    assert_eq!(workers.iter().map(Worker::permits).sum::<u64>(), 30);
    let before = begun();
    let syncs = join_all(workers.iter().map(|worker| holder.sync(key(), message(worker.reports())))).await;
    assert!(begun() - before < CLIENTS as u64 / 10, "{} for syncs", begun() - before);
    for (worker, reply) in workers.iter_mut().zip(syncs) {
        worker.hear(&serde_json::to_value(reply.expect("a reply")).expect("JSON"));
    }
    assert_eq!(workers.iter().map(Worker::running).sum::<u64>(), 30);
}

/// Of three commits about one fails, as if it had met another.
const CONFLICTS: &str = "
    CREATE SEQUENCE public.commits;
    CREATE FUNCTION public.conflict() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF nextval('public.commits') % 7 = 0 THEN
            RAISE EXCEPTION 'as is meant here' USING ERRCODE = 'serialization_failure';
        END IF;
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER conflict AFTER UPDATE ON pgsemaphore_data.semaphores
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.conflict()";

/// Case 33: only statements are repeated, not COMMIT; or the rest of the transaction is, after its failure; or the client
/// is left with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conflicts_at_commit_are_repeated_and_no_client_hears_of_them() {
    const CLIENTS: usize = 20;
    let db = Db::new().await;
    let log = [("PGSEMAPHORE_LOG", "debug")];
    let options = ["--database-url", db.url()];
    let (one, other) = tokio::join!(Serve::start_in(&options, &log), Serve::start_in(&options, &log));
    let callers = [Caller::of(one.url()), Caller::of(other.url())];
    callers[0].policy("*", &policy(5, 10)).await;
    sqlx::raw_sql(CONFLICTS).execute(db.pool()).await.expect("conflicts");
    let items = (0..2 * CLIENTS).map(|n| {
        let caller = callers[n % 2].clone();
        let key = if n < CLIENTS { "one".to_owned() } else { format!("own-{n}") };
        tokio::spawn(async move {
            let mut worker = Worker::new(format!("c{n}"));
            for _ in 0..3 {
                let mut wants = worker.wants(1);
                wants["wait_ms"] = json!(60_000);
                while worker.permits() == 0 {
                    worker.hear(&caller.insist(&key, &wants).await);
                }
                worker.claim();
                worker.hear(&caller.insist_sync(&key, &worker.reports()).await);
                assert_eq!(worker.running(), 1);
                worker.release();
                worker.hear(&caller.insist_sync(&key, &worker.reports()).await);
            }
        })
    });
    for item in within_reason("all items have run", join_all(items)).await {
        item.expect("no panic");
    }
    assert!(count(&db, "SELECT last_value FROM public.commits").await > 7 * 20, "conflicts were met");
    for holder in [&one, &other] {
        // Neither given up, nor gone on with after its failure.
        let log = holder.stderr();
        assert!(!log.contains("gave up after") && !log.contains("25P02"));
    }
    assert_eq!(callers[0].usage("one").await["grants"], 0);
    assert_eq!(verify(&db).await, []);
}

/// Case 14: each heartbeat writes its row and its indexes anew, and vacuum can't keep up.
#[tokio::test]
async fn heartbeats_write_to_no_index() {
    const BEATS: u64 = 60;
    const STATISTICS: &str =
        "SELECT coalesce(sum(n_tup_upd), 0)::bigint, coalesce(sum(n_tup_hot_upd), 0)::bigint
        FROM pg_stat_user_tables WHERE schemaname = 'pgsemaphore_data'";
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let caller = holder.caller();
    let mut lends = policy(100, 0);
    (lends["provisioning"], lends["permits_per_lease"]) = (json!("strict"), json!(90));
    holder.policy("*", lends).await;
    for key in ["a", "b", "c"] {
        let wants = json!({"demand": [{"count": 1}], "leases": []});
        let reply = caller.insist(key, &pgsemaphore_tests::message("w", wants)).await;
        let id = &reply["leases"][0]["id"];
        for drawn in 1..=BEATS {
            let lease = json!([{"id": id, "drawn": drawn, "released": drawn - 1}]);
            let beat = json!({"seen": reply["round"], "leases": lease});
            let reply = caller.insist_sync(key, &pgsemaphore_tests::message("w", beat)).await;
            assert_eq!(reply["leases"][0]["drawn"], drawn);
        }
    }
    // Sessions tell what they did when they end.
    holder.stop().await;
    let statistics = async || -> (i64, i64) {
        sqlx::query_as(STATISTICS).fetch_one(db.pool()).await.expect("the statistics")
    };
    let beats = i64::try_from(3 * BEATS).expect("few");
    until("all is counted", async || statistics().await.0 >= 2 * beats).await;
    let (updates, without_index) = statistics().await;
    assert!(without_index * 100 >= updates * 95, "{without_index} of {updates}");
}
