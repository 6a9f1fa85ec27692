//! What a DBA, an outage or a bad day does to the sessions of a holder in PostgreSQL.

use crate::until::until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{Connection as _, PgConnection, PgPool, Postgres};

/// A row of a key, locked by a session of its own, as by somebody in psql who has gone to lunch.
#[derive(Debug)]
pub struct RowLock {
    session: PgConnection,
}

impl RowLock {
    /// Locks the row of `key`, which must exist.
    ///
    /// # Panics
    ///
    /// When it doesn't.
    pub async fn hold(url: &str, key: &str) -> Self {
        let row = "SELECT 1 FROM pgsemaphore_data.semaphores WHERE key = $1 FOR UPDATE";
        Self::lock(url, sqlx::query(row).bind(key)).await
    }

    /// Locks the row of a client of `key`, which must exist: a round that writes it has taken the key's row before.
    ///
    /// # Panics
    ///
    /// When it doesn't.
    pub async fn hold_client(url: &str, key: &str, client_id: &str) -> Self {
        let row = "SELECT 1 FROM pgsemaphore_data.clients WHERE key = $1 AND client_id = $2 FOR UPDATE";
        Self::lock(url, sqlx::query(row).bind(key).bind(client_id)).await
    }

    async fn lock(url: &str, row: Query<'_, Postgres, PgArguments>) -> Self {
        let mut session = PgConnection::connect(url).await.expect("a session of its own");
        sqlx::raw_sql("BEGIN").execute(&mut session).await.expect("BEGIN");
        row.fetch_one(&mut session).await.expect("a row to lock");
        Self { session }
    }

    /// Lets go.
    pub async fn release(self) {
        self.session.close().await.expect("an orderly goodbye");
    }
}

/// Freezes a whole PostgreSQL, the postmaster with this process id and its backends, or lets it go on.
///
/// # Panics
///
/// When it does not run.
pub fn signal_cluster(postmaster: u32, signal: Signal) {
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for id in ids.filter(|id| *id == postmaster || parent(*id) == Some(postmaster)) {
        let _ended = kill(Pid::from_raw(id.cast_signed()), signal);
    }
}

fn parent(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Ends all sessions of holders in this database, as `pg_terminate_backend` does. Says how many.
pub async fn terminate_sessions(pool: &PgPool) -> i64 {
    let query = sqlx::query_scalar(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'pgsemaphore'",
    );
    query.fetch_one(pool).await.expect("pg_terminate_backend")
}

/// Waits until `count` sessions of holders in this database wait for a lock.
pub async fn until_locked_out(pool: &PgPool, count: i64) {
    until("sessions wait for the lock", async || {
        let query = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
             AND application_name = 'pgsemaphore' AND wait_event_type = 'Lock'",
        );
        let waiting: i64 = query.fetch_one(pool).await.expect("pg_stat_activity");
        waiting >= count
    })
    .await;
}

/// Deadlocks that PostgreSQL has found in this database.
pub async fn deadlocks(pool: &PgPool) -> i64 {
    let query =
        sqlx::query_scalar("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()");
    query.fetch_one(pool).await.expect("pg_stat_database")
}
