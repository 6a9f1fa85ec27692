//! Encrypted connections: between clients and holders, and between holders and PostgreSQL.

use std::path::Path;

use pgsemaphore::embedded::{Embedded, Options};
use pgsemaphore_tests::{Authority, Certificate, Db, Process, Serve, until};
use queue_client::wire::{Code, Message};
use queue_client::{CallError, Credentials, Endpoint, HttpTransport, QueueClient, Transport as _};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// A holder with this certificate, and other options.
async fn holder(db: &Db, certificate: &Certificate, folder: &Path, options: &[&str]) -> Serve {
    let (certificate, key) = certificate.write(folder);
    let [certificate, key] = [&certificate, &key].map(|file| file.to_str().expect("UTF-8"));
    let tls = ["--database-url", db.url(), "--tls-cert", certificate, "--tls-key", key];
    Serve::with_options(&[&tls[..], options].concat()).await
}

/// A caller of `/healthz` and more, that trusts this authority.
fn http(authority: &Authority, certificate: Option<&Certificate>) -> reqwest::Client {
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let root = reqwest::Certificate::from_pem(authority.pem().as_bytes()).expect("a certificate");
    let mut http = reqwest::Client::builder().tls_certs_only([root]).pool_max_idle_per_host(0);
    if let Some(certificate) = certificate {
        let both = format!("{}{}", certificate.pem, certificate.key_pem);
        http = http.identity(reqwest::Identity::from_pem(both.as_bytes()).expect("an identity"));
    }
    http.build().expect("an HTTP client")
}

async fn sync(url: &str, credentials: &Credentials) -> Result<u64, CallError> {
    let transport = HttpTransport::new(&[url], credentials).expect("a transport");
    transport.call("k", Endpoint::Sync, &Message::new("w")).await.map(|reply| reply.round)
}

#[tokio::test]
async fn a_client_talks_to_the_holder_whose_authority_it_trusts() {
    let db = Db::new().await;
    let folder = tempfile::tempdir().expect("a folder");
    let (authority, other) = (Authority::new(), Authority::new());
    let holder = holder(&db, &authority.issue(&["127.0.0.1"]), folder.path(), &[]).await;
    assert!(holder.url().starts_with("https://127.0.0.1:"), "{}", holder.url());
    let answer =
        http(&authority, None).get(format!("{}/readyz", holder.url())).send().await.expect("an answer");
    assert_eq!((answer.status().as_u16(), answer.version()), (200, reqwest::Version::HTTP_2));
    let policy = http(&authority, None).put(format!("{}/v1/policies/*", holder.url()));
    let policy = policy.body(r#"{"limit":5,"round_wait_ms":0}"#).send().await.expect("an answer");
    assert_eq!(policy.status(), 200);

    let client =
        QueueClient::builder().url(holder.url()).authorities(authority.pem()).build().expect("a client");
    drop(client.semaphore("k").acquire("").await.expect("a permit"));
    client.drain().await.expect("drained");

    for wrong in [Credentials::default(), Credentials::default().authorities(other.pem())] {
        let error = sync(holder.url(), &wrong).await.expect_err("nobody knows this authority");
        assert!(matches!(error, CallError::Unreachable(_)), "{error:?}");
    }
    let in_the_clear = holder.url().replace("https", "http");
    sync(&in_the_clear, &Credentials::default()).await.expect_err("TLS only");
}

#[tokio::test]
async fn certificates_are_replaced_while_the_holder_runs() {
    let db = Db::new().await;
    let folder = tempfile::tempdir().expect("a folder");
    let (old, new) = (Authority::new(), Authority::new());
    let holder = holder(&db, &old.issue(&["127.0.0.1"]), folder.path(), &[]).await;
    let url = format!("{}/healthz", holder.url());
    let accepted = async |authority: &Authority| http(authority, None).get(&url).send().await.is_ok();
    assert_eq!((accepted(&old).await, accepted(&new).await), (true, false));

    let certificate = new.issue(&["127.0.0.1"]);
    std::fs::write(folder.path().join("cert.pem"), &certificate.pem).expect("a file");
    until("the mistake is told", async || holder.stderr().contains("key.pem")).await;
    assert!(accepted(&old).await, "a certificate without its key changes nothing");

    certificate.write(folder.path());
    until("the new one is in use", async || accepted(&new).await).await;
    assert!(!accepted(&old).await);
}

#[tokio::test]
async fn callers_may_have_to_show_a_certificate() {
    let db = Db::new().await;
    let folder = tempfile::tempdir().expect("a folder");
    let (authority, clients, other) = (Authority::new(), Authority::new(), Authority::new());
    let ca = folder.path().join("clients.pem");
    std::fs::write(&ca, clients.pem()).expect("a file");
    let options = ["--tls-client-ca", ca.to_str().expect("UTF-8")];
    let holder = holder(&db, &authority.issue(&["127.0.0.1"]), folder.path(), &options).await;

    let probe = http(&authority, None).get(format!("{}/readyz", holder.url())).send().await;
    assert_eq!(probe.expect("an answer").status(), 200, "probes need none");
    let trusting = Credentials::default().authorities(authority.pem());
    let Err(CallError::Refused(problem)) = sync(holder.url(), &trusting).await else { panic!("refused") };
    assert_eq!(problem.code, Code::Unauthenticated);
    assert!(problem.detail.contains("certificate"), "{}", problem.detail);

    let known = clients.issue(&["worker"]);
    let listing = http(&authority, Some(&known)).get(format!("{}/v1/semaphores", holder.url())).send().await;
    assert_eq!(listing.expect("an answer").status(), 200);
    let shown = trusting.clone().certificate(known.pem, known.key_pem);
    let error = sync(holder.url(), &shown).await.expect_err("there is no policy");
    assert!(matches!(error, CallError::NotFound(_)), "{error:?}");

    let foreign = other.issue(&["worker"]);
    let error = sync(holder.url(), &trusting.certificate(foreign.pem, foreign.key_pem)).await;
    assert!(matches!(error, Err(CallError::Unreachable(_))), "{error:?}");
}

/// A cluster that speaks TLS, by a certificate for `localhost`.
async fn encrypted_cluster(authority: &Authority) -> Embedded {
    let start = || Embedded::start(&Options::temporary());
    let cluster =
        tokio::task::spawn_blocking(start).await.expect("no panic").unwrap_or_else(|e| panic!("{e}"));
    let data = cluster.folder().join("data");
    let owner = std::fs::metadata(&data).expect("the cluster's folder");
    let (certificate, key) = authority.issue(&["localhost"]).write(&data);
    for file in [&certificate, &key] {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
        chown(file, Some(owner.uid()), Some(owner.gid())).expect("the cluster's owner may read it");
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).expect("and nobody else");
    }
    let mut admin = PgConnection::connect(&cluster.url()).await.expect("the cluster");
    for (name, value) in [("ssl_cert_file", "cert.pem"), ("ssl_key_file", "key.pem"), ("ssl", "on")] {
        let set = format!("ALTER SYSTEM SET {name} = '{value}'");
        sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut admin).await.expect("the setting");
    }
    sqlx::raw_sql("SELECT pg_reload_conf()").execute(&mut admin).await.expect("the settings are read");
    until("connections can be encrypted", async || {
        PgConnection::connect(&format!("{}?sslmode=require", cluster.url())).await.is_ok()
    })
    .await;
    cluster
}

#[tokio::test]
async fn the_database_is_reached_by_tls_with_a_password_from_a_file() {
    const PASSWORD: &str = "pl4nted@:/?#%&+ \u{e9}'\"";
    let (authority, other) = (Authority::new(), Authority::new());
    let cluster = encrypted_cluster(&authority).await;
    let mut admin = PgConnection::connect(&cluster.url()).await.expect("the cluster");
    let role = format!("CREATE ROLE odd SUPERUSER LOGIN PASSWORD '{}'", PASSWORD.replace('\'', "''"));
    sqlx::raw_sql(AssertSqlSafe(role)).execute(&mut admin).await.expect("a role");

    let folder = tempfile::tempdir().expect("a folder");
    let [ca, other_ca, password] = ["ca", "other", "password"].map(|name| folder.path().join(name));
    std::fs::write(&ca, authority.pem()).expect("a file");
    std::fs::write(&other_ca, other.pem()).expect("a file");
    std::fs::write(&password, format!("{PASSWORD}\n")).expect("a file");
    let port = cluster.url().rsplit_once(':').expect("a port").1.to_owned();
    let url = |host: &str, ca: &Path| {
        format!("postgres://odd@{host}:{port}?sslmode=verify-full&sslrootcert={}", ca.display())
    };
    let file = password.to_str().expect("UTF-8");
    let (code, _, stderr) = Process::run(migrate(&url("localhost", &ca), file)).await;
    assert_eq!(code, 0, "{stderr}");
    for (host, ca) in [("localhost", &other_ca), ("127.0.0.1", &ca)] {
        let (code, _, stderr) = Process::run(migrate(&url(host, ca), file)).await;
        assert_eq!(code, 1, "neither another authority nor another name: {stderr}");
        assert!(stderr.contains("certificate") && !stderr.contains("\u{e9}"), "{stderr}");
    }

    let serve = ["--database-url", &url("localhost", &ca)];
    let variables = [("PGSEMAPHORE_DATABASE_PASSWORD", PASSWORD), ("PGSEMAPHORE_LOG", "trace")];
    let holder = Serve::start_in(&serve, &variables).await;
    let query =
        "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'odd' AND ssl";
    let encrypted: i64 = sqlx::query_scalar(query).fetch_one(&mut admin).await.expect("a count");
    assert!(encrypted > 0);
    assert!(holder.stderr().contains("DEBUG") && !holder.stderr().contains("pl4nted"));
    drop(holder);
    std::fs::write(&password, "\n").expect("a file");
    let (code, _, stderr) = Process::run(migrate(&url("localhost", &ca), file)).await;
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains(file) && stderr.contains("no password"), "{stderr}");
}

fn migrate<'a>(url: &'a str, password_file: &'a str) -> [&'a str; 5] {
    ["migrate", "--database-url", url, "--database-password-file", password_file]
}
