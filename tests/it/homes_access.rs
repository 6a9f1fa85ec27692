//! Requests that are passed on between holders that not everybody may call.

use std::path::Path;

use pgsemaphore_tests::{Api, Authority, Db, Process, Proxy, Serve, Worker, key_at, until, until_acquainted};
use serde_json::json;

const TOKENS: [(&str, &str); 2] = [
    ("PGSEMAPHORE_CLIENT_TOKEN", "for-all\nfor-some k:*\nfor-none other:*"),
    ("PGSEMAPHORE_ADMIN_TOKEN", "root"),
];
const ASK: &str = r#"{"v":1,"client_id":"w","demand":[{"count":1}]}"#;

fn with(holder_token: &'static str) -> Vec<(&'static str, &'static str)> {
    TOKENS.into_iter().chain([("PGSEMAPHORE_HOLDER_TOKEN", holder_token)]).collect()
}

/// A holder that others reach through a proxy, which counts.
async fn behind_proxy(
    db: &Db,
    options: &[&str],
    variables: &[(&str, &str)],
    scheme: &str,
) -> (Serve, Proxy, String) {
    let listen = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listen.local_addr().expect("an address").to_string();
    drop(listen);
    let proxy = Proxy::before(&address).await;
    let advertised = proxy.through(&format!("{scheme}://{address}"));
    let all = ["--database-url", db.url(), "--listen", &address, "--advertise-url", &advertised];
    let serve = Serve::start_in(&[&all[..], options].concat(), variables).await;
    (serve, proxy, advertised)
}

async fn serve(db: &Db, variables: &[(&str, &str)]) -> Serve {
    Serve::start_in(&["--database-url", db.url()], variables).await
}

async fn set_policy(db: &Db) {
    let policy =
        json!({"limit": 100, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000});
    let query = sqlx::query("SELECT pgsemaphore.configure('*', $1)").bind(policy).execute(db.pool());
    query.await.expect("a policy");
}

async fn ask(url: &str, token: &str, key: &str) -> u16 {
    let target = format!("/v1/semaphores/{key}/request");
    Api::new(url).with_token(token).post(&target, ASK).await.status
}

#[tokio::test]
async fn the_first_holder_checks_the_caller_and_the_home_the_holder() {
    let db = Db::new().await;
    set_policy(&db).await;
    // While tokens are replaced the one that is shown differs; each accepts both.
    let (home, between, advertised) = behind_proxy(&db, &[], &with("new\nold"), "http").await;
    let other = serve(&db, &with("old\nnew")).await;
    until_acquainted(db.pool(), 2).await;
    let key = key_at(db.pool(), &advertised).await;
    until("they are passed on", async || {
        for (token, status) in [("for-all", 200), ("for-some", 200), ("root", 200), ("for-none", 403)] {
            assert_eq!(ask(other.url(), token, &key).await, status, "{token}");
        }
        between.accepted() > 0
    })
    .await;
    for token in ["old", "wrong"] {
        let refused = ask(other.url(), token, &key).await;
        assert!([401, 403].contains(&refused), "a holder's token is not a client's: {refused}");
    }
    assert!(!other.stderr().contains("does not answer"), "{}", other.stderr());
    drop(home);
}

#[tokio::test]
async fn only_holders_pass_requests_on() {
    let db = Db::new().await;
    set_policy(&db).await;
    let holder = serve(&db, &with("between-us")).await;
    let (name, database): (String, String) =
        sqlx::query_as("SELECT holder, database FROM pgsemaphore.holders")
            .fetch_one(db.pool())
            .await
            .expect("the holder");
    let [home, in_database] =
        [format!("pgsemaphore-home: {name}"), format!("pgsemaphore-database: {database}")];
    let hop = [&home[..], &in_database, "pgsemaphore-waited-ms: 50000"];
    let forged = [&hop[..], &["content-type: application/json"]].concat();
    let api = Api::new(holder.url());
    let ask = async |token: &str, target: &str| {
        api.with_token(token).call("POST", target, &forged, ASK.as_bytes()).await
    };
    for token in ["for-all", "for-some"] {
        let answer = ask(token, "/v1/semaphores/k%3A1/request").await;
        assert_eq!((answer.status, answer.header("pgsemaphore-home")), (200, None));
        assert!(answer.body["held_ms"].as_u64().is_some_and(|held| held < 50_000), "{answer:?}");
    }
    assert_eq!(ask("for-none", "/v1/semaphores/k%3A1/request").await.status, 403);
    let passed_on = ask("between-us", "/v1/semaphores/k%3A1/request").await;
    assert_eq!((passed_on.status, passed_on.header("pgsemaphore-home")), (200, Some(&name[..])));
    assert!(passed_on.body["held_ms"].as_u64().is_some_and(|held| held >= 50_000), "{passed_on:?}");
    for target in ["/v1/semaphores/k%3A1/sync", "/v1/clients/w/takeover"] {
        assert_eq!(ask("between-us", target).await.code(), (403, "forbidden"), "nothing but requests");
    }
    for target in ["/v1/semaphores", "/v1/policies/*"] {
        assert_eq!(api.with_token("between-us").get(target).await.code(), (403, "forbidden"));
    }
}

#[tokio::test]
async fn without_a_token_between_holders_each_serves_its_own() {
    let db = Db::new().await;
    set_policy(&db).await;
    let (_home, between, advertised) = behind_proxy(&db, &[], &TOKENS, "http").await;
    let other = serve(&db, &TOKENS).await;
    until_acquainted(db.pool(), 2).await;
    let key = key_at(db.pool(), &advertised).await;
    until("it says why", async || {
        assert_eq!(ask(other.url(), "for-all", &key).await, 200);
        other.stderr().contains("--holder-token-file")
    })
    .await;
    assert_eq!(between.accepted(), 0);
}

/// Their tokens differ by mistake: no client notices.
#[tokio::test]
async fn a_home_that_does_not_know_the_token_is_passed_over() {
    let db = Db::new().await;
    set_policy(&db).await;
    let (_home, between, advertised) = behind_proxy(&db, &[], &with("one"), "http").await;
    let other = serve(&db, &with("another")).await;
    until_acquainted(db.pool(), 2).await;
    let key = key_at(db.pool(), &advertised).await;
    until("it says so", async || {
        assert_eq!(ask(other.url(), "for-all", &key).await, 200);
        other.stderr().contains("not from it")
    })
    .await;
    assert!(between.accepted() > 0);
}

#[tokio::test]
async fn a_token_between_holders_alone_is_a_mistake() {
    let (code, _, stderr) = Process::run_in(["serve"], &[("PGSEMAPHORE_HOLDER_TOKEN", "t0ken")]).await;
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("--holder-token-file") && !stderr.contains("t0ken"), "{stderr}");
    for url in
        ["ftp://h", "h:1", "http://", "http://u:p@h", "http://h?q", "http://h/path", "http://0.0.0.0:1"]
    {
        let (code, _, stderr) = Process::run(["serve", "--advertise-url", url]).await;
        assert_eq!(code, 2, "{url}: {stderr}");
    }
}

/// Files of a holder whose certificate is one of the authority.
fn certified(folder: &Path, authority: &Authority) -> [String; 4] {
    let (certificate, key) = authority.issue(&["127.0.0.1"]).write(folder);
    let ca = folder.join("ca.pem");
    std::fs::write(&ca, authority.pem()).expect("a file");
    [certificate, key, ca.clone(), ca].map(|file| file.to_str().expect("UTF-8").to_owned())
}

#[tokio::test]
async fn holders_show_each_other_their_certificates() {
    let db = Db::new().await;
    set_policy(&db).await;
    let authority = Authority::new();
    let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    let names = ["--tls-cert", "--tls-key", "--tls-client-ca", "--holder-ca"];
    let [one, two] = folders.each_ref().map(|folder| certified(folder.path(), &authority));
    let options = |files: &[String; 4]| -> Vec<String> {
        names.iter().zip(files).flat_map(|(name, file)| [(*name).to_owned(), file.clone()]).collect()
    };
    let [one, two] = [options(&one), options(&two)];
    let one: Vec<&str> = one.iter().map(String::as_str).collect();
    let two: Vec<&str> = two.iter().map(String::as_str).collect();
    let (_home, between, advertised) = behind_proxy(&db, &one, &with("t"), "https").await;
    let other = Serve::start_in(&[&["--database-url", db.url()], &two[..]].concat(), &with("t")).await;
    until_acquainted(db.pool(), 2).await;
    let key = key_at(db.pool(), &advertised).await;

    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let own = authority.issue(&["worker"]);
    let identity = reqwest::Identity::from_pem(format!("{}{}", own.pem, own.key_pem).as_bytes());
    let http = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(authority.pem().as_bytes()).expect("a certificate")])
        .identity(identity.expect("an identity"))
        .build()
        .expect("an HTTP client");
    let target = format!("{}/v1/semaphores/{}/request", other.url(), pgsemaphore_tests::encode(&key));
    until("it is passed on", async || {
        let ask = http.post(&target).bearer_auth("for-all").json(&Worker::new("w").wants(1));
        assert_eq!(ask.send().await.expect("an answer").status(), 200);
        between.accepted() > 0
    })
    .await;
    assert!(!other.stderr().contains("does not answer"), "{}", other.stderr());
}
