//! The settings of a session: the one rule that every connection of this program obeys.
//!
//! A session asks for [`SESSION_SETTINGS`] when it starts. PostgreSQL ranks that above what `ALTER ROLE ... SET` and
//! `ALTER DATABASE ... SET` say, and above `options` in the URL. So no statement means anything else because of who else
//! uses the database. Two settings are left to the operator, because they say what is wanted of the data:
//! `synchronous_commit` (`off` is refused, see `fitness.rs`) and `default_transaction_read_only` of the server's own
//! configuration; that of a role or a database is a default, and is overridden.
//!
//! Behind a pooler a session cannot ask: its login must have the settings, and a holder that finds one missing ends.

/// Settings of each session, as `pg_settings` shows them: times in milliseconds, sizes in kB.
///
/// Names are looked up in `pg_catalog` alone, and in the session's own temporary schema last: whatever others create in
/// `public`, or in a schema that is called like the login, is never found. Values are read and written one way.
///
/// Plans are pinned because the planner prefers sequential scans on small tables, and a sequential scan under
/// SERIALIZABLE conflicts with every writer of the table. A scan that has to be then looks so costly that PostgreSQL would
/// compile it, for a second, each time: so it must not.
///
/// PostgreSQL ends the session of a holder that froze in a transaction after 3 s without a statement, and with it the locks.
/// A statement waits less than that for a lock, so that a caller of the same row does not keep its connection; the
/// transaction tries once more (see `transaction.rs`), and finds the row free. They are settings of the session and not
/// `SET LOCAL`, which would cost a round trip in each transaction.
pub const SESSION_SETTINGS: [(&str, &str); 30] = [
    ("search_path", "pg_catalog, pg_temp"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_deferrable", "off"),
    ("row_security", "on"),
    ("standard_conforming_strings", "on"),
    ("transform_null_equals", "off"),
    ("array_nulls", "on"),
    ("exit_on_error", "off"),
    ("client_min_messages", "notice"),
    ("bytea_output", "hex"),
    ("DateStyle", "ISO, MDY"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_nestloop", "on"),
    ("enable_indexscan", "on"),
    ("enable_indexonlyscan", "on"),
    ("enable_bitmapscan", "on"),
    ("enable_sort", "on"),
    ("enable_hashagg", "on"),
    ("enable_material", "on"),
    ("work_mem", "4096"),
    ("jit", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("lock_timeout", "2000"),
    ("statement_timeout", "20000"),
    ("idle_in_transaction_session_timeout", "3000"),
    ("idle_session_timeout", "0"),
];
