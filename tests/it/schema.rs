//! The schema as people meet it.

use pgsemaphore_tests::Db;

async fn names(db: &Db, query: &'static str) -> Vec<String> {
    sqlx::query_scalar(query).fetch_all(db.pool()).await.expect("a look at the catalogue")
}

#[tokio::test]
async fn everything_has_a_comment() {
    let db = Db::new().await;
    let silent = names(
        &db,
        "SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname IN ('pgsemaphore', 'pgsemaphore_data') AND c.relkind IN ('r', 'v')
           AND c.relname <> '_sqlx_migrations' AND obj_description(c.oid, 'pg_class') IS NULL
         UNION ALL
         SELECT n.nspname || '.' || p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
         WHERE n.nspname IN ('pgsemaphore', 'pgsemaphore_data') AND obj_description(p.oid, 'pg_proc') IS NULL
         UNION ALL
         SELECT n.nspname FROM pg_namespace n
         WHERE n.nspname IN ('pgsemaphore', 'pgsemaphore_data') AND obj_description(n.oid, 'pg_namespace') IS NULL",
    )
    .await;
    assert_eq!(silent, Vec::<String>::new());
}

#[tokio::test]
async fn the_public_can_call_nothing_and_read_nothing() {
    let db = Db::new().await;
    let open = names(
        &db,
        "SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
         WHERE n.nspname IN ('pgsemaphore', 'pgsemaphore_data') AND has_function_privilege('public', p.oid, 'EXECUTE')
         UNION ALL
         SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname IN ('pgsemaphore', 'pgsemaphore_data') AND c.relkind IN ('r', 'v')
           AND has_table_privilege('public', c.oid, 'SELECT, INSERT, UPDATE, DELETE')",
    )
    .await;
    assert_eq!(open, Vec::<String>::new());
}

#[tokio::test]
async fn functions_resolve_names_in_one_schema_alone_and_nothing_is_a_trigger() {
    let db = Db::new().await;
    let loose = names(
        &db,
        "SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
         WHERE n.nspname IN ('pgsemaphore', 'pgsemaphore_data')
           AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false)
         UNION ALL
         SELECT t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
         JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = 'pgsemaphore_data' AND NOT t.tgisinternal",
    )
    .await;
    assert_eq!(loose, Vec::<String>::new());
}

#[tokio::test]
async fn views_have_their_documented_columns() {
    let db = Db::new().await;
    let columns = names(
        &db,
        "SELECT table_name || '(' || string_agg(column_name, ', ' ORDER BY ordinal_position) || ')'
         FROM information_schema.columns
         WHERE table_schema = 'pgsemaphore' AND table_name <> 'policies'
         GROUP BY table_name ORDER BY table_name COLLATE \"C\"",
    )
    .await;
    let documented = [
        "audit(at, key, client_id, action, actor, generation, grants, leases, detail, login)",
        "blocked(key, client_id, grp, count, reason, since)",
        "client_usage(key, client_id, generation, grants, leases, last_seen, unheard)",
        "grants(key, id, client_id, grp, permits, claimed, released, status, claim_deadline, created_at)",
        "group_limits(pattern, grp, permit_limit)",
        "group_usage(key, grp, permit_limit, grants, leases, contended)",
        "holders(holder, url, started_at, last_heartbeat, live, database)",
        "leases(key, id, client_id, grp, permits, drawn, released, footprint, status, stopped, ttl_ms, last_report, created_at)",
        "usage(key, pattern, permit_limit, extra, grants, leases, available, contended, round, last_round_at)",
    ];
    assert_eq!(columns, documented);
}

#[tokio::test]
async fn verify_finds_a_counter_that_is_wrong() {
    let db = Db::new().await;
    sqlx::raw_sql(
        "INSERT INTO pgsemaphore_data.semaphores (key, grants) VALUES ('k', 3), ('sound', 0);
         INSERT INTO pgsemaphore_data.slots (key, slot, kind, round, client_id, grp, permits, used, released, created_at)
         VALUES ('k', 0, 'grant', 7, 'w', 'g', 5, 2, 1, now());
         INSERT INTO pgsemaphore_data.group_usage (key, grp, grants, leases) VALUES ('k', 'g', 4, 2)",
    )
    .execute(db.pool())
    .await
    .expect("rows that disagree");
    for key in [Some("k"), None] {
        let found: Vec<(String, Option<String>, String, i64, i64)> =
            sqlx::query_as("SELECT key, grp, counter, stored, actual FROM pgsemaphore.verify($1)")
                .bind(key)
                .fetch_all(db.pool())
                .await
                .expect("a count");
        let row = |grp: Option<&str>, counter: &str, stored, actual| {
            ("k".to_owned(), grp.map(str::to_owned), counter.to_owned(), stored, actual)
        };
        assert_eq!(found, [row(None, "grants", 3, 4), row(Some("g"), "leases", 2, 0)]);
    }
}

#[tokio::test]
async fn every_column_of_a_view_has_a_comment() {
    let db = Db::new().await;
    let silent = names(
        &db,
        "SELECT c.relname || '.' || a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
         WHERE c.relnamespace = 'pgsemaphore'::regnamespace AND c.relkind = 'v' AND a.attnum > 0
           AND col_description(c.oid, a.attnum) IS NULL",
    )
    .await;
    assert_eq!(silent, Vec::<String>::new());
}

#[tokio::test]
async fn constraints_have_names_that_say_what_holds() {
    let db = Db::new().await;
    let unnamed = names(
        &db,
        "SELECT conrelid::regclass || ' ' || conname FROM pg_constraint
         WHERE connamespace = 'pgsemaphore_data'::regnamespace AND contype = 'c' AND conname ~ '_check[0-9]*$'",
    )
    .await;
    assert_eq!(unnamed, Vec::<String>::new());
}
