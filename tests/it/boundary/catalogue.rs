//! What the catalogue says of the functions and views of both schemas.

use pgsemaphore_tests::Db;

/// O-01: of every function, whoever may call it.
#[tokio::test]
async fn every_function_looks_names_up_in_the_catalogue_and_in_temporary_schemas_last() {
    let db = Db::new().await;
    let query = "SELECT p.oid::regprocedure::text, p.proconfig FROM pg_proc AS p
                 WHERE p.pronamespace IN ('pgsemaphore'::regnamespace, 'pgsemaphore_data'::regnamespace)";
    let functions: Vec<(String, Option<Vec<String>>)> =
        sqlx::query_as(query).fetch_all(db.pool()).await.expect("the functions");
    assert!(functions.len() > 30, "{functions:?}");
    for (function, settings) in functions {
        assert_eq!(settings, Some(vec!["search_path=pg_catalog, pg_temp".to_owned()]), "{function}");
    }
}

/// O-02: views, defaults, constraints and indexes were bound to the catalogue when they were made, also where the login
/// that migrates finds shadows first.
#[tokio::test]
async fn nothing_depends_on_what_others_made() {
    let db = Db::hostile().await;
    for command in ["uninstall", "migrate"] {
        let arguments = [command, "--database-url", db.url()];
        let arguments = arguments.iter().chain((command == "uninstall").then_some(&"--yes"));
        let (code, _, stderr) = pgsemaphore_tests::Process::run(arguments).await;
        assert_eq!(code, 0, "{command}: {stderr}");
    }
    let query = "SELECT pg_describe_object(d.classid, d.objid, d.objsubid) || ' needs ' ||
                        pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid)
                 FROM pg_depend AS d
                 CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, d.objsubid) AS o
                 CROSS JOIN LATERAL pg_identify_object(d.refclassid, d.refobjid, d.refobjsubid) AS r
                 WHERE o.schema LIKE 'pgsemaphore%' AND r.schema NOT LIKE 'pgsemaphore%'
                     AND r.schema NOT IN ('pg_catalog', 'pg_toast')";
    let foreign: Vec<String> = sqlx::query_scalar(query).fetch_all(db.pool()).await.expect("dependencies");
    assert_eq!(foreign, [] as [String; 0]);
    assert_eq!(pgsemaphore_tests::hostile::caught(db.pool()).await, 0);
}
