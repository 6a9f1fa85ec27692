//! `explain`: why work waits, and what would let it go on.

use crate::command_line::{fails, ok, ok_json};
use pgsemaphore_tests::{Db, InProcess, message};
use serde_json::json;

const KEY: &str = "account:42";

async fn holder(limit: u64) -> (Db, InProcess) {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let policy = json!({
        "limit": limit, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 86_400_000,
        "group_limits": {"nightly": 2}
    });
    holder.policy("account:*", policy).await;
    (db, holder)
}

async fn wants(holder: &InProcess, client: &str, group: &str, count: u64) {
    let demand = json!({"demand": [{"group": group, "count": count}]});
    let (status, reply) = holder.request(KEY, message(client, demand)).await;
    assert_eq!(status, 200, "{reply}");
}

/// The demand that is blocked, as a round would have left it.
async fn blocked(db: &Db, reason: &str, group: &str) {
    let write =
        "INSERT INTO pgsemaphore_data.semaphores AS s (key) VALUES ('account:42') ON CONFLICT DO NOTHING";
    sqlx::query(write).execute(db.pool()).await.expect("a key");
    sqlx::query(
        "INSERT INTO pgsemaphore_data.clients (key, client_id, generation, blocked, blocked_at)
         VALUES ('account:42', 'w', 0, jsonb_build_array(jsonb_build_object('group', $2, 'count', 3, 'reason', $1,
             'since', (extract(epoch FROM now()) * 1000000)::bigint)), now())
         ON CONFLICT ON CONSTRAINT clients_pkey DO UPDATE SET blocked = EXCLUDED.blocked, blocked_at = now()",
    )
    .bind(reason)
    .bind(group)
    .execute(db.pool())
    .await
    .expect("blocked demand");
}

#[tokio::test]
async fn a_limit_names_who_holds_most_and_how_far_usage_is_over_it() {
    let (db, holder) = holder(7).await;
    wants(&holder, "a", "api", 4).await;
    wants(&holder, "b", "api", 2).await;
    wants(&holder, "b", "batch", 3).await;
    let text = ok(&db, &["explain", KEY]).await;
    assert!(
        text.starts_with(
            "account:42, policy account:*\nlimit 7, used 7 (7 by grants, 0 by leases): 0 left\n"
        ),
        "{text}"
    );
    let raise = "limit: raise the limit (`pgsemaphore policy set 'account:*' --limit N`)";
    assert!(text.contains(&format!("{raise}, or wait for who holds most: a (4), b (3)\n")), "{text}");

    ok(&db, &["policy", "set", "account:*", "--limit", "5"]).await;
    let text = ok(&db, &["explain", KEY]).await;
    assert!(text.contains("limit 5, used 7 (7 by grants, 0 by leases): over by 2\n"), "{text}");
    let json = ok_json(&db, &["explain", KEY, "--json"]).await;
    assert_eq!((&json["limit"], &json["available"], &json["over_by"]), (&json!(5), &json!(-2), &json!(2)));
    assert_eq!(json["held"][0]["client_id"], "a");
    assert_eq!((&json["blocked"][0]["client_id"], &json["blocked"][0]["count"]), (&json!("b"), &json!(2)));
    assert_eq!(json["unblock"][0]["reason"], "limit");

    let batch = ok_json(&db, &["explain", KEY, "batch", "--json"]).await;
    assert_eq!(batch["held"].as_array().map(Vec::len), Some(1), "{batch}");
    let what = batch["unblock"][0]["what"].as_str().unwrap_or_default();
    assert!(what.contains("a (4), b (3)"), "the limit is shared by all groups: {batch}");
    assert_eq!(
        batch["group"],
        json!({"group": "batch", "limit": null, "grants": 1, "leases": 0, "contended": false})
    );
    assert_eq!(ok_json(&db, &["explain", KEY, "nobody", "--json"]).await["blocked"], json!([]));
}

#[tokio::test]
async fn a_ceiling_of_a_group_is_named() {
    let (db, holder) = holder(10).await;
    wants(&holder, "a", "nightly", 5).await;
    let text = ok(&db, &["explain", KEY, "nightly"]).await;
    assert!(text.contains("group nightly: limit 2, used 2 (2 by grants, 0 by leases): 0 left\n"), "{text}");
    let raise = "raise the ceiling of 2 (`pgsemaphore policy set 'account:*' --group nightly=N`)";
    assert!(
        text.contains(&format!("group_limit: group nightly: {raise}, or wait for who holds most: a (2)")),
        "{text}"
    );
}

#[tokio::test]
async fn each_other_reason_has_its_remedy() {
    let (db, _holder) = holder(10).await;
    for (changes, reason, group, told) in [
        (
            r#"{"paused": true}"#,
            "paused",
            "api",
            "unpause the policy: `pgsemaphore policy set 'account:*' --paused false`",
        ),
        (
            r#"{"paused": false, "paused_groups": ["api", "it's"]}"#,
            "paused",
            "api",
            r"unpause group api: `pgsemaphore policy set 'account:*' --paused-groups 'it'\''s'`",
        ),
        (
            r#"{"paused_groups": ["api"]}"#,
            "paused",
            "api",
            "`pgsemaphore policy set 'account:*' --paused-groups null`",
        ),
        (r#"{"paused_groups": []}"#, "paused", "api", "the policy says so no longer"),
    ] {
        let set = sqlx::query("SELECT pgsemaphore.configure('account:*', $1::text::jsonb)").bind(changes);
        set.execute(db.pool()).await.expect(changes);
        blocked(&db, reason, group).await;
        let text = ok(&db, &["explain", KEY]).await;
        assert!(text.contains(&format!("{reason}: ")) && text.contains(told), "{told}\n{text}");
    }
    // As the policy would say if the functions had been there when it was set.
    for (column, reason, told) in [
        (
            "can_grant_function",
            "not_permitted",
            "can_grant_function ops.judge does not answer true for group api",
        ),
        ("group_limit_function", "limit_resolution_error", "group_limit_function ops.judge failed"),
        ("group_limit_function", "group_limit", "have group_limit_function ops.judge answer more"),
    ] {
        let update = format!("UPDATE pgsemaphore_data.policies SET {column} = 'ops.judge'");
        sqlx::raw_sql(sqlx::AssertSqlSafe(update)).execute(db.pool()).await.expect("a function's name");
        blocked(&db, reason, "api").await;
        let text = ok(&db, &["explain", KEY, "api"]).await;
        assert!(text.contains(told), "{told}\n{text}");
    }
    let update = "UPDATE pgsemaphore_data.policies SET permit_limit = NULL, limit_function = 'ops.limit'";
    sqlx::raw_sql(update).execute(db.pool()).await.expect("a function's name");
    blocked(&db, "limit", "api").await;
    let text = ok(&db, &["explain", KEY]).await;
    assert!(
        text.contains("limit none") && text.contains("have limit_function ops.limit answer more"),
        "{text}"
    );
}

#[tokio::test]
async fn clients_that_may_be_gone_are_named() {
    let (db, holder) = holder(2).await;
    wants(&holder, "gone one", "api", 2).await;
    let long_ago = "UPDATE pgsemaphore_data.clients SET last_seen = now() - interval '2 hours'";
    sqlx::raw_sql(long_ago).execute(db.pool()).await.expect("silence");
    let text = ok(&db, &["explain", KEY]).await;
    assert!(text.contains("nothing waits") && text.contains("2 h ago"), "{text}");
    assert!(text.contains("'gone one' holds permits and was last heard 2 h ago"), "{text}");
    assert!(text.contains("stay counted until somebody says that it is gone"), "{text}");
    assert!(
        text.contains("See whether its process still runs") && text.contains("with the same client_id"),
        "{text}"
    );
    assert!(text.contains("`pgsemaphore client settle account:42 'gone one'`"), "{text}");

    wants(&holder, "waits", "api", 1).await;
    let text = ok(&db, &["explain", KEY]).await;
    let remedy = text.lines().find(|line| line.starts_with("limit: ")).expect("a remedy");
    assert!(!remedy.contains("wait for"), "nobody waits for a client that is gone: {text}");
    ok(&db, &["policy", "set", "account:*", "--settle-lost-clients-after-ms", "86400000"]).await;
    let text = ok(&db, &["explain", KEY]).await;
    assert!(text.contains("the policy settles it once it is silent for 1 d"), "{text}");
}

#[tokio::test]
async fn a_limit_of_0_is_not_waited_for() {
    let (db, holder) = holder(2).await;
    wants(&holder, "a", "api", 2).await;
    ok(&db, &["policy", "set", "account:*", "--limit", "0"]).await;
    wants(&holder, "b", "api", 1).await;
    let text = ok(&db, &["explain", KEY]).await;
    assert!(text.contains("limit: raise the limit") && !text.contains("wait for who"), "{text}");
}

#[tokio::test]
async fn what_waits_for_a_round_is_said_not_to_be_known() {
    let (db, holder) = holder(2).await;
    let text = ok(&db, &["explain", KEY]).await;
    assert!(
        text.contains("there was no round yet; requests since then wait in holders and are not shown"),
        "{text}"
    );
    wants(&holder, "a", "api", 1).await;
    let slow = ["--round-wait-ms", "4000", "--round-period-ms", "30000"];
    ok(&db, &[&["policy", "set", "account:*"][..], &slow].concat()).await;
    let text = ok(&db, &["explain", KEY]).await;
    assert!(text.contains("nothing waits that a round has seen\nthe last round was "), "{text}");
    assert!(
        text.contains("4000 ms after the first of them") && text.contains("30000 ms after the round before"),
        "{text}"
    );
    assert!(
        text.contains("`pgsemaphore policy set --round-wait-ms 0 --round-period-ms 100 'account:*'`"),
        "{text}"
    );
    holder.stop().await;
    let text = ok(&db, &["explain", KEY]).await;
    assert!(text.contains("no holder runs: nothing is granted until `pgsemaphore serve` does"), "{text}");
}

#[tokio::test]
async fn a_key_that_nobody_knows_is_said_to_be_so() {
    let (db, _holder) = holder(2).await;
    let (code, line) = fails(&db, &["explain", "elsewhere"]).await;
    assert_eq!(code, 1);
    assert!(line.contains("elsewhere"), "{line}");
    let text = ok(&db, &["explain", "account:new"]).await;
    assert!(text.contains("limit 2, used 0") && text.contains("nothing waits"), "{text}");
}
