//! Who may do what: every route, called with every kind of token.

use pgsemaphore::access::{Access, Scope, Source, Text};
use pgsemaphore::http;
use pgsemaphore_tests::{Answer, Api, Db, InProcess, Process, Serve, Worker, message, until};
use queue_client::QueueClient;
use queue_client::wire::Code;
use serde_json::json;

const CLIENT: &str = "client-token";
const READER: &str = "reader-token";
const ADMIN: &str = "admin-token";
const HOLDER: &str = "holder-token";

/// Every operation, and who may call it. A new route needs a line here.
const TABLE: [(&str, &str, &[&str]); 42] = [
    ("GET", "/v1/semaphores", &[READER, ADMIN]),
    ("HEAD", "/v1/semaphores", &[READER, ADMIN]),
    ("GET", "/v1/semaphores/", &[READER, ADMIN]),
    ("HEAD", "/v1/semaphores/", &[READER, ADMIN]),
    ("GET", "/v1/semaphores/{key}", &[READER, ADMIN]),
    ("HEAD", "/v1/semaphores/{key}", &[READER, ADMIN]),
    ("POST", "/v1/semaphores//request", &[CLIENT, ADMIN]),
    ("POST", "/v1/semaphores/{key}/request", &[CLIENT, ADMIN]),
    ("POST", "/v1/semaphores//sync", &[CLIENT, ADMIN]),
    ("POST", "/v1/semaphores/{key}/sync", &[CLIENT, ADMIN]),
    ("POST", "/v1/semaphores//clients//settle", &[ADMIN]),
    ("POST", "/v1/semaphores//clients/{client_id}/settle", &[ADMIN]),
    ("POST", "/v1/semaphores/{key}/clients//settle", &[ADMIN]),
    ("POST", "/v1/semaphores/{key}/clients/{client_id}/settle", &[ADMIN]),
    ("POST", "/v1/clients//takeover", &[CLIENT, ADMIN]),
    ("POST", "/v1/clients/{client_id}/takeover", &[CLIENT, ADMIN]),
    ("GET", "/v1/policies", &[READER, ADMIN]),
    ("HEAD", "/v1/policies", &[READER, ADMIN]),
    ("GET", "/v1/policies/", &[READER, ADMIN]),
    ("HEAD", "/v1/policies/", &[READER, ADMIN]),
    ("PUT", "/v1/policies/", &[ADMIN]),
    ("DELETE", "/v1/policies/", &[ADMIN]),
    ("GET", "/v1/policies/{pattern}", &[READER, ADMIN]),
    ("HEAD", "/v1/policies/{pattern}", &[READER, ADMIN]),
    ("PUT", "/v1/policies/{pattern}", &[ADMIN]),
    ("DELETE", "/v1/policies/{pattern}", &[ADMIN]),
    ("PUT", "/v1/policies//groups/", &[ADMIN]),
    ("DELETE", "/v1/policies//groups/", &[ADMIN]),
    ("PUT", "/v1/policies//groups/{group}", &[ADMIN]),
    ("DELETE", "/v1/policies//groups/{group}", &[ADMIN]),
    ("PUT", "/v1/policies/{pattern}/groups/", &[ADMIN]),
    ("DELETE", "/v1/policies/{pattern}/groups/", &[ADMIN]),
    ("PUT", "/v1/policies/{pattern}/groups/{group}", &[ADMIN]),
    ("DELETE", "/v1/policies/{pattern}/groups/{group}", &[ADMIN]),
    ("GET", "/openapi.json", &[READER, ADMIN]),
    ("HEAD", "/openapi.json", &[READER, ADMIN]),
    ("GET", "/metrics", &[READER, ADMIN]),
    ("HEAD", "/metrics", &[READER, ADMIN]),
    ("GET", "/healthz", EVERYBODY),
    ("HEAD", "/healthz", EVERYBODY),
    ("GET", "/readyz", EVERYBODY),
    ("HEAD", "/readyz", EVERYBODY),
];

/// Probes have no token.
const EVERYBODY: &[&str] = &["", "wrong", CLIENT, READER, ADMIN, HOLDER];

async fn guarded(db: &Db, tokens: &[(Scope, &str)]) -> (InProcess, Api) {
    let source = |&(scope, value): &(Scope, &str)| {
        let text = Text::Variable { name: "TOKENS", value: value.to_owned() };
        Source { scope, text }
    };
    let access = Access::of(tokens.iter().map(source).collect()).await.expect("tokens");
    let options = http::Options { access, ..http::Options::default() };
    let holder = InProcess::start_guarded(db.url(), options).await;
    let api = Api::new(holder.url());
    (holder, api)
}

async fn with_all_scopes(db: &Db) -> (InProcess, Api) {
    let tokens =
        [(Scope::Client, CLIENT), (Scope::Reader, READER), (Scope::Admin, ADMIN), (Scope::Holder, HOLDER)];
    guarded(db, &tokens).await
}

#[tokio::test]
async fn every_operation_is_for_the_scopes_that_the_table_says() {
    let db = Db::new().await;
    let (_holder, api) = with_all_scopes(&db).await;
    for (method, route, allowed) in TABLE {
        let target = route
            .replace("{key}", "k")
            .replace("{pattern}", "p")
            .replace("{group}", "g")
            .replace("{client_id}", "w");
        let body = if method == "PUT" { r#"{"limit":1}"# } else { r#"{"v":1,"client_id":"w"}"# };
        for token in EVERYBODY {
            let api = if token.is_empty() { api.clone() } else { api.with_token(token) };
            let answer = api.call(method, &target, &[], body.as_bytes()).await;
            let what = format!("{method} {route} with {token:?}: {answer:?}");
            if allowed.contains(token) {
                assert!(![401, 403, 404, 405].contains(&answer.status) || is_not_there(&answer), "{what}");
            } else if token.is_empty() || *token == "wrong" {
                assert_eq!(
                    (answer.status, answer.header("www-authenticate")),
                    (401, Some("bearer")),
                    "{what}"
                );
                assert!(method == "HEAD" || answer.code() == (401, "unauthenticated"), "{what}");
            } else {
                assert_eq!(answer.status, 403, "{what}");
                assert!(method == "HEAD" || answer.code() == (403, "forbidden"), "{what}");
            }
        }
    }
}

/// The route was there, and the caller let in.
fn is_not_there(answer: &Answer) -> bool {
    answer.status == 404 && answer.code().1 != "not_found"
}

#[tokio::test]
async fn the_table_has_every_route() {
    let db = Db::new().await;
    let (_holder, api) = with_all_scopes(&db).await;
    for route in http::paths() {
        let target = route
            .replace("{key}", "k")
            .replace("{pattern}", "p")
            .replace("{group}", "g")
            .replace("{client_id}", "w");
        let answer = api.call("PATCH", &target, &[], b"").await;
        let allow = answer.header("allow").unwrap_or_else(|| panic!("{route}: {answer:?}"));
        for method in allow.split(',') {
            let known = |row: &(&str, &str, &[&str])| row.0.eq_ignore_ascii_case(method) && row.1 == route;
            assert!(TABLE.iter().any(known), "{method} {route} is missing in the table");
        }
    }
    assert_eq!(api.get("/v1/none").await.code(), (404, "not_found"), "what there is not is no secret");
}

#[tokio::test]
async fn without_tokens_everybody_may_do_everything() {
    let db = Db::new().await;
    let (_holder, api) = guarded(&db, &[]).await;
    for api in [api.clone(), api.with_token("whatever")] {
        assert_eq!(api.put("/v1/policies/k", r#"{"limit":1}"#).await.status, 200);
    }
}

#[tokio::test]
async fn a_token_may_be_restricted_to_keys() {
    let db = Db::new().await;
    let tokens = [(Scope::Client, "limited a:* b%20c"), (Scope::Client, CLIENT)];
    let (holder, api) = guarded(&db, &[tokens[0], tokens[1], (Scope::Admin, ADMIN)]).await;
    let admin = api.with_token(ADMIN);
    admin.put("/v1/policies/*", r#"{"limit":5,"round_wait_ms":0,"grant_timeout_ms":3600000}"#).await;
    let body = r#"{"v":1,"client_id":"w","demand":[{"count":1}]}"#;
    for (key, status) in [("a%3A1", 200), ("a%3A", 200), ("b%20c", 200), ("b%20cd", 403), ("a", 403)] {
        for call in ["request", "sync"] {
            let target = format!("/v1/semaphores/{key}/{call}");
            let answer = api.with_token("limited").post(&target, body).await;
            assert_eq!(answer.status, status, "{key}: {answer:?}");
            if status == 403 {
                assert_eq!((answer.code(), answer.field()), ((403, "forbidden"), (403, "key")));
            }
            assert_eq!(api.with_token(CLIENT).post(&target, body).await.status, 200);
        }
    }
    assert_eq!(admin.get("/v1/semaphores/a").await.body["clients"][0]["client_id"], "w");
    let successor = r#"{"v":1,"generation":9,"process":"p","resume":false}"#;
    let taken = api.with_token("limited").post("/v1/clients/w/takeover", successor).await;
    let keys = taken.body["keys"].as_array().expect("keys").iter().map(|taken| taken["key"].clone());
    assert_eq!(keys.collect::<Vec<_>>(), ["a:", "a:1", "b c"], "no other key of this client is touched");
    drop(holder);
}

#[tokio::test]
async fn a_foreign_block_is_answered_like_an_unknown_one() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("*", json!({"limit": 9, "round_wait_ms": 0, "provisioning": "strict"})).await;
    let (mut owner, mut thief) = (Worker::new("owner"), Worker::new("thief"));
    let caller = holder.caller();
    owner.hear(&caller.insist("k", &owner.wants(2)).await);
    thief.hear(&caller.insist("k", &thief.wants(1)).await);
    let before = holder.usage("k").await;
    let id = owner.blocks.keys().next().expect("a block").clone();
    let claim = |id: &str| {
        let grant = json!([{"id": id, "claimed": 2, "released": 2}]);
        let lease = json!([{"id": id, "drawn": 2, "released": 2, "stopped": true}]);
        message("thief", json!({"seen": thief.seen, "grants": grant, "leases": lease}))
    };
    let (status, stolen) = holder.sync("k", claim(&id)).await;
    let (_, unknown) = holder.sync("k", claim("1-1")).await;
    assert_eq!(status, 200, "{stolen}");
    for kind in ["grants", "leases"] {
        let verdict = |reply: &serde_json::Value| {
            let mut verdict = reply[kind][0].clone();
            verdict["id"].take();
            verdict
        };
        assert_eq!(verdict(&stolen), verdict(&unknown), "{stolen} {unknown}");
    }
    assert_eq!(holder.usage("k").await["grants"], before["grants"]);
    owner.claim();
    owner.hear(&caller.insist_sync("k", &owner.reports()).await);
    assert_eq!(owner.running(), 2);
}

/// Writes a file as a secret that is mounted is: another one takes its place.
fn replace(file: &std::path::Path, text: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, text).expect("a file");
    std::fs::rename(&new, file).expect("in its place");
}

#[tokio::test]
async fn tokens_are_replaced_while_the_holder_runs() {
    let db = Db::new().await;
    let folder = tempfile::tempdir().expect("a folder");
    let [client, admin] = ["client", "admin"].map(|name| folder.path().join(name));
    replace(&client, "old\n");
    replace(&admin, "root\n");
    let [client_option, admin_option] = [&client, &admin].map(|file| file.to_str().expect("UTF-8"));
    let options = ["--client-token-file", client_option, "--admin-token-file", admin_option];
    let variables = [("PGSEMAPHORE_CLIENT_TOKEN", "from-the-environment")];
    let options = [&["--database-url", db.url()], &options[..]].concat();
    let holder = Serve::start_in(&options, &variables).await;
    let api = Api::new(holder.url());
    let root = api.with_token("root");
    assert_eq!(root.put("/v1/policies/*", r#"{"limit":5,"round_wait_ms":0}"#).await.status, 200);
    let status = async |token: &str| {
        let body = r#"{"v":1,"client_id":"w"}"#;
        api.with_token(token).post("/v1/semaphores/k/sync", body).await.status
    };
    assert_eq!((status("old").await, status("from-the-environment").await), (200, 200));
    let job_queue = QueueClient::builder().url(holder.url()).token_file(&client).build().expect("a client");
    drop(job_queue.semaphore("k").acquire("").await.expect("a permit"));

    replace(&client, "old\nnew\n");
    until("both are valid", async || status("new").await == 200).await;
    assert_eq!(status("old").await, 200);

    replace(&client, "# nothing\n\n");
    until("the mistake is told", async || holder.stderr().contains(client_option)).await;
    assert_eq!((status("old").await, status("new").await), (200, 200), "a mistake changes nothing");

    replace(&client, "new");
    until("the old one is not valid", async || status("old").await == 401).await;
    assert_eq!((status("new").await, status("from-the-environment").await), (200, 200));
    drop(job_queue.semaphore("k").acquire("").await.expect("a permit, by the new token"));
}

#[tokio::test]
async fn the_client_crate_says_why_it_is_refused() {
    let db = Db::new().await;
    let (holder, _) = with_all_scopes(&db).await;
    for (token, code) in [
        (None, Code::Unauthenticated),
        (Some("wrong"), Code::Unauthenticated),
        (Some(READER), Code::Forbidden),
    ] {
        let mut client = QueueClient::builder().url(holder.url());
        if let Some(token) = token {
            client = client.token(token);
        }
        let error = client.build().expect("a client").semaphore("k").acquire("").await.expect_err("refused");
        let queue_client::AcquireError::Refused(problem) = &error else { panic!("{error:?}") };
        assert_eq!(problem.code, code);
        assert!(error.to_string().contains("token") && !error.to_string().contains("wrong"), "{error}");
    }
}

#[tokio::test]
async fn mistakes_with_tokens_and_certificates_exit_with_2_and_name_the_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    let name = file.to_str().expect("UTF-8");
    let serve = ["serve", "--listen", "127.0.0.1:0", "--database-url", "postgres://127.0.0.1:1/none"];
    for (content, hint) in
        [("", "no token"), ("\n", "no token"), ("two words", "line 1"), ("a\nsecr\u{e9}t", "line 2")]
    {
        std::fs::write(&file, content).expect("a file");
        let (code, _, stderr) = Process::run([&serve[..], &["--admin-token-file", name]].concat()).await;
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains(name) && stderr.contains(hint) && !stderr.contains("secr"), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    for option in ["--client-token-file", "--database-password-file"] {
        let (code, _, stderr) = Process::run([&serve[..], &[option, "/nonexistent"]].concat()).await;
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains("/nonexistent"), "{stderr}");
    }
    let (code, _, stderr) = Process::run_in(serve, &[("PGSEMAPHORE_READER_TOKEN", "")]).await;
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("PGSEMAPHORE_READER_TOKEN"), "{stderr}");

    std::fs::write(&file, "secret").expect("a file");
    let (code, _, stderr) =
        Process::run([&serve[..], &["--tls-cert", name, "--tls-key", name]].concat()).await;
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains(name) && stderr.contains("PEM") && !stderr.contains("secret"), "{stderr}");
    let (code, _, stderr) = Process::run([&serve[..], &["--tls-cert", name]].concat()).await;
    assert_eq!(code, 2, "{stderr}");
}

#[tokio::test]
async fn with_tokens_a_holder_may_be_reached_from_everywhere() {
    let db = Db::new().await;
    let options = ["--database-url", db.url(), "--listen", "0.0.0.0:0"];
    let holder = Serve::start_in(&options, &[("PGSEMAPHORE_ADMIN_TOKEN", "root\n")]).await;
    let api = Api::new(&holder.url().replace("0.0.0.0", "127.0.0.1"));
    assert_eq!(api.get("/v1/semaphores").await.status, 401);
    assert_eq!(api.with_token("root").get("/v1/semaphores").await.status, 200);
    assert!(holder.stderr().contains("--tls-cert"), "{}", holder.stderr());
}
