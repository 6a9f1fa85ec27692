//! Whatever is sent, the answer is a problem that says where the fault is; never a 500, and nothing is written.

use pgsemaphore_tests::{Api, Db, InProcess, until};
use serde_json::json;

const BOTH: [&str; 2] = ["/v1/semaphores/k/request", "/v1/semaphores/k/sync"];

async fn holder() -> (Db, InProcess, Api) {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let api = Api::new(holder.url());
    (db, holder, api)
}

#[tokio::test]
async fn bodies_that_are_not_json_or_not_a_message() {
    let (_db, _holder, api) = holder().await;
    let deep = "[".repeat(100_000);
    let bodies = [
        ("", "invalid_json", "no field"),
        ("{", "invalid_json", "no field"),
        (r#"{"v":1,}"#, "invalid_json", "no field"),
        ("\u{feff}{}", "invalid_json", "no field"),
        (&deep, "invalid_json", "no field"),
        ("[]", "invalid_request", ""),
        ("{}", "invalid_request", "/v"),
        (r#"{"v":1}"#, "invalid_request", "/client_id"),
        (r#"{"v":2,"client_id":5}"#, "unsupported_version", "no field"),
        (r#"{"v":"1","client_id":"w"}"#, "invalid_request", "/v"),
        (r#"{"v":1,"client_id":"w","client_id":"w"}"#, "invalid_request", "/client_id"),
        (r#"{"v":1,"client_id":"w\u0000"}"#, "invalid_request", "/client_id"),
        (r#"{"v":1,"client_id":"\ud800"}"#, "invalid_request", "/client_id"),
        (
            r#"{"v":1,"client_id":"w","demand":[{"group":"g","count":-1}]}"#,
            "invalid_request",
            "/demand/0/count",
        ),
        (
            r#"{"v":1,"client_id":"w","grants":[{"id":"a","claimed":1e400}]}"#,
            "invalid_request",
            "/grants/0/claimed",
        ),
        (r#"{"v":1,"client_id":"w","generation":1}"#, "invalid_request", "/process"),
    ];
    for target in BOTH {
        for (body, code, field) in bodies {
            let answer = api.post(target, body).await;
            assert_eq!((answer.code(), answer.field()), ((400, code), (400, field)), "{target} {body:.60}");
        }
        let answer = api.call("POST", target, &[], b"{\"v\":1,\"client_id\":\"\xff\"}").await;
        assert_eq!(answer.code(), (400, "invalid_json"));
    }
}

#[tokio::test]
async fn names_in_urls() {
    let (_db, _holder, api) = holder().await;
    let body = r#"{"v":1,"client_id":"w"}"#;
    let long = format!("/v1/semaphores/{}", "é".repeat(257));
    let targets = [
        "/v1/semaphores/",
        "/v1/semaphores/.",
        "/v1/semaphores/..",
        "/v1/semaphores/%2e%2E",
        "/v1/semaphores/a%00b",
        "/v1/semaphores/%FF",
        "/v1/semaphores/%zz",
        "/v1/semaphores/%",
        &long,
    ];
    for target in targets {
        assert_eq!(api.get(target).await.field(), (400, "key"), "{target}");
        for call in ["request", "sync"] {
            assert_eq!(
                api.post(&format!("{target}/{call}"), body).await.field(),
                (400, "key"),
                "{target}/{call}"
            );
        }
    }
    api.put("/v1/policies/*", r#"{"limit":5}"#).await;
    for (segment, key) in [
        ("a%2Fb", "a/b"),
        ("a+b", "a+b"),
        ("a%252F", "a%2F"),
        ("%C3%A9", "é"),
        ("..%2Fx", "../x"),
        ("a%20", "a "),
    ] {
        let answer = api.get(&format!("/v1/semaphores/{segment}")).await;
        assert_eq!((answer.status, &answer.body["key"]), (200, &json!(key)), "{segment}");
    }
}

/// O-18 too: a compressed body is not taken for bad JSON.
#[tokio::test]
async fn routes_methods_and_media_types() {
    let (_db, _holder, api) = holder().await;
    for target in
        ["/", "/v1", "/v1/nope", "/v1/semaphores/a/b", "/v1/semaphores/a/request/", "/v2/semaphores"]
    {
        assert_eq!(api.get(target).await.code(), (404, "not_found"), "{target}");
    }
    for (method, target, allow) in [
        ("PUT", "/v1/semaphores/k/request", "post"),
        ("GET", "/v1/semaphores/k/sync", "post"),
        ("POST", "/v1/policies/k", "get,head,put,delete"),
        ("GET", "/v1/policies/k/groups/g", "put,delete"),
        ("DELETE", "/healthz", "get,head"),
    ] {
        let answer = api.call(method, target, &[], b"").await;
        assert_eq!(
            (answer.code(), answer.header("allow")),
            ((405, "method_not_allowed"), Some(allow)),
            "{target}"
        );
    }
    let message = br#"{"v":1,"client_id":"w"}"#;
    for (kind, status) in [
        ("content-type: text/plain", 415),
        ("content-type: application/x-www-form-urlencoded", 415),
        ("content-encoding: gzip", 415),
        ("content-encoding: identity, br", 415),
        ("content-encoding: identity", 404),
        ("content-type: application/json; charset=utf-8", 404),
        ("content-type: Application/JSON", 404),
        ("accept: text/html", 404),
    ] {
        assert_eq!(api.call("POST", BOTH[0], &[kind], message).await.status, status, "{kind}");
    }
    let head = api.call("HEAD", "/v1/policies/none", &[], b"").await;
    assert_eq!((head.status, head.body), (404, json!(null)));
}

#[tokio::test]
async fn a_body_that_is_too_large_is_told_so() {
    let (_db, _holder, api) = holder().await;
    let body = format!(r#"{{"v":1,"client_id":"w","x":"{}"}}"#, "x".repeat(4 * 1024 * 1024));
    assert_eq!(api.post(BOTH[0], &body).await.code(), (413, "body_too_large"));
    assert_eq!(api.put("/v1/policies/k", &body).await.code(), (413, "body_too_large"));
}

#[tokio::test]
async fn the_id_of_a_request_is_the_callers_own_if_it_is_sane() {
    let (_db, _holder, api) = holder().await;
    let answer = api.call("GET", "/nope", &["x-request-id: abc-1"], b"").await;
    assert_eq!(answer.body["request_id"], "abc-1");
    let long = format!("x-request-id: {}", "a".repeat(500));
    for id in [long.as_str(), "x-request-id: a b"] {
        let answer = api.call("GET", "/nope", &[id], b"").await;
        assert_eq!(answer.body["request_id"].as_str().map(str::len), Some(32));
    }
}

#[tokio::test]
async fn a_key_without_policy_and_state_is_not_found() {
    let (db, _holder, api) = holder().await;
    assert_eq!(api.get("/v1/semaphores/k").await.code(), (404, "semaphore_not_found"));
    for target in BOTH {
        let answer = api.post(target, r#"{"v":1,"client_id":"w","demand":[{"count":1}]}"#).await;
        assert_eq!(answer.code(), (404, "semaphore_not_found"), "{target}");
    }
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM pgsemaphore.usage")
        .fetch_one(db.pool())
        .await
        .expect("a count");
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn usage_of_a_key_with_a_policy_alone_is_zero() {
    let (_db, _holder, api) = holder().await;
    api.put("/v1/policies/a:*", r#"{"limit":100,"provisioning":"over","lease_extra_ratio":0.255}"#).await;
    let answer = api.get("/v1/semaphores/a:1").await;
    assert_eq!(
        answer.body,
        json!({
            "v": 1, "key": "a:1", "pattern": "a:*", "limit": 100, "extra": 25, "grants": 0, "leases": 0,
            "available": 100, "contended": false, "round": 0, "groups": [], "clients": [], "blocked": []
        })
    );
    assert_eq!(api.get("/v1/semaphores?prefix=a").await.body, json!({"v": 1, "semaphores": []}));
}

#[tokio::test]
async fn health_and_the_document() {
    let (_db, _holder, api) = holder().await;
    assert_eq!(api.get("/healthz").await.status, 200);
    until("it is ready", async || api.get("/readyz").await.status == 200).await;
    let document = api.get("/openapi.json").await.body;
    assert!(document["paths"]["/v1/semaphores/{key}/request"]["post"]["responses"]["409"].is_object());
}

#[tokio::test]
async fn every_name_is_kept_byte_for_byte() {
    let (_db, holder, _) = holder().await;
    let fast = json!({"limit": 1_000, "round_wait_ms": 0, "round_period_ms": 0});
    holder.policy("*", fast).await;
    let random: String = (0..64_u64).map(|n| format!("{:08x}", (n * 0x9E37_79B1) & 0xFFFF_FFFF)).collect();
    let names = [
        "caf\u{e9}",
        "cafe\u{301}",
        " a ",
        "\u{feff}a",
        "\u{200f}a",
        "../x",
        "a/b",
        "👩\u{200d}💻",
        "%2F",
        &random[..256],
    ];
    for name in names {
        let message = json!({"v": 1, "client_id": name, "demand": [{"group": name, "count": 2}]});
        let (status, reply) = holder.request(name, message).await;
        assert_eq!((status, &reply["grants"][0]["group"]), (200, &json!(name)), "{reply}");
        let usage = holder.usage(name).await;
        let of = |list: &str, field: &str| (usage[list][0][field].clone(), usage[list][0]["grants"].clone());
        assert_eq!(
            (&usage["key"], &usage["grants"], &usage["available"]),
            (&json!(name), &json!(2), &json!(998))
        );
        assert_eq!(of("groups", "group"), (json!(name), json!(2)), "{usage}");
        assert_eq!(of("clients", "client_id"), (json!(name), json!(2)), "{usage}");
    }
    let message = json!({"v": 1, "client_id": "w", "demand": [{"count": 1}]});
    assert_eq!(holder.request(&random, message).await.0, 200);
}

#[tokio::test]
async fn lists_of_keys_are_paged_bytewise() {
    let (_db, holder, api) = holder().await;
    holder.policy("*", json!({"limit": 3, "round_wait_ms": 0, "round_period_ms": 0})).await;
    for key in ["b", "a%", "a_", "a/", "B", "a"] {
        holder.request(key, json!({"v": 1, "client_id": "w", "demand": [{"count": 4}]})).await;
    }
    let mut found = Vec::new();
    let mut after = String::new();
    loop {
        let page = api.get(&format!("/v1/semaphores?limit=2&prefix=a&after={after}")).await.body;
        found.extend(page["semaphores"].as_array().expect("semaphores").clone());
        let Some(next) = page["next"].as_str() else { break };
        after = pgsemaphore_tests::encode(next);
    }
    let full =
        |key| json!({"key": key, "limit": 3, "grants": 3, "leases": 0, "available": 0, "contended": true});
    assert_eq!(found, ["a", "a%", "a/", "a_"].map(full));
}

#[tokio::test]
async fn long_lists_of_usage_are_cut_and_say_so() {
    let (db, holder, _) = holder().await;
    holder.policy("k", json!({"limit": 3})).await;
    sqlx::raw_sql(
        "INSERT INTO pgsemaphore_data.semaphores (key) VALUES ('k');
         INSERT INTO pgsemaphore_data.group_usage (key, grp) SELECT 'k', lpad(n::text, 4, '0') FROM generate_series(0, 1000) n",
    )
    .execute(db.pool())
    .await
    .expect("many groups");
    let usage = holder.usage("k").await;
    assert_eq!((usage["groups"].as_array().map(Vec::len), &usage["truncated"]), (Some(1000), &json!(true)));
    assert_eq!(usage["groups"][999]["group"], "0999");
}
