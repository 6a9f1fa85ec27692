//! SQL as the window: what people read is consistent, and their reading is in nobody's way.

use std::time::Duration;

use futures_util::future::join_all;
use pgsemaphore::Settings;
use pgsemaphore_tests::{Db, InProcess, Metrics, message, until, verify};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};

const VIEWS: [&str; 10] = [
    "usage",
    "group_usage",
    "client_usage",
    "grants",
    "leases",
    "blocked",
    "holders",
    "audit",
    "policies",
    "group_limits",
];

const LIMIT: u64 = 40;

/// Keys whose counters are not the sums of their details, each way of summing them, or don't add up to the limit, in one
/// statement.
const DIFFERENCES: &str = "
    SELECT u.key
    FROM pgsemaphore.usage AS u
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(g.permits - g.released), 0) AS grants FROM pgsemaphore.grants AS g WHERE g.key = u.key
    ) AS g
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(l.footprint), 0) AS leases FROM pgsemaphore.leases AS l WHERE l.key = u.key
    ) AS l
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(c.grants), 0) AS grants, coalesce(sum(c.leases), 0) AS leases
        FROM pgsemaphore.client_usage AS c WHERE c.key = u.key
    ) AS c
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(x.grants), 0) AS grants, coalesce(sum(x.leases), 0) AS leases
        FROM pgsemaphore.group_usage AS x WHERE x.key = u.key
    ) AS x
    WHERE (u.grants, u.leases) <> (g.grants, l.leases) OR (u.grants, u.leases) <> (c.grants, c.leases)
        OR (u.grants, u.leases) <> (x.grants, x.leases) OR least(u.grants, u.leases) < 0
        OR u.grants + u.leases + u.available <> u.permit_limit";

async fn holder() -> (Db, InProcess) {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    lend(&holder).await;
    (db, holder)
}

async fn lend(holder: &InProcess) {
    let policy = json!({
        "limit": LIMIT, "round_wait_ms": 0, "round_period_ms": 0, "provisioning": "strict", "permits_per_lease": 3
    });
    holder.policy("k*", policy).await;
}

/// A round of a key: a client claims and releases what it was given, and wants more.
async fn turn(holder: &InProcess, key: &str, client: &str, n: u64) {
    let demand = json!([{"group": "a", "count": 1 + n % 3}, {"group": "b", "count": 2}]);
    let (status, reply) = holder.request(key, message(client, json!({"demand": demand, "leases": []}))).await;
    assert_eq!(status, 200, "{reply}");
    let grants: Vec<_> = reply["grants"]
        .as_array()
        .expect("grants")
        .iter()
        .map(|grant| json!({"id": grant["id"], "claimed": grant["permits"], "released": n % 2}))
        .collect();
    let leases: Vec<_> = reply["leases"]
        .as_array()
        .expect("leases")
        .iter()
        .map(
            |lease| json!({"id": lease["id"], "drawn": 1, "released": n % 2, "stopped": n.is_multiple_of(3)}),
        )
        .collect();
    let report = json!({"seen": reply["round"], "grants": grants, "leases": leases});
    let (status, reply) = holder.sync(key, message(client, report)).await;
    assert_eq!(status, 200, "{reply}");
}

/// The sums of the lists in an answer over HTTP are its totals, and nothing is used that is not counted.
fn check_usage(usage: &Value) {
    let number = |name: &str| usage[name].as_i64().expect("a number");
    for kind in ["grants", "leases"] {
        let sum = |list: &str| -> i64 {
            usage[list].as_array().expect("a list").iter().filter_map(|row| row[kind].as_i64()).sum()
        };
        assert_eq!((sum("groups"), sum("clients")), (number(kind), number(kind)), "{usage}");
        assert!(number(kind) >= 0, "{usage}");
    }
    assert_eq!(number("grants") + number("leases") + number("available"), number("limit"), "{usage}");
    assert!(number("available") >= 0, "{usage}");
}

/// Grants and leases of the listed key, if it has been looked at.
async fn shown(holder: &InProcess) -> Option<(f64, f64)> {
    let metrics = Metrics::of(holder.url()).await;
    let of = |kind| metrics.find(&format!("pgsemaphore_key_permits{{key=\"k1\",kind=\"{kind}\"}}"));
    of("grants").zip(of("leases"))
}

/// Case 22: 200 keys; one of them is listed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn totals_are_the_sums_of_their_details_in_sql_over_http_and_in_metrics() {
    const KEYS: u64 = 200;
    let db = Db::new().await;
    let (often, listed) = (Duration::from_millis(100), vec!["k1".to_owned()]);
    let settings = Settings { self_check_every: often, metrics_keys: listed, ..Settings::default() };
    let holder = InProcess::start_checking(db.url(), settings).await;
    lend(&holder).await;
    let key = |n: u64| format!("k{}", n % KEYS);
    let rounds = async {
        for n in 0..KEYS / 5 {
            let others: Vec<String> = (5 * n..5 * n + 5).map(key).collect();
            let others = others.iter().map(|key| turn(&holder, key, "x", n));
            let (v, w) = (turn(&holder, "k1", "v", n), turn(&holder, "k1", "w", n + 1));
            tokio::join!(v, w, join_all(others));
        }
    };
    let look = async {
        for n in 0.. {
            let wrong: Vec<String> =
                sqlx::query_scalar(DIFFERENCES).fetch_all(db.pool()).await.expect("a look");
            assert_eq!(wrong, Vec::<String>::new());
            check_usage(&holder.usage("k1").await);
            check_usage(&holder.usage(&key(n)).await);
            let (grants, leases) = shown(&holder).await.unwrap_or_default();
            assert!(grants >= 0.0 && leases >= 0.0 && grants + leases <= LIMIT as f64, "{grants} {leases}");
        }
    };
    turn(&holder, "k1", "v", 0).await;
    tokio::select! {
        () = rounds => {}
        () = look => unreachable!(),
    }

    for n in 0..KEYS {
        let usage = holder.usage(&key(n)).await;
        check_usage(&usage);
        let query = "SELECT grants, leases FROM pgsemaphore.usage WHERE key = $1";
        let totals: (i64, i64) =
            sqlx::query_as(query).bind(key(n)).fetch_one(db.pool()).await.expect("the view");
        assert_eq!((usage["grants"].as_i64(), usage["leases"].as_i64()), (Some(totals.0), Some(totals.1)));
        if n == 1 {
            let totals = (totals.0 as f64, totals.1 as f64);
            until("metrics say the same", async || shown(&holder).await == Some(totals)).await;
        }
    }
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn a_reader_with_an_old_snapshot_stops_no_round() {
    let (db, holder) = holder().await;
    turn(&holder, "k", "w", 0).await;
    let mut reader = PgConnection::connect(db.url()).await.expect("a reader");
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ";
    sqlx::raw_sql(begin).execute(&mut reader).await.expect(begin);
    let look = async |reader: &mut PgConnection| {
        let mut seen = Vec::new();
        for view in VIEWS.iter().filter(|view| **view != "holders") {
            let count = format!("SELECT count(*) FROM pgsemaphore.{view}");
            let query = sqlx::query_scalar::<_, i64>(sqlx::AssertSqlSafe(count));
            seen.push(query.fetch_one(&mut *reader).await.expect("a look at a view"));
        }
        let sum = sqlx::query_scalar::<_, i64>(
            "SELECT sum(grants + leases + round)::bigint FROM pgsemaphore.usage",
        );
        seen.push(sum.fetch_one(&mut *reader).await.expect("usage"));
        seen
    };
    let before = look(&mut reader).await;
    for n in 0..20 {
        turn(&holder, "k", "w", n).await;
        turn(&holder, &format!("k{n}"), "w", n).await;
    }
    assert_eq!(look(&mut reader).await, before, "still its snapshot");
    sqlx::raw_sql("COMMIT").execute(&mut reader).await.expect("its end");
    assert_ne!(look(&mut reader).await, before);
    assert_eq!(verify(&db).await, []);
}
