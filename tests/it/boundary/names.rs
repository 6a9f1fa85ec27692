//! Attacks by names: what a login makes where it may create something is never found in place of what is meant.

use pgsemaphore::embedded::Embedded;
use pgsemaphore_tests::{Caller, Process, Serve, hostile, message, private_cluster};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// Every role that somebody may log in with, beside the owner.
const ROLES: [(&str, &str); 5] = [
    ("reader", "IN ROLE pgsemaphore_reader"),
    ("monitor", "IN ROLE pg_monitor"),
    ("admin", "IN ROLE pgsemaphore_admin"),
    ("holder", "IN ROLE pgsemaphore_holder"),
    ("nobody", ""),
];

/// Types that functions and views of the product name.
const TYPES: [&str; 12] = [
    "text",
    "int4",
    "int8",
    "numeric",
    "bool",
    "jsonb",
    "timestamptz",
    "interval",
    "oid",
    "regtype",
    "name",
    "regnamespace",
];

const CALLS: [&str; 17] = [
    "SELECT * FROM pgsemaphore.usage",
    "SELECT * FROM pgsemaphore.group_usage",
    "SELECT * FROM pgsemaphore.client_usage",
    "SELECT * FROM pgsemaphore.blocked",
    "SELECT * FROM pgsemaphore.holders",
    "SELECT * FROM pgsemaphore.audit",
    "SELECT pgsemaphore.configure('x', '{\"limit\": 1, \"group_limits\": {\"g\": 1}, \"paused_groups\": [\"p\"]}')",
    "SELECT pgsemaphore.configure('x', '{\"limit\": null, \"limit_function\": \"public.f\"}')",
    "SELECT pgsemaphore.set_limit('x', 2)",
    "SELECT pgsemaphore.set_group_limit('x', 'g', 2)",
    "SELECT * FROM pgsemaphore_data.apply_policy('y', '{\"limit\": 1}', true, 'apply:me')",
    "SELECT * FROM pgsemaphore.settle_client('k', 'w', force => true)",
    "SELECT * FROM pgsemaphore.verify(NULL)",
    "SELECT * FROM pgsemaphore.verify('', 'z')",
    "SELECT * FROM pgsemaphore.repair('k')",
    "SELECT * FROM pgsemaphore_data.resolve('k', 'public.f', NULL, '{}', NULL, '{}', '{}')",
    "SELECT pgsemaphore.delete_policy('x')",
];

async fn cluster() -> (Embedded, PgConnection) {
    let cluster = private_cluster().await;
    let (code, _, stderr) = Process::run(["roles", "create", "--database-url", &cluster.url()]).await;
    assert_eq!(code, 0, "{stderr}");
    let mut owner = PgConnection::connect(&cluster.url()).await.expect("the owner");
    for (name, role) in ROLES {
        run(&mut owner, &format!("CREATE ROLE {name} LOGIN {role}")).await;
    }
    run(
        &mut owner,
        "GRANT CREATE ON SCHEMA public TO PUBLIC; GRANT CREATE ON DATABASE postgres TO PUBLIC;
         CREATE FUNCTION public.f(key text) RETURNS integer LANGUAGE sql AS 'SELECT 1';
         SELECT pgsemaphore.set_limit('k', 2)",
    )
    .await;
    (cluster, owner)
}

fn url_of(cluster: &Embedded, login: &str) -> String {
    cluster.url().replace("postgres@", &format!("{login}@"))
}

async fn run(session: &mut PgConnection, statements: &str) {
    let done = sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(session).await;
    done.unwrap_or_else(|error| panic!("{statements}: {error}"));
}

/// O-01: types and relations of the caller's session.
#[tokio::test]
async fn nothing_of_a_temporary_schema_runs_with_the_rights_of_the_owner() {
    let (cluster, mut owner) = cluster().await;
    let holder = Serve::start(&cluster.url()).await;
    let wants = message("w", json!({"demand": [{"group": "g", "count": 3}]}));
    Caller::of(holder.url()).insist("k", &wants).await;
    for (login, _) in ROLES {
        let mut session = PgConnection::connect(&url_of(&cluster, login)).await.expect("a login");
        run(
            &mut session,
            &format!(
                "SET search_path = pg_temp, pg_catalog;
                 CREATE FUNCTION pg_temp.evil() RETURNS pg_catalog.bool LANGUAGE plpgsql AS $evil$ BEGIN
                     IF current_user <> session_user THEN
                         PERFORM pg_catalog.set_config('evil.became', current_user::pg_catalog.text, false);
                         EXECUTE 'ALTER ROLE {login} SUPERUSER';
                     END IF;
                     RETURN true;
                 END $evil$;
                 CREATE TEMP VIEW pg_proc AS SELECT p.* FROM pg_catalog.pg_proc AS p WHERE pg_temp.evil();
                 CREATE TEMP VIEW pg_roles AS SELECT r.* FROM pg_catalog.pg_roles AS r WHERE pg_temp.evil();"
            ),
        )
        .await;
        for name in TYPES {
            let domain = format!("CREATE DOMAIN pg_temp.{name} AS pg_catalog.{name} CHECK (pg_temp.evil())");
            run(&mut session, &domain).await;
        }
        for call in CALLS {
            // Many of these are refused: what counts is what ran.
            let _refused = sqlx::raw_sql(call).execute(&mut session).await;
        }
        let became: Option<String> =
            sqlx::query_scalar("SELECT pg_catalog.current_setting('evil.became', true)")
                .fetch_one(&mut session)
                .await
                .expect("what it became");
        assert_eq!(became, None, "{login}");
        let is_super = "SELECT rolsuper FROM pg_roles WHERE rolname = $1";
        let is_super: bool =
            sqlx::query_scalar(is_super).bind(login).fetch_one(&mut owner).await.expect("the role");
        assert!(!is_super, "{login}");
    }
}

/// O-02: `public`, and schemas that are called like the logins of holders and of the owner.
#[tokio::test]
async fn nothing_that_a_login_makes_runs_in_a_session_of_the_product() {
    let (cluster, mut owner) = cluster().await;
    run(&mut owner, "ALTER DATABASE postgres SET search_path = \"$user\", public, pg_catalog").await;
    for (login, _) in ROLES {
        let mut session = PgConnection::connect(&url_of(&cluster, login)).await.expect("a login");
        run(&mut session, "CREATE SCHEMA holder; CREATE SCHEMA postgres").await;
        run(&mut session, &hostile::shadows(&["public", "holder", "postgres"])).await;

        let holder = Serve::start(&url_of(&cluster, "holder")).await;
        let caller = Caller::of(holder.url());
        for client in ["a", "b", "c"] {
            let wants = json!({"demand": [{"group": "g", "count": 4}, {"group": "h", "count": 4}]});
            caller.insist("k", &message(client, wants)).await;
        }
        for command in [&["migrate"][..], &["usage"], &["explain", "k"], &["audit"], &["roles", "create"]] {
            let (code, _, stderr) =
                Process::run([command, &["--database-url", &cluster.url()]].concat()).await;
            assert_eq!(code, 0, "{login}, {command:?}: {stderr}");
        }
        let mut witness = sheltered(&cluster).await;
        let query = "SELECT grants, permit_limit FROM pgsemaphore.usage WHERE key = 'k'";
        let (grants, limit): (i64, i32) = sqlx::query_as(query).fetch_one(&mut witness).await.expect("usage");
        assert_eq!((grants, limit), (2, 2), "{login}");
        let caught = "SELECT is_called FROM public.caught";
        let caught: bool = sqlx::query_scalar(caught).fetch_one(&mut witness).await.expect("the sequence");
        assert!(!caught, "{login}: a shadow was called");
        drop(holder);
        run(&mut witness, &format!("DROP OWNED BY {login} CASCADE")).await;
    }
}

async fn sheltered(cluster: &Embedded) -> PgConnection {
    PgConnection::connect(&format!("{}?options[search_path]=pg_catalog", cluster.url()))
        .await
        .expect("a witness")
}

/// A schema that somebody made before: the session of whoever migrates would run its owner's code.
#[tokio::test]
async fn schemas_of_others_are_not_migrated() {
    let (cluster, mut owner) = cluster().await;
    run(&mut owner, "DROP SCHEMA pgsemaphore, pgsemaphore_data CASCADE").await;
    let mut nobody = PgConnection::connect(&url_of(&cluster, "nobody")).await.expect("a login");
    run(&mut nobody, "CREATE SCHEMA pgsemaphore_data").await;
    for command in [&["migrate"][..], &["uninstall", "--yes"]] {
        let (code, _, stderr) = Process::run([command, &["--database-url", &cluster.url()]].concat()).await;
        assert_eq!(code, 1, "{command:?}: {stderr}");
        assert!(stderr.contains("pgsemaphore_data") && stderr.contains("nobody"), "{stderr}");
    }
}
