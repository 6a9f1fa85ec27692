//! O-09: what a holder does with the row of another holder that somebody made up.

use std::time::Duration;

use pgsemaphore_tests::{Api, Authority, Db, Serve, key_at, until};
use sqlx::PgPool;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

const TOKENS: [(&str, &str); 2] =
    [("PGSEMAPHORE_CLIENT_TOKEN", "t0ken"), ("PGSEMAPHORE_HOLDER_TOKEN", "between")];
const ASK: &str = r#"{"v":1,"client_id":"w","demand":[{"count":1}]}"#;

/// A row of a holder that does not run, which stays alive until this is dropped.
struct Forged(JoinHandle<()>);

impl Drop for Forged {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn forge(pool: &PgPool, url: &str) -> Forged {
    let (pool, url) = (pool.clone(), url.to_owned());
    Forged(tokio::spawn(async move {
        loop {
            let write = "
                INSERT INTO pgsemaphore_data.holders (holder, url, database, started_at, last_heartbeat)
                VALUES ('f0f0f0f0f0f0f0f0', $1, pgsemaphore_data.this_database(), clock_timestamp(), clock_timestamp())
                ON CONFLICT (holder) DO UPDATE SET last_heartbeat = excluded.last_heartbeat";
            sqlx::query(write).bind(&url).execute(&pool).await.expect("a row");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }))
}

/// Asks for a permit of the key whose home the row claims to be, until the holder says in its log why it calls nobody
/// there. Nobody was called then.
async fn is_not_called(options: &[&str], url_of: impl Fn(&str) -> String, why: &str) {
    let db = Db::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = url_of(&listener.local_addr().expect("an address").to_string());
    let _forged = forge(db.pool(), &url);
    sqlx::query("SELECT pgsemaphore.set_limit('*', 1000)").execute(db.pool()).await.expect("a policy");
    let holder = Serve::start_in(&[&["--database-url", db.url()], options].concat(), &TOKENS).await;
    let key = key_at(db.pool(), &url).await;
    until("it says why", async || {
        let target = format!("/v1/semaphores/{key}/request");
        assert_eq!(Api::new(holder.url()).with_token("t0ken").post(&target, ASK).await.status, 200);
        holder.stderr().contains(why)
    })
    .await;
    let called = futures_util::future::FutureExt::now_or_never(listener.accept());
    assert!(called.is_none(), "{url} was called");
}

#[tokio::test]
async fn with_an_authority_neither_call_nor_token_goes_over_http() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, Authority::new().pem()).expect("a file");
    let options = ["--holder-ca", file.to_str().expect("UTF-8")];
    is_not_called(&options, |address| format!("http://{address}"), "by https alone").await;
}

#[tokio::test]
async fn an_address_with_more_than_host_and_port_is_not_called() {
    is_not_called(&[], |address| format!("http://{address}/elsewhere?"), "--advertise-url must be").await;
    is_not_called(&[], |address| format!("http://user@{address}"), "--advertise-url must be").await;
}
