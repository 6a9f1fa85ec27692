//! Secrets are planted everywhere, everything is provoked, and all that is written is searched for them.

use pgsemaphore_tests::{Api, Authority, Db, Process, Serve, key_at, until, until_acquainted};
use queue_client::{Credentials, Endpoint, HttpTransport, Transport as _, wire::Message};
use sqlx::AssertSqlSafe;

/// Whatever may be wrong with a password in a URL, and in a log.
const PASSWORD: &str = "pl4nted@pw:/?#%&+\u{e9}x";
/// The same in a URL.
const ENCODED: &str = "pl4nted%40pw%3A%2F%3F%23%25%26%2B%C3%A9x";
const TOKENS: [&str; 4] = ["pl4nted-client", "pl4nted-reader", "pl4nted-admin", "pl4nted-wrong"];

/// All secrets have this in them, however they are escaped.
const MARK: &str = "pl4nted";

#[tokio::test]
async fn nothing_that_is_written_has_a_secret_in_it() {
    let db = Db::new().await;
    let role = format!("CREATE ROLE planted SUPERUSER LOGIN PASSWORD '{PASSWORD}'");
    // Roles are of the whole cluster, which lasts as long as this process.
    sqlx::raw_sql(AssertSqlSafe(role)).execute(db.pool()).await.expect("a role");
    let place = db.url().split_once('@').expect("a user").1;
    let url = format!("postgres://planted:{ENCODED}@{place}");
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new();
    let (certificate, key) = authority.issue(&["127.0.0.1"]).write(folder.path());
    let variables = [
        ("PGSEMAPHORE_LOG", "trace"),
        ("PGSEMAPHORE_DATABASE_URL", &url),
        ("PGSEMAPHORE_CLIENT_TOKEN", TOKENS[0]),
        ("PGSEMAPHORE_READER_TOKEN", TOKENS[1]),
        ("PGSEMAPHORE_ADMIN_TOKEN", TOKENS[2]),
        ("PGSEMAPHORE_TLS_CERT", certificate.to_str().expect("UTF-8")),
        ("PGSEMAPHORE_TLS_KEY", key.to_str().expect("UTF-8")),
    ];
    let encrypted = Serve::start_in(&[], &variables).await;
    let plain = Serve::start_in(&[], &variables[..5]).await;
    provoke_over_tls(encrypted.url(), authority.pem()).await;
    let answers = provoke(plain.url()).await;
    // The database goes away under it, and logins fail.
    let end = "ALTER ROLE planted PASSWORD 'other' NOLOGIN; \
               SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'planted'";
    sqlx::raw_sql(end).execute(db.pool()).await.expect("an end");
    until("that is noticed", async || Api::new(plain.url()).get("/readyz").await.status == 503).await;
    let _ = provoke(plain.url()).await;

    for (what, text) in [
        ("answers", answers),
        ("TLS, standard output", encrypted.stdout()),
        ("TLS, standard error", encrypted.stderr()),
        ("plain, standard output", plain.stdout()),
        ("plain, standard error", plain.stderr()),
    ] {
        assert!(!text.is_empty(), "{what}");
        clean(what, &text);
    }
    assert!(encrypted.stderr().contains("TRACE"), "it was as verbose as it can be");
}

/// Calls of every kind, with tokens in every place where somebody may put one; gives all answers.
async fn provoke(url: &str) -> String {
    let api = Api::new(url);
    let mut answers = String::new();
    for token in TOKENS {
        let api = api.with_token(token);
        for body in [r#"{"v":1,"client_id":"w","demand":[{"count":1}]}"#, "{", r#"{"v":1}"#] {
            answers += &format!("{:?}", api.post("/v1/semaphores/k/request", body).await);
            answers += &format!("{:?}", api.put("/v1/policies/*", r#"{"limit":5,"round_wait_ms":0}"#).await);
        }
        answers += &format!("{:?}", api.get("/v1/semaphores/k").await);
        answers += &format!("{:?}", api.get("/nope").await);
        let basic = format!("authorization: Basic {token}");
        answers += &format!("{:?}", Api::new(url).call("GET", "/v1/policies", &[&basic], b"").await);
    }
    answers
}

async fn provoke_over_tls(url: &str, authority: &str) {
    for token in TOKENS {
        let credentials = Credentials::default().authorities(authority).token(token);
        let transport = HttpTransport::new(&[url], &credentials).expect("a transport");
        let _ = transport.call("k", Endpoint::Sync, &Message::new("w")).await;
    }
}

#[tokio::test]
async fn what_holders_show_each_other_is_in_no_log() {
    let db = Db::new().await;
    let variables = [
        ("PGSEMAPHORE_LOG", "trace"),
        ("PGSEMAPHORE_DATABASE_URL", db.url()),
        ("PGSEMAPHORE_CLIENT_TOKEN", TOKENS[0]),
        ("PGSEMAPHORE_HOLDER_TOKEN", "pl4nted-holder"),
    ];
    let holders = [Serve::start_in(&[], &variables).await, Serve::start_in(&[], &variables).await];
    until_acquainted(db.pool(), 2).await;
    let key = key_at(db.pool(), holders[0].url()).await;
    let target = format!("/v1/semaphores/{key}/request");
    until("one is passed on", async || {
        let api = Api::new(holders[1].url()).with_token(TOKENS[0]);
        assert_eq!(
            api.post(&target, r#"{"v":1,"client_id":"w"}"#).await.code(),
            (404, "semaphore_not_found")
        );
        holders[0].stderr().contains("h2::")
    })
    .await;
    for holder in holders {
        clean("a holder's log", &holder.stderr());
    }
}

#[tokio::test]
async fn commands_that_fail_tell_no_password() {
    let urls = [
        format!("postgres://me:{ENCODED}@127.0.0.1:1/jobs"),
        format!("postgres://me:{ENCODED}@127.0.0.1:1/jobs?sslmode=verify-full&sslrootcert=/nonexistent"),
        format!("postgres://me:{ENCODED}@127.0.0.1:1/jobs?{MARK}={MARK}"),
        format!("postgres://me:{PASSWORD}@127.0.0.1:1/jobs"),
        format!("postgres://me:12/{MARK}@127.0.0.1:1/jobs"),
        format!("postgres://me:{ENCODED}@127.0.0.1:none/jobs"),
        MARK.to_owned(),
    ];
    for url in &urls {
        let variables = [
            ("PGSEMAPHORE_LOG", "trace"),
            ("PGSEMAPHORE_DATABASE_URL", url.as_str()),
            ("PGSEMAPHORE_DATABASE_PASSWORD", PASSWORD),
        ];
        for arguments in [&["usage"][..], &["migrate"], &["serve", "--listen", "127.0.0.1:0"]] {
            let (code, stdout, stderr) = Process::run_in(arguments, &variables).await;
            assert!(code == 1 || code == 2, "{url}: {code}");
            clean(url, &(stdout + &stderr));
        }
    }
}

#[tokio::test]
async fn help_shows_no_values_of_secrets() {
    let variables = [
        ("PGSEMAPHORE_DATABASE_URL", ENCODED),
        ("DATABASE_URL", ENCODED),
        ("PGSEMAPHORE_DATABASE_PASSWORD", PASSWORD),
        ("PGSEMAPHORE_CLIENT_TOKEN", TOKENS[0]),
        ("PGSEMAPHORE_READER_TOKEN", TOKENS[1]),
        ("PGSEMAPHORE_ADMIN_TOKEN", TOKENS[2]),
    ];
    for arguments in [&["--help"][..], &["serve", "--help"], &["usage", "--help"], &["serve", "-h"]] {
        let (code, stdout, stderr) = Process::run_in(arguments, &variables).await;
        assert_eq!(code, 0);
        clean("help", &(stdout + &stderr));
    }
}

fn clean(what: &str, text: &str) {
    let found = text.lines().find(|line| line.contains(MARK));
    assert_eq!(found, None, "{what}");
}
