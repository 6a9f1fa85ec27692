//! Names of all kinds, in every function, view, command and URL.

use crate::command_line::{ok, ok_json};
use pgsemaphore_tests::{Api, Db, InProcess, encode, message, verify};
use serde_json::{Value, json};
use std::io::Write as _;

/// A name of at most `longest` bytes, of each kind.
fn names(longest: usize) -> Vec<String> {
    let whole = [
        "ключ ☂ 鍵",
        r#"it's "quoted" \ $1 %s {}"#,
        "'; DROP TABLE pgsemaphore_data.slots; --",
        "a/b?c=d&e#f+g%41",
        " ",
        "null",
        "x*y",
    ];
    let mut names: Vec<String> = whole.iter().map(|&name| name.to_owned()).collect();
    names.push("é".repeat(longest / 2));
    names
}

struct Case<'a> {
    db: &'a Db,
    api: Api,
    holder: &'a InProcess,
    key: &'a str,
    client: &'a str,
    group: &'a str,
}

impl Case<'_> {
    async fn scalar(&self, query: &'static str) -> Value {
        let query = sqlx::query_scalar::<_, Option<Value>>(query);
        let query = query.bind(self.key).bind(self.client).bind(self.group);
        query
            .fetch_one(self.db.pool())
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", self.key))
            .unwrap_or_default()
    }

    /// Asks for more than there is, as this generation of the client, and claims what came.
    async fn grant(&self, generation: u64) {
        let mut demand = self.speaks(generation);
        demand["demand"] = json!([{"group": self.group, "count": 9}]);
        let (status, reply) = self.holder.request(self.key, message(self.client, demand)).await;
        assert_eq!((status, &reply["grants"][0]["group"]), (200, &json!(self.group)), "{reply}");
        let grant = &reply["grants"][0];
        let mut report = self.speaks(generation);
        report["seen"] = reply["round"].clone();
        report["grants"] = json!([{"id": grant["id"], "claimed": grant["permits"]}]);
        let (status, reply) = self.holder.sync(self.key, message(self.client, report)).await;
        assert_eq!(status, 200, "{reply}");
    }

    fn speaks(&self, generation: u64) -> Value {
        json!({"generation": generation, "process": "p"})
    }

    async fn urls(&self) {
        let (key, client, group) = (encode(self.key), encode(self.client), encode(self.group));
        let policy = format!("/v1/policies/{key}");
        let body = r#"{"limit": 5, "round_wait_ms": 0, "round_period_ms": 0}"#;
        assert_eq!(self.api.put(&policy, body).await.body["pattern"], self.key);
        let of_group = format!("{policy}/groups/{group}");
        assert_eq!(self.api.put(&of_group, r#"{"limit": 4}"#).await.body["group"], self.group);
        assert_eq!(self.api.get(&policy).await.body["group_limits"][self.group], 4);
        self.grant(0).await;
        let usage = self.api.get(&format!("/v1/semaphores/{key}")).await.body;
        assert_eq!((&usage["key"], &usage["grants"]), (&json!(self.key), &json!(4)));
        assert_eq!(
            (&usage["clients"][0]["client_id"], &usage["groups"][0]["group"]),
            (&json!(self.client), &json!(self.group))
        );
        let list = self.api.get(&format!("/v1/semaphores?prefix={key}")).await.body;
        assert_eq!(list["semaphores"][0]["key"], self.key);
        let taken = format!("/v1/clients/{client}/takeover");
        let taken = self.api.post(&taken, r#"{"v": 1, "generation": 1, "process": "p"}"#).await.body;
        assert_eq!(taken["keys"][0]["key"], self.key, "{taken}");
        let settle = format!("/v1/semaphores/{key}/clients/{client}/settle");
        assert_eq!(self.api.post(&settle, r#"{"force": true}"#).await.body["client_id"], self.client);
        assert_eq!(self.api.delete(&of_group).await.status, 204);
        assert_eq!(self.api.delete(&policy).await.status, 204);
    }

    async fn functions_and_views(&self) {
        let key = &json!(self.key);
        let set =
            r#"SELECT pgsemaphore.configure($1, '{"limit": 5, "round_wait_ms": 0, "round_period_ms": 0}')"#;
        assert_eq!(&self.scalar(set).await["pattern"], key);
        assert_eq!(self.scalar("SELECT to_jsonb(pgsemaphore.set_limit($1, 6))").await, 6);
        assert_eq!(self.scalar("SELECT to_jsonb(pgsemaphore.set_group_limit($1, $3, 2))").await, 2);
        self.grant(2).await;
        for view in [
            "SELECT to_jsonb(v) FROM pgsemaphore.usage AS v WHERE v.key = $1",
            "SELECT to_jsonb(v) FROM pgsemaphore.group_usage AS v WHERE v.key = $1 AND v.grp = $3",
            "SELECT to_jsonb(v) FROM pgsemaphore.client_usage AS v WHERE v.key = $1 AND v.client_id = $2",
            "SELECT to_jsonb(v) FROM pgsemaphore.grants AS v WHERE v.key = $1 AND v.client_id = $2 AND v.grp = $3",
            "SELECT to_jsonb(v) || jsonb_build_object('key', pattern) FROM pgsemaphore.policies AS v WHERE v.pattern = $1",
            "SELECT to_jsonb(v) || jsonb_build_object('key', pattern) FROM pgsemaphore.group_limits AS v WHERE v.pattern = $1 AND v.grp = $3",
            "SELECT to_jsonb(v) FROM pgsemaphore.audit AS v WHERE v.key = $1 LIMIT 1",
        ] {
            assert_eq!(&self.scalar(view).await["key"], key, "{view}");
        }
        let blocked = "SELECT to_jsonb(v) FROM pgsemaphore.blocked AS v WHERE v.key = $1 AND v.client_id = $2 AND v.grp = $3";
        assert_eq!(&self.scalar(blocked).await["key"], key);
        assert_eq!(self.scalar("SELECT jsonb_agg(v) FROM pgsemaphore.verify($1) AS v").await, Value::Null);
        let settled = self
            .scalar("SELECT to_jsonb(s) FROM pgsemaphore.settle_client($1, $2, $3, force => true) AS s")
            .await;
        assert_eq!((&settled["client_id"], &settled["grants"]), (&json!(self.client), &json!(2)));
        assert_eq!(self.scalar("SELECT to_jsonb(pgsemaphore.delete_policy($1))").await, true);
    }

    async fn commands(&self) {
        let Self { db, key, client, group, .. } = self;
        let limit = format!("{group}=3");
        let set = [
            "policy",
            "set",
            key,
            "--limit",
            "7",
            "--group",
            &limit,
            "--round-wait-ms",
            "0",
            "--round-period-ms",
            "0",
        ];
        assert_eq!(ok_json(db, &set).await["pattern"], *key);
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let policies = json!({"policies": {*key: {"limit": 8, "group_limits": {*group: 3}, "round_wait_ms": 0, "round_period_ms": 0}}});
        file.write_all(policies.to_string().as_bytes()).expect("its content");
        let path = file.path().to_str().expect("a path in UTF-8");
        assert_eq!(ok(db, &["policy", "apply", "--force", "-f", path]).await, format!("{key}: changed\n"));
        assert_eq!(ok_json(db, &["policy", "get", key]).await["limit"], 8);
        assert!(ok(db, &["policy", "list"]).await.contains(key));
        self.grant(3).await;
        assert_eq!(ok_json(db, &["usage", key, "--json"]).await["grants"], 3);
        assert!(ok(db, &["usage"]).await.contains(key));
        let explained = ok_json(db, &["explain", key, group, "--json"]).await;
        assert_eq!((&explained["key"], &explained["held"][0]["client_id"]), (&json!(key), &json!(client)));
        assert!(ok(db, &["explain", key]).await.contains(client));
        assert_eq!(ok_json(db, &["client", "list", key, "--json"]).await[0]["client_id"], *client);
        assert_eq!(ok_json(db, &["client", "settle", key, client, "--yes", "--json"]).await["grants"], 3);
        assert_eq!(ok(db, &["policy", "delete", key]).await, format!("{key}: deleted\n"));
    }
}

#[tokio::test]
async fn any_name_goes_everywhere() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    for ((key, client), group) in names(512).iter().zip(&names(256)).zip(&names(256)) {
        let case = Case { db: &db, api: Api::new(holder.url()), holder: &holder, key, client, group };
        case.urls().await;
        case.functions_and_views().await;
        case.commands().await;
    }
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn the_longest_prefix_matches_the_longest_key() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let key = "é".repeat(256);
    let policy = json!({"limit": 2, "round_wait_ms": 0, "round_period_ms": 0});
    holder.policy(&format!("{key}*"), policy).await;
    let (status, reply) =
        holder.request(&key, message("w", json!({"demand": [{"group": "", "count": 1}]}))).await;
    assert_eq!(status, 200, "{reply}");
    let told = ok(&db, &["explain", &key]).await;
    assert!(told.contains(&format!("policy {key}*")), "{told}");
}
