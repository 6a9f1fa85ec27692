//! A database whose other users, and whose settings, mean no good.

use crate::Db;
use pgsemaphore::store::SESSION_SETTINGS;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};
use std::str::FromStr as _;

const SHADOWS: &str = include_str!("shadows.sql");

/// Settings of the database or the login that change what statements mean, how values read, which plans there are, and
/// how long anything may take.
const SETTINGS: [(&str, &str); 26] = [
    ("default_transaction_isolation", "'repeatable read'"),
    ("default_transaction_read_only", "on"),
    ("default_transaction_deferrable", "on"),
    ("statement_timeout", "1"),
    ("lock_timeout", "1"),
    ("idle_in_transaction_session_timeout", "1"),
    ("idle_session_timeout", "1"),
    ("synchronous_commit", "local"),
    ("DateStyle", "'SQL, DMY'"),
    ("IntervalStyle", "iso_8601"),
    ("TimeZone", "'Pacific/Chatham'"),
    ("exit_on_error", "on"),
    ("client_min_messages", "debug1"),
    ("bytea_output", "escape"),
    ("standard_conforming_strings", "off"),
    ("transform_null_equals", "on"),
    ("array_nulls", "off"),
    ("row_security", "off"),
    ("lc_messages", "'POSIX'"),
    ("enable_indexscan", "off"),
    ("enable_indexonlyscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_nestloop", "off"),
    ("enable_sort", "off"),
    ("enable_hashagg", "off"),
    ("work_mem", "64"),
];

/// Statements that make shadows of everything in these schemas.
#[must_use]
pub fn shadows(places: &[&str]) -> String {
    let places: Vec<String> = places.iter().map(|place| format!("'{place}'")).collect();
    SHADOWS.replace("PLACES", &format!("ARRAY[{}]", places.join(", ")))
}

/// Statements that set everything to what nobody wants, for `target`, such as `DATABASE x`.
#[must_use]
pub fn settings(target: &str, path: &str) -> String {
    let path = format!("ALTER {target} SET search_path = {path};\n");
    let others = SETTINGS.iter().map(|(name, value)| format!("ALTER {target} SET {name} = {value};\n"));
    std::iter::once(path).chain(others).collect()
}

/// A pool of the test's own, which the database's settings do not reach.
///
/// # Panics
///
/// When the database cannot be reached.
pub async fn sheltered(url: &str) -> PgPool {
    let options = PgConnectOptions::from_str(url).expect("a URL");
    let options = options.options(SESSION_SETTINGS).options([("default_transaction_read_only", "off")]);
    PgPoolOptions::new().max_connections(8).connect_with(options).await.expect("the database")
}

/// How often a shadow was called.
///
/// # Panics
///
/// When the database cannot be asked.
pub async fn caught(pool: &PgPool) -> i64 {
    let query =
        sqlx::query_scalar("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM public.caught");
    query.fetch_one(pool).await.expect("the sequence")
}

impl Db {
    /// As [`Db::new`], and hostile: all names are shadowed in `public` and in a schema that is called like the login, and
    /// settings of the database and of the login in it are wrong.
    ///
    /// # Panics
    ///
    /// When the database cannot be made.
    pub async fn hostile() -> Self {
        let mut db = Self::new().await;
        let name = db.url().rsplit('/').next().expect("a name").to_owned();
        let statements = [
            "GRANT CREATE ON SCHEMA public TO PUBLIC; CREATE SCHEMA postgres;\n".to_owned(),
            shadows(&["public", "postgres"]),
            settings(&format!("DATABASE {name}"), "\"$user\", public, pg_catalog"),
            settings(&format!("ROLE postgres IN DATABASE {name}"), "public, \"$user\", pg_catalog"),
        ];
        // In one session: the settings hold for those that come later.
        let mut session = db.pool().acquire().await.expect("a session");
        for statement in statements {
            sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *session).await.expect("a hostile database");
        }
        drop(session);
        db.shelter().await;
        db
    }
}
