//! The settings of every session that the product opens.

use super::wire::Wire;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use pgsemaphore::store::SESSION_SETTINGS;
use pgsemaphore_tests::{Caller, Db, Process, Serve, message, until};
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use std::collections::BTreeMap;

/// O-02: pools, signs of life, LISTEN, the command line, migrations, roles and uninstalling, in a database that sets
/// everything otherwise. What each session asked for is asked for again, and its settings are looked at.
#[tokio::test]
async fn every_session_has_the_settings_of_the_product() {
    let db = Db::hostile().await;
    let wire = Wire::before(db.url()).await;
    let url = wire.through(db.url());
    let run = async |arguments: &[&str]| {
        let (code, _, stderr) = Process::run([arguments, &["--database-url", &url]].concat()).await;
        assert_eq!(code, 0, "{arguments:?}: {stderr}");
    };
    run(&["uninstall", "--yes"]).await;
    run(&["migrate"]).await;
    run(&["roles", "create"]).await;
    let holder = Serve::start_with(&url, &["--migrate"]).await;
    let caller = Caller::of(holder.url());
    caller.policy("k", &json!({"limit": 2, "round_wait_ms": 0})).await;
    caller.insist("k", &message("w", json!({"demand": [{"group": "", "count": 1}]}))).await;
    until("the holder listens", async || {
        let query = "SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'LISTEN%' AND datname = current_database()";
        sqlx::query_scalar::<_, i64>(query).fetch_one(db.pool()).await.expect("sessions") == 1
    })
    .await;
    for command in [&["policy", "list"][..], &["usage"], &["explain", "k"], &["client", "list"], &["audit"]] {
        run(command).await;
    }
    drop(holder);
    run(&["uninstall", "--yes", "--force"]).await;

    let asked = wire.asked();
    assert!(!asked.is_empty());
    for options in asked {
        let again = format!("{}?options={}", db.url(), utf8_percent_encode(&options, NON_ALPHANUMERIC));
        let mut session = PgConnection::connect(&again).await.expect("such a session");
        let query = sqlx::query_as("SELECT name, setting FROM pg_catalog.pg_settings");
        let settings: Vec<(String, String)> = query.fetch_all(&mut session).await.expect("its settings");
        let settings: BTreeMap<_, _> = settings.into_iter().collect();
        for (name, wanted) in SESSION_SETTINGS {
            assert_eq!(settings.get(name).map(String::as_str), Some(wanted), "{name} of {options}");
        }
    }
}
