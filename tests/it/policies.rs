//! Policies, over HTTP and in SQL: one validator behind both.

use pgsemaphore_tests::{Api, Db, InProcess};
use serde_json::{Value, json};

async fn holder() -> (Db, InProcess, Api) {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let api = Api::new(holder.url());
    (db, holder, api)
}

/// What `configure` says to a pattern and changes: the field at fault, or none.
async fn configure(db: &Db, pattern: &str, changes: &str) -> Result<Value, String> {
    sqlx::query_scalar("SELECT pgsemaphore.configure($1, $2::text::jsonb)")
        .bind(pattern)
        .bind(changes)
        .fetch_one(db.pool())
        .await
        .map_err(|error| {
            let refused = error.into_database_error().expect("a refusal");
            assert_eq!(refused.code().as_deref(), Some("22023"), "{refused}");
            let refused = refused.downcast_ref::<sqlx::postgres::PgDatabaseError>();
            let field = refused.column().expect("the field's name");
            assert!(refused.message().starts_with(&format!("{field}: ")), "{}", refused.message());
            field.to_owned()
        })
}

#[tokio::test]
async fn a_policy_has_every_field_and_can_be_put_back() {
    let (_db, _holder, api) = holder().await;
    let answer = api.put("/v1/policies/account:*", r#"{"limit":100}"#).await;
    let mut policy = answer.body.clone();
    assert_eq!(answer.status, 200);
    assert!(policy["set_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{policy}");
    policy["set_at"] = Value::Null;
    assert_eq!(
        policy,
        json!({
            "pattern": "account:*", "limit": 100, "limit_function": null, "group_limits": {}, "paused": false,
            "paused_groups": [], "group_limit_function": null, "can_grant_function": null, "round_wait_ms": 0,
            "round_period_ms": 100, "eager": false, "grant_timeout_ms": 10000, "provisioning": "none",
            "lease_reserve": null, "lease_extra": null, "lease_extra_ratio": null, "permits_per_lease": 64,
            "lease_ttl_ms": 1_800_000, "limited_groups": "excluded", "settle_lost_clients_after_ms": null,
            "set_by": "http", "set_at": null
        })
    );
    let over =
        r#"{"limit":5,"provisioning":"over","lease_extra_ratio":0.000001,"paused_groups":["b","a","b"]}"#;
    let put = api.put("/v1/policies/account:*", over).await.body;
    assert_eq!(put["paused_groups"], json!(["a", "b"]));
    assert_eq!(put["lease_extra_ratio"].to_string(), "1e-6");
    let got = api.get("/v1/policies/account:%2A").await.body;
    assert_eq!(got, put);
    let text = got.to_string().replace("1e-6", "0.000001");
    let mut again = api.put("/v1/policies/account:*", &text).await.body;
    again["set_at"] = got["set_at"].clone();
    assert_eq!(again, got);
}

#[tokio::test]
async fn a_put_keeps_group_limits_unless_it_names_them() {
    let (_db, _holder, api) = holder().await;
    api.put("/v1/policies/k", r#"{"limit":9,"eager":true,"group_limits":{"":1,"a/b":2}}"#).await;
    let kept = api.put("/v1/policies/k", r#"{"limit":8}"#).await.body;
    assert_eq!((&kept["group_limits"], &kept["eager"]), (&json!({"": 1, "a/b": 2}), &json!(false)));
    let replaced = api.put("/v1/policies/k", r#"{"limit":8,"group_limits":{"c":3}}"#).await.body;
    assert_eq!(replaced["group_limits"], json!({"c": 3}));
    let reset = api.put("/v1/policies/k", r#"{"limit":8,"group_limits":null}"#).await.body;
    assert_eq!(reset["group_limits"], json!({}));
}

#[tokio::test]
async fn group_limits_are_set_and_removed_one_by_one() {
    let (_db, _holder, api) = holder().await;
    assert_eq!(api.put("/v1/policies/k/groups/a", r#"{"limit":1}"#).await.code(), (404, "policy_not_found"));
    assert_eq!(api.delete("/v1/policies/k/groups/a").await.code(), (404, "policy_not_found"));
    api.put("/v1/policies/k", r#"{"limit":9}"#).await;
    let set = api.put("/v1/policies/k/groups/", r#"{"limit":1}"#).await;
    assert_eq!((set.status, set.body), (200, json!({"group": "", "limit": 1})));
    let set = api.put("/v1/policies/k/groups/x%2Fy+z", r#"{"limit":0}"#).await;
    assert_eq!((set.status, set.body), (200, json!({"group": "x/y+z", "limit": 0})));
    assert_eq!(api.get("/v1/policies/k").await.body["group_limits"], json!({"": 1, "x/y+z": 0}));
    assert_eq!(api.delete("/v1/policies/k/groups/").await.status, 204);
    assert_eq!(api.delete("/v1/policies/k/groups/").await.status, 204);
    assert_eq!(api.get("/v1/policies/k").await.body["group_limits"], json!({"x/y+z": 0}));
    for bad in ["-1", "2147483648", "1.0", "null", "\"1\"", "1e400"] {
        let answer = api.put("/v1/policies/k/groups/a", &format!(r#"{{"limit":{bad}}}"#)).await;
        assert_eq!(answer.field(), (400, "/limit"), "{bad}");
    }
    assert_eq!(api.put("/v1/policies/k/groups/a", "{}").await.field(), (400, "/limit"));
    assert_eq!(api.put("/v1/policies/k/groups/a", r#"{"limit":1,"x":1}"#).await.status, 400);
    let long = "g".repeat(257);
    assert_eq!(
        api.put(&format!("/v1/policies/k/groups/{long}"), r#"{"limit":1}"#).await.field(),
        (400, "group")
    );
}

#[tokio::test]
async fn a_deleted_policy_takes_its_group_limits_along() {
    let (_db, _holder, api) = holder().await;
    assert_eq!(api.delete("/v1/policies/k").await.code(), (404, "policy_not_found"));
    api.put("/v1/policies/k", r#"{"limit":9,"group_limits":{"a":1}}"#).await;
    assert_eq!(api.delete("/v1/policies/k").await.status, 204);
    assert_eq!(api.get("/v1/policies/k").await.code(), (404, "policy_not_found"));
    assert_eq!(api.put("/v1/policies/k", r#"{"limit":9}"#).await.body["group_limits"], json!({}));
}

#[tokio::test]
async fn lists_are_paged_bytewise() {
    let (_db, _holder, api) = holder().await;
    for pattern in ["b", "B*", "a", "%C3%A9", "*"] {
        assert_eq!(api.put(&format!("/v1/policies/{pattern}"), r#"{"limit":1}"#).await.status, 200);
    }
    let mut found = Vec::new();
    let mut after = String::new();
    loop {
        let page = api.get(&format!("/v1/policies?limit=2&after={after}&unknown=x")).await.body;
        found.extend(
            page["policies"].as_array().expect("policies").iter().map(|policy| policy["pattern"].clone()),
        );
        let Some(next) = page["next"].as_str() else { break };
        after = next.replace('é', "%C3%A9");
    }
    assert_eq!(found, ["*", "B*", "a", "b", "é"]);
    for (query, field) in
        [("limit=0", "limit"), ("limit=1001", "limit"), ("after=%FF", "after"), ("limit=x", "limit")]
    {
        assert_eq!(api.get(&format!("/v1/policies?{query}")).await.field(), (400, field), "{query}");
    }
}

#[tokio::test]
async fn every_field_is_judged_with_its_name_over_http_and_in_sql() {
    let (db, _holder, api) = holder().await;
    functions(&db).await;
    for (field, good, bad) in RANGES {
        for (value, ok) in
            good.iter().map(|value| (value, true)).chain(bad.iter().map(|value| (value, false)))
        {
            let limit = if *field == "limit" { "" } else { r#""limit":10,"# };
            let mode = match *field {
                "lease_reserve" => r#""provisioning":"under","#,
                "lease_extra" | "lease_extra_ratio" => r#""provisioning":"over","#,
                _ => "",
            };
            let body = format!(r#"{{{limit}{mode}"{field}":{value}}}"#);
            let http = api.put("/v1/policies/k", &body).await;
            let sql = configure(&db, "s", &body).await;
            if ok {
                assert_eq!(http.status, 200, "{body} {}", http.body);
                assert!(sql.is_ok(), "{body} {sql:?}");
                sqlx::query("SELECT pgsemaphore.delete_policy('s')")
                    .execute(db.pool())
                    .await
                    .expect("a clean slate");
            } else {
                assert_eq!(http.field(), (400, format!("/{field}").as_str()), "{body} {}", http.body);
                assert_eq!(sql, Err((*field).to_owned()), "{body}");
            }
        }
    }
}

type Range = (&'static str, &'static [&'static str], &'static [&'static str]);

const NEVER: [&str; 6] = ["-1", "1.5", "1.0", "\"5\"", "true", "[]"];
const RANGES: &[Range] = &[
    ("limit", &["0", "2147483647"], &["2147483648", "9007199254740993", "9223372036854775807", "null"]),
    ("limit", &[], &NEVER),
    ("round_wait_ms", &["0", "60000", "null"], &["60001"]),
    ("round_wait_ms", &[], &NEVER),
    ("round_period_ms", &["0", "3600000", "null"], &["3600001"]),
    ("round_period_ms", &[], &NEVER),
    ("grant_timeout_ms", &["100", "86400000", "null"], &["99", "86400001", "0"]),
    ("grant_timeout_ms", &[], &NEVER),
    ("lease_ttl_ms", &["500", "2592000000", "null"], &["499", "2592000001"]),
    ("lease_ttl_ms", &[], &NEVER),
    ("settle_lost_clients_after_ms", &["5000", "2592000000", "null"], &["4999", "2592000001"]),
    ("settle_lost_clients_after_ms", &[], &NEVER),
    ("permits_per_lease", &["1", "1000000", "null"], &["0", "1000001"]),
    ("permits_per_lease", &[], &NEVER),
    ("lease_reserve", &["0", "2147483647"], &["2147483648", "null"]),
    ("lease_reserve", &[], &NEVER),
    ("lease_extra", &["0", "2147483647"], &["2147483648", "null"]),
    ("lease_extra", &[], &NEVER),
    (
        "lease_extra_ratio",
        &["0", "0.5", "1.0", "999.999999", "1000"],
        &["-0.5", "1000.000001", "0.0000001", "\"1\""],
    ),
    ("paused", &["true", "false", "null"], &["0", "\"true\"", "[]"]),
    ("eager", &["true", "false", "null"], &["0", "\"true\"", "[]"]),
    ("provisioning", &["\"none\"", "\"strict\"", "null"], &["\"None\"", "\"\"", "5", "[]"]),
    ("limited_groups", &["\"excluded\"", "\"within_group_limit\"", "null"], &["\"all\"", "true"]),
    ("group_limit_function", &["\"f\"", "null"], &["\"\"", "5", "{}"]),
    ("can_grant_function", &["\"s.f\"", "null"], &["\"\"", "5", "{}"]),
    ("paused_groups", &["[]", "[\"\"]", "null"], &["{}", "\"a\"", "5"]),
    ("group_limits", &["{}", "{\"\":0}", "null"], &["[]", "\"a\"", "5"]),
    ("nonsense", &[], &["1", "null"]),
];

/// What the fields of functions name here.
async fn functions(db: &Db) {
    let create = "CREATE FUNCTION public.f(text) RETURNS integer LANGUAGE sql AS 'SELECT 1';
                  CREATE FUNCTION public.f(text, text) RETURNS integer LANGUAGE sql AS 'SELECT 1';
                  CREATE SCHEMA s;
                  CREATE FUNCTION s.f(text, text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'";
    sqlx::raw_sql(create).execute(db.pool()).await.expect("functions");
}

#[tokio::test]
async fn fields_that_exclude_or_need_each_other() {
    let (db, _holder, api) = holder().await;
    for (body, field) in [
        ("{}", "limit"),
        (r#"{"limit":1,"limit_function":"f"}"#, "limit_function"),
        (r#"{"limit":1,"lease_reserve":1}"#, "lease_reserve"),
        (r#"{"limit":1,"provisioning":"strict","lease_extra":1}"#, "lease_extra"),
        (r#"{"limit":1,"provisioning":"under"}"#, "lease_reserve"),
        (r#"{"limit":1,"provisioning":"under","lease_reserve":1,"lease_extra":1}"#, "lease_extra"),
        (r#"{"limit":1,"provisioning":"over"}"#, "lease_extra"),
        (r#"{"limit":1,"provisioning":"over","lease_extra":1,"lease_extra_ratio":1}"#, "lease_extra_ratio"),
        (r#"{"limit":1,"provisioning":"over","lease_extra":1,"lease_reserve":1}"#, "lease_reserve"),
        (r#"{"limit":1,"group_limits":{"a":1,"b/c":-1}}"#, "group_limits/b~1c"),
        (r#"{"limit":1,"group_limits":{"..":1}}"#, "group_limits/.."),
        (r#"{"limit":1,"group_limits":{"a":null}}"#, "group_limits/a"),
        (r#"{"limit":1,"paused_groups":["a","."]}"#, "paused_groups/1"),
        (r#"{"limit":1,"paused_groups":[1]}"#, "paused_groups/0"),
    ] {
        assert_eq!(
            api.put("/v1/policies/k", body).await.field(),
            (400, format!("/{field}").as_str()),
            "{body}"
        );
        assert_eq!(configure(&db, "k", body).await, Err(field.to_owned()), "{body}");
    }
    assert_eq!(api.get("/v1/policies/k").await.status, 404);
}

#[tokio::test]
async fn what_json_leaves_open_is_refused_over_http() {
    let (_db, _holder, api) = holder().await;
    for (body, field) in [
        (r#"{"limit":1,"limit":1}"#, "/limit"),
        (r#"{"limit":-0}"#, "/limit"),
        (r#"{"limit":1e3}"#, "/limit"),
        (r#"{"limit":1e400}"#, "/limit"),
        (r#"{"limit":1,"lease_extra_ratio":1e-1,"provisioning":"over"}"#, "/lease_extra_ratio"),
        (r#"{"limit":1,"limit_function":"a\u0000b"}"#, "/limit_function"),
        (r#"{"limit":1,"paused_groups":["\udc00"]}"#, "/paused_groups/0"),
        ("[]", ""),
    ] {
        assert_eq!(api.put("/v1/policies/k", body).await.field(), (400, field), "{body}");
    }
    for body in ["", "{", "nul", "{\"limit\":1,}"] {
        assert_eq!(api.put("/v1/policies/k", body).await.code(), (400, "invalid_json"), "{body}");
    }
}

#[tokio::test]
async fn configure_merges() {
    let db = Db::new().await;
    functions(&db).await;
    configure(&db, "k", r#"{"limit":5,"eager":true,"group_limits":{"a":1}}"#).await.expect("a policy");
    let merged = configure(&db, "k", r#"{"round_wait_ms":0,"eager":null}"#).await.expect("a change");
    assert_eq!((&merged["limit"], &merged["eager"]), (&json!(5), &json!(false)));
    assert_eq!((&merged["round_wait_ms"], &merged["group_limits"]), (&json!(0), &json!({"a": 1})));
    let merged = configure(&db, "k", r#"{"limit":null,"limit_function":"f"}"#).await.expect("a change");
    assert_eq!((&merged["limit"], &merged["limit_function"]), (&Value::Null, &json!("f")));
    let refused: Result<Option<i32>, _> =
        sqlx::query_scalar("SELECT pgsemaphore.set_limit('k', 5)").fetch_one(db.pool()).await;
    assert!(refused.is_err(), "limit_function is set");
    let made: i32 = sqlx::query_scalar("SELECT pgsemaphore.set_limit('new', 5)")
        .fetch_one(db.pool())
        .await
        .expect("made");
    assert_eq!(made, 5);
}

#[tokio::test]
async fn the_exact_pattern_wins_then_the_longest_prefix() {
    let db = Db::new().await;
    for pattern in ["*", "a:*", "a:b*", "a:b", "é*"] {
        configure(&db, pattern, r#"{"limit":1}"#).await.expect("a policy");
    }
    for (key, winner) in [
        ("a:b", "a:b"),
        ("a:bc", "a:b*"),
        ("a:", "a:*"),
        ("a", "*"),
        ("a:b*", "a:b*"),
        ("a:*", "a:*"),
        ("éa", "é*"),
        ("*", "*"),
    ] {
        let found: Option<String> = sqlx::query_scalar("SELECT pgsemaphore_data.policy_for($1)")
            .bind(key)
            .fetch_one(db.pool())
            .await
            .expect("a look");
        assert_eq!(found.as_deref(), Some(winner), "{key}");
    }
}

#[tokio::test]
async fn the_winner_is_the_one_that_trying_every_prefix_finds() {
    let db = Db::new().await;
    let texts = |n: usize, depth: u32| {
        let letters = ['a', 'b', ':', 'é', '*', '('];
        (0..letters.len().pow(depth)).step_by(n).map(move |mut number| {
            let digits = (0..depth).map(|_| {
                let letter = letters[number % letters.len()];
                number /= letters.len();
                letter
            });
            digits.collect::<String>()
        })
    };
    let mut patterns: Vec<String> = texts(5, 3).chain(texts(7, 3).map(|stem| stem + "*")).collect();
    patterns.extend(["a*", "ab*", "é*"].map(str::to_owned));
    for pattern in &patterns {
        configure(&db, pattern, r#"{"limit":1}"#).await.expect("a policy");
    }
    let tried = |key: &str| {
        let exact = patterns.iter().find(|pattern| *pattern == key && !key.ends_with('*'));
        let longest = patterns
            .iter()
            .filter(|pattern| pattern.strip_suffix('*').is_some_and(|stem| key.starts_with(stem)));
        exact.or_else(|| longest.max_by_key(|pattern| pattern.len())).cloned()
    };
    let keys: Vec<String> = texts(1, 3).chain(texts(3, 4)).collect();
    let found: Vec<Option<String>> = sqlx::query_scalar(
        "SELECT pgsemaphore_data.policy_for(k) FROM unnest($1::text[]) WITH ORDINALITY AS u(k, n) ORDER BY n",
    )
    .bind(&keys)
    .fetch_all(db.pool())
    .await
    .expect("winners");
    for (key, found) in keys.iter().zip(found) {
        assert_eq!(found, tried(key), "{key}");
    }
}

#[tokio::test]
async fn patterns_have_a_length() {
    let (db, _holder, api) = holder().await;
    let key: String = (0..64).map(|n| format!("{:08x}", n * 0x9E37_79B1_u64 % 0xFFFF_FFFF)).collect();
    assert_eq!(key.len(), 512);
    for (pattern, ok) in [
        (key.clone(), true),
        (format!("{key}*"), true),
        (format!("{key}x"), false),
        (format!("{key}x*"), false),
    ] {
        let answer = api.put(&format!("/v1/policies/{pattern}"), r#"{"limit":1}"#).await;
        assert_eq!(answer.status == 200, ok, "{} {}", pattern.len(), answer.body);
        assert_eq!(configure(&db, &pattern, r#"{"limit":1}"#).await.is_ok(), ok, "{}", pattern.len());
    }
    assert_eq!(api.get(&format!("/v1/semaphores/{key}")).await.body["pattern"], json!(key));
    for target in
        ["/v1/policies/", "/v1/policies/..", "/v1/policies/%2E", "/v1/policies/a%00", "/v1/policies/%FF"]
    {
        assert_eq!(api.put(target, r#"{"limit":1}"#).await.field(), (400, "pattern"), "{target}");
    }
    for pattern in ["", ".", ".."] {
        assert_eq!(configure(&db, pattern, r#"{"limit":1}"#).await, Err("pattern".to_owned()));
    }
}

#[tokio::test]
async fn two_merges_at_once_both_count() {
    let db = Db::new().await;
    configure(&db, "k", r#"{"limit":5}"#).await.expect("a policy");
    let changes: Vec<_> =
        (0..20).map(|n| format!(r#"{{"{}":{}}}"#, ["round_wait_ms", "round_period_ms"][n % 2], 7)).collect();
    let (one, two) = changes.split_at(10);
    let all = async |changes: &[String]| {
        for change in changes {
            configure(&db, "k", change).await.expect("a change");
        }
    };
    tokio::join!(all(one), all(two));
    let group = |name: &'static str| {
        sqlx::query("SELECT pgsemaphore.set_group_limit('k', $1, 1)").bind(name).execute(db.pool())
    };
    let (a, b, c) = tokio::join!(group("a"), group("b"), group("c"));
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    let policy = configure(&db, "k", "{}").await.expect("a look");
    assert_eq!((&policy["round_wait_ms"], &policy["round_period_ms"]), (&json!(7), &json!(7)));
    assert_eq!(policy["group_limits"], json!({"a": 1, "b": 1, "c": 1}));
}
