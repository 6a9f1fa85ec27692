//! O-05: who did it is the session's login; what it says beside that is believed of holders alone.

use pgsemaphore_tests::{Process, private_cluster};
use sqlx::{Connection as _, PgConnection};

const ACTS: [&str; 6] = [
    "SELECT pgsemaphore.configure('k', '{\"limit\": 2}', 'alice')",
    "SELECT pgsemaphore.set_limit('k', 1, 'alice')",
    "SELECT pgsemaphore.set_group_limit('k', 'g', 1, 'alice')",
    "SELECT * FROM pgsemaphore.settle_client('s', 'w', 'why', 'alice')",
    "SELECT * FROM pgsemaphore.repair('s', 'alice')",
    "SELECT pgsemaphore.delete_policy('k', 'alice')",
];

#[tokio::test]
async fn the_audit_has_the_login_and_believes_holders_alone() {
    let cluster = private_cluster().await;
    let (code, _, stderr) = Process::run(["roles", "create", "--database-url", &cluster.url()]).await;
    assert_eq!(code, 0, "{stderr}");
    let mut owner = PgConnection::connect(&cluster.url()).await.expect("the owner");
    sqlx::raw_sql(
        "CREATE ROLE a LOGIN IN ROLE pgsemaphore_admin; CREATE ROLE h LOGIN IN ROLE pgsemaphore_holder",
    )
    .execute(&mut owner)
    .await
    .expect("logins");
    for (login, actor) in [("a", "a"), ("h", "alice")] {
        // A client to settle, and a counter that is wrong.
        sqlx::raw_sql(
            "DELETE FROM pgsemaphore_data.audit;
             INSERT INTO pgsemaphore_data.semaphores (key, grants) VALUES ('s', 3)
                 ON CONFLICT (key) DO UPDATE SET grants = 3;
             INSERT INTO pgsemaphore_data.clients (key, client_id, generation, last_seen)
                 VALUES ('s', 'w', 1, now() - interval '1 day')
                 ON CONFLICT (key, client_id) DO UPDATE SET generation = clients.generation + 1",
        )
        .execute(&mut owner)
        .await
        .expect("a client");
        let url = cluster.url().replace("postgres@", &format!("{login}@"));
        let mut session = PgConnection::connect(&url).await.expect("a login");
        for act in ACTS {
            sqlx::raw_sql(act).execute(&mut session).await.unwrap_or_else(|error| panic!("{act}: {error}"));
        }
        let audited: Vec<(String, String, String)> =
            sqlx::query_as("SELECT action, actor, login FROM pgsemaphore.audit")
                .fetch_all(&mut session)
                .await
                .expect("the audit");
        assert_eq!(audited.len(), ACTS.len(), "{audited:?}");
        for (action, by, from) in audited {
            assert_eq!((by.as_str(), from.as_str()), (actor, login), "{action}");
        }
    }
}

/// A policy that an admin changes by hand does not pass for one of a file, and one that he applies does.
#[tokio::test]
async fn an_admin_applies_policies_and_cannot_pretend_to() {
    let cluster = private_cluster().await;
    let (code, _, stderr) = Process::run(["roles", "create", "--database-url", &cluster.url()]).await;
    assert_eq!(code, 0, "{stderr}");
    let mut owner = PgConnection::connect(&cluster.url()).await.expect("the owner");
    sqlx::raw_sql("CREATE ROLE a LOGIN IN ROLE pgsemaphore_admin")
        .execute(&mut owner)
        .await
        .expect("a login");
    let url = cluster.url().replace("postgres@", "a@");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("policies.json");
    let apply = async |limit: u32| {
        std::fs::write(&file, format!(r#"{{"policies": {{"k": {{"limit": {limit}}}}}}}"#)).expect("a file");
        let file = file.to_str().expect("a path");
        let (code, _, stderr) = Process::run(["policy", "apply", "-f", file, "--database-url", &url]).await;
        assert_eq!(code, 0, "{stderr}");
        let query = "SELECT permit_limit, set_by FROM pgsemaphore.policies WHERE pattern = 'k'";
        sqlx::query_as::<_, (i32, String)>(query)
            .fetch_one(&mut PgConnection::connect(&url).await.expect("a login"))
            .await
            .expect("the policy")
    };
    assert_eq!(apply(1).await, (1, "apply:a".to_owned()));
    assert_eq!(apply(2).await, (2, "apply:a".to_owned()), "its own work is not left alone");
    let mut admin = PgConnection::connect(&url).await.expect("a login");
    sqlx::raw_sql("SELECT pgsemaphore.set_limit('k', 7, 'apply:x')")
        .execute(&mut admin)
        .await
        .expect("a limit");
    assert_eq!(apply(3).await, (7, "a".to_owned()), "what was changed by hand is");
}
