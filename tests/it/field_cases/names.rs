//! Names as long as they may be.

use pgsemaphore_tests::{Api, Db, InProcess, encode, message, verify};
use rand::distr::{Alphanumeric, SampleString as _};
use serde_json::{Value, json};

/// A name that does not compress.
fn noise(bytes: usize) -> String {
    Alphanumeric.sample_string(&mut rand::rng(), bytes)
}

struct Names {
    key: String,
    client: String,
    group: String,
}

impl Names {
    fn demand(&self) -> Value {
        let fields = json!({
            "generation": 1, "process": noise(64), "demand": [{"group": self.group, "count": 3}], "leases": []
        });
        message(&self.client, fields)
    }
}

/// Case 05: nothing limits a name but the database's index, which refuses it with a 500, and only if it does not
/// compress: a test with a repeated letter passes.
#[tokio::test]
async fn names_at_their_limits_that_do_not_compress_are_kept_everywhere() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let api = Api::new(holder.url());
    let names = Names { key: noise(512), client: noise(256), group: noise(256) };
    let Names { key, client, group } = &names;
    for pattern in [key.clone(), format!("{key}*")] {
        let policy = json!({
            "limit": 2, "group_limits": {group: 2}, "paused_groups": [noise(256)], "limited_groups": "within_group_limit",
            "provisioning": "over", "lease_extra": 1, "round_wait_ms": 0, "round_period_ms": 0
        });
        holder.policy(&pattern, policy).await;
    }
    let (status, reply) = holder.request(key, names.demand()).await;
    assert_eq!((status, &reply["grants"][0]["permits"]), (200, &json!(2)), "{reply}");
    assert_eq!(reply["blocked"][0]["group"], *group);
    let usage = holder.usage(key).await;
    assert_eq!(
        (&usage["key"], &usage["clients"][0]["client_id"], &usage["groups"][0]["group"]),
        (&json!(key), &json!(client), &json!(group))
    );
    let settle = format!("/v1/semaphores/{}/clients/{}/settle", encode(key), encode(client));
    assert_eq!(api.post(&settle, r#"{"force": true}"#).await.body["grants"], 2);
    let audit =
        sqlx::query_scalar("SELECT count(*) FROM pgsemaphore.audit WHERE key = $1 AND client_id = $2");
    let audited: i64 = audit.bind(key).bind(client).fetch_one(db.pool()).await.expect("the view");
    assert_eq!(audited, 1);
    assert_eq!(verify(&db).await, []);
}

/// Case 05: beyond its limit a name is refused by us, whatever it is made of.
#[tokio::test]
async fn names_beyond_their_limits_are_refused_by_name() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let api = Api::new(holder.url());
    holder.policy("*", json!({"limit": 2, "round_wait_ms": 0})).await;
    for bytes in [257, 1000, 2690, 3000, 70_000] {
        let texts = [noise(bytes), "a".repeat(bytes), "é".repeat(bytes / 2 + 1)];
        for text in &texts {
            for (body, field) in [
                (json!({"v": 1, "client_id": text}), "/client_id"),
                (message("w", json!({"demand": [{"group": text, "count": 1}]})), "/demand/0/group"),
                (message("w", json!({"grants": [{"id": text}]})), "/grants/0/id"),
            ] {
                let answer = api.post("/v1/semaphores/k/request", &body.to_string()).await;
                assert_eq!(answer.field(), (400, field), "{bytes}");
            }
        }
    }
    for bytes in [513, 1000, 2690, 3000] {
        let target = format!("/v1/semaphores/{}/request", noise(bytes));
        assert_eq!(api.post(&target, r#"{"v":1,"client_id":"w"}"#).await.field(), (400, "key"), "{bytes}");
    }
}
