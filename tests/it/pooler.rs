//! Holders behind PgBouncer in transaction mode.

use pgsemaphore::embedded::{Embedded, free_port};
use pgsemaphore_tests::{Caller, Process, Serve, message, private_cluster, program, until, within_reason};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};

/// PgBouncer over a cluster, in front of fewer sessions than its clients open. It ends with this value.
struct Pooler {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Pooler {
    /// Its sessions log in as `login`.
    async fn start(cluster: &Embedded, login: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let port = free_port().expect("a free port");
        let server = cluster.url();
        let server = server.rsplit_once(':').and_then(|(_, rest)| rest.split_once('/')).expect("a port").0;
        let settings = folder.path().join("pgbouncer.ini");
        let content = format!(
            "[databases]\npostgres = host=127.0.0.1 port={server} user={login}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 100\n"
        );
        std::fs::write(&settings, content).expect("its settings");
        let process = spawn(folder.path(), &settings);
        let pooler = Self { process, port, _folder: folder };
        until("the pooler listens", async || {
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()
        })
        .await;
        pooler
    }

    fn url(&self) -> String {
        format!("postgres://anybody@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// As user postgres where we are root, which PgBouncer refuses to be.
fn spawn(folder: &Path, settings: &Path) -> Child {
    let mut command = Command::new(program("pgbouncer"));
    command.args(["-q"]).arg(settings);
    if nix::unistd::Uid::effective().is_root() {
        let user = nix::unistd::User::from_name("postgres").expect("the users").expect("user postgres");
        for path in [folder, settings] {
            nix::unistd::chown(path, Some(user.uid), Some(user.gid)).expect("it can read its settings");
        }
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command.spawn().expect("PgBouncer runs")
}

/// A cluster with roles, and a login that holders may use.
async fn cluster() -> Embedded {
    let cluster = private_cluster().await;
    let (code, _, stderr) = Process::run(["roles", "create", "--database-url", &cluster.url()]).await;
    assert_eq!(code, 0, "{stderr}");
    execute(&cluster, "ALTER ROLE pgsemaphore_holder LOGIN").await;
    cluster
}

async fn execute(cluster: &Embedded, statement: &str) {
    let mut owner = PgConnection::connect(&cluster.url()).await.expect("the owner");
    let statement = AssertSqlSafe(statement.to_owned());
    sqlx::raw_sql(statement).execute(&mut owner).await.expect("a statement of the owner");
}

/// One item from demand to release.
async fn item(caller: &Caller, key: &str, client: &str) {
    let wants = message(client, json!({"demand": [{"group": "", "count": 1}], "wait_ms": 30_000}));
    let reply = within_reason("a permit", async {
        loop {
            let reply = caller.insist(key, &wants).await;
            if reply["grants"] != json!([]) {
                return reply;
            }
        }
    })
    .await;
    let report = |released: u64| -> Value {
        json!({"seen": reply["round"], "grants": [{"id": reply["grants"][0]["id"], "claimed": 1, "released": released}]})
    };
    let claimed = caller.insist_sync(key, &message(client, report(0))).await;
    assert_eq!(claimed["grants"][0]["status"], "active", "{claimed}");
    let released = caller.insist_sync(key, &message(client, report(1))).await;
    assert_eq!(released["grants"][0]["status"], "settled", "{released}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PgBouncer: `make check` installs it and runs this test"]
async fn rounds_run_through_a_pooler_of_transactions() {
    let cluster = cluster().await;
    let pooler = Pooler::start(&cluster, "pgsemaphore_holder").await;
    let url = pooler.url();
    let start = || Serve::start_with(&url, &["--pooler"]);
    let holders = tokio::join!(start(), start());
    let (one, other) = (Caller::of(holders.0.url()), Caller::of(holders.1.url()));
    let policy = json!({"limit": 2, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000});
    one.policy("k*", &policy).await;
    let items = (0..60).map(|n| {
        let (one, other) = (&one, &other);
        async move {
            let caller = if n % 2 == 0 { one } else { other };
            item(caller, &format!("k{}", n % 5), &format!("w{n}")).await;
        }
    });
    futures_util::future::join_all(items).await;
    for n in 0..5 {
        assert_eq!(one.usage(&format!("k{n}")).await["grants"], 0);
    }
    let mut owner = PgConnection::connect(&cluster.url()).await.expect("the owner");
    let wrong: i64 = sqlx::query_scalar("SELECT count(*) FROM pgsemaphore.verify(NULL)")
        .fetch_one(&mut owner)
        .await
        .expect("a count");
    assert_eq!(wrong, 0);
    // Nobody tells the holder of it, and it finds out.
    execute(&cluster, "SELECT pgsemaphore.set_limit('k*', 0)").await;
    let wants = message("late", json!({"demand": [{"group": "", "count": 1}]}));
    let reply = one.insist("k0", &wants).await;
    assert_eq!(reply["blocked"][0]["reason"], "limit", "a round reads its policy afresh: {reply}");
    assert!(holders.0.stderr().contains("behind a pooler nothing is heard"), "{}", holders.0.stderr());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PgBouncer: `make check` installs it and runs this test"]
async fn what_does_not_work_through_a_pooler_says_so() {
    let cluster = cluster().await;
    execute(&cluster, "CREATE ROLE plain LOGIN IN ROLE pgsemaphore_holder").await;
    let pooler = Pooler::start(&cluster, "plain").await;
    let url = pooler.url();
    for (arguments, code, hint) in [
        (&["migrate"][..], 1, "--pooler"),
        (&["usage"], 1, "--pooler"),
        (&["serve", "--listen", "127.0.0.1:0"], 1, "--pooler"),
        (&["serve", "--listen", "127.0.0.1:0", "--pooler"], 1, "enable_seqscan = off"),
        (&["serve", "--listen", "127.0.0.1:0", "--pooler", "--migrate"], 2, "--migrate"),
    ] {
        let (found, _, stderr) = Process::run([arguments, &["--database-url", &url]].concat()).await;
        assert_eq!(found, code, "{arguments:?}: {stderr}");
        assert!(stderr.contains(hint), "{arguments:?}: {stderr}");
    }
}
