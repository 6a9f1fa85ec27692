//! Roles: who may read, administer and serve.

use pgsemaphore::store::SESSION_SETTINGS;
use pgsemaphore_tests::{Caller, Process, Serve, message, private_cluster};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// A cluster of its own: roles are not of one database.
struct Cluster {
    cluster: pgsemaphore::embedded::Embedded,
    owner: PgConnection,
}

impl Cluster {
    async fn with_roles() -> Self {
        let cluster = private_cluster().await;
        for _ in 0..2 {
            let (code, _, stderr) = Process::run(["roles", "create", "--database-url", &cluster.url()]).await;
            assert_eq!(code, 0, "{stderr}");
        }
        let owner = PgConnection::connect(&cluster.url()).await.expect("the owner");
        Self { cluster, owner }
    }

    /// A login that is a member of one role, and of nothing else.
    async fn login(&mut self, name: &str, role: &str) -> String {
        let create = format!("CREATE ROLE {name} LOGIN IN ROLE {role}");
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut self.owner).await.expect("a login");
        self.cluster.url().replace("postgres@", &format!("{name}@"))
    }
}

/// Runs a statement; the error's SQLSTATE, empty if there is none.
async fn attempt(connection: &mut PgConnection, statement: &str) -> String {
    match sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(connection).await {
        Ok(_) => String::new(),
        Err(error) => {
            error.as_database_error().and_then(|error| error.code()).expect("an SQLSTATE").into_owned()
        }
    }
}

async fn names(connection: &mut PgConnection, query: &'static str) -> Vec<String> {
    sqlx::query_scalar(query).fetch_all(connection).await.expect("a look at the catalogue")
}

const REFUSED: &str = "42501";
const VIEWS: &str = "SELECT c.oid::regclass::text FROM pg_class c WHERE c.relkind = 'v'
    AND c.relnamespace = 'pgsemaphore'::regnamespace";
const TABLES: &str = "SELECT c.oid::regclass::text FROM pg_class c WHERE c.relkind = 'r'
    AND c.relnamespace = 'pgsemaphore_data'::regnamespace";
const CALLS: [&str; 6] = [
    "SELECT pgsemaphore.set_limit('k', 3)",
    "SELECT pgsemaphore.set_group_limit('k', 'g', 1)",
    "SELECT pgsemaphore.configure('k', '{\"round_wait_ms\": 0, \"round_period_ms\": 0}')",
    "SELECT * FROM pgsemaphore.verify(NULL)",
    "SELECT * FROM pgsemaphore.settle_client('k', 'w', force => true)",
    "SELECT pgsemaphore.delete_policy('k')",
];

#[tokio::test]
async fn each_role_may_do_what_it_is_for_and_nothing_else() {
    let mut cluster = Cluster::with_roles().await;
    let holder = Serve::start(&cluster.login("h", "pgsemaphore_holder").await).await;
    let caller = Caller::of(holder.url());
    caller.policy("k", &json!({"limit": 2, "round_wait_ms": 0, "round_period_ms": 0})).await;
    let wants = json!({"demand": [{"group": "", "count": 3}]});
    assert_eq!(caller.insist("k", &message("w", wants)).await["grants"][0]["permits"], 2, "a holder serves");
    let views = names(&mut cluster.owner, VIEWS).await;
    let tables = names(&mut cluster.owner, TABLES).await;
    assert_eq!(views.len(), 10);

    for (name, role) in [("r", "pgsemaphore_reader"), ("m", "pg_monitor")] {
        let mut reader = PgConnection::connect(&cluster.login(name, role).await).await.expect("a reader");
        for view in &views {
            assert_eq!(attempt(&mut reader, &format!("SELECT * FROM {view}")).await, "", "{role}: {view}");
            assert_eq!(attempt(&mut reader, &format!("DELETE FROM {view}")).await.len(), 5, "{role}: {view}");
        }
        for table in &tables {
            assert_eq!(
                attempt(&mut reader, &format!("SELECT * FROM {table}")).await,
                REFUSED,
                "{role}: {table}"
            );
        }
        for call in CALLS.iter().chain(&["SELECT pgsemaphore_data.policy_for('k')"]) {
            assert_eq!(attempt(&mut reader, call).await, REFUSED, "{role}: {call}");
        }
    }

    let url = cluster.login("a", "pgsemaphore_admin").await;
    let mut admin = PgConnection::connect(&url).await.expect("an admin");
    for call in CALLS {
        assert_eq!(attempt(&mut admin, call).await, "", "{call}");
    }
    let by: String = sqlx::query_scalar("SELECT actor FROM pgsemaphore.audit WHERE action = 'settle'")
        .fetch_one(&mut admin)
        .await
        .expect("the audit");
    assert_eq!(by, "a", "who called, not who owns the function");
    for write in
        ["DELETE FROM pgsemaphore_data.policies", "UPDATE pgsemaphore_data.semaphores SET grants = 0"]
    {
        assert_eq!(attempt(&mut admin, write).await, REFUSED, "{write}");
    }
    for command in [
        &["policy", "set", "k", "--limit", "1"][..],
        &["policy", "get", "k"],
        &["usage", "k"],
        &["explain", "k"],
        &["client", "list"],
        &["policy", "delete", "k"],
    ] {
        let (code, _, stderr) = Process::run([command, &["--database-url", &url]].concat()).await;
        assert_eq!(code, 0, "{command:?}: {stderr}");
    }
    for command in [&["migrate"][..], &["roles", "create"], &["uninstall", "--yes", "--force"]] {
        let (code, _, stderr) = Process::run([command, &["--database-url", &url]].concat()).await;
        assert_eq!(code, 1, "{command:?}: {stderr}");
    }
    assert_eq!(names(&mut cluster.owner, VIEWS).await.len(), 10, "all is still there");
}

#[tokio::test]
async fn the_holders_role_has_the_settings_of_its_sessions_and_no_hand_on_the_migrations() {
    let mut cluster = Cluster::with_roles().await;
    let mut set = names(
        &mut cluster.owner,
        "SELECT unnest(setconfig) FROM pg_db_role_setting WHERE setrole = 'pgsemaphore_holder'::regrole",
    )
    .await;
    let mut wanted: Vec<String> =
        SESSION_SETTINGS.iter().map(|(name, value)| format!("{name}={value}")).collect();
    set.sort();
    wanted.sort();
    assert_eq!(set, wanted);
    let mut holder =
        PgConnection::connect(&cluster.login("h", "pgsemaphore_holder").await).await.expect("a holder");
    for write in [
        "DELETE FROM pgsemaphore_data._sqlx_migrations",
        "TRUNCATE pgsemaphore_data.slots",
        "DROP TABLE pgsemaphore_data.slots",
        "CREATE TABLE pgsemaphore_data.mine ()",
    ] {
        assert_eq!(attempt(&mut holder, write).await, REFUSED, "{write}");
    }
}

/// O-33: a refusal of a statement is not a database that is away.
#[tokio::test]
async fn a_function_that_holders_may_not_reach_is_refused_by_name() {
    let mut cluster = Cluster::with_roles().await;
    let function = "CREATE SCHEMA hidden;
        CREATE FUNCTION hidden.f(key text) RETURNS integer LANGUAGE sql AS 'SELECT 1'";
    sqlx::raw_sql(function).execute(&mut cluster.owner).await.expect("a function");
    let admin = cluster.login("a", "pgsemaphore_admin").await;
    for (name, why) in [("hidden.f", "grant it USAGE"), ("f(", "that exists"), ("\"f", "that exists")] {
        let set = ["policy", "set", "k", "--limit-function", name, "--database-url", &admin];
        let (code, _, stderr) = Process::run(set).await;
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains("limit_function: must be") && stderr.contains(why), "{stderr}");
    }
}
