//! One durable PostgreSQL for all that keep their budgets in one, with a database for each.

use pgsemaphore::Store;
use pgsemaphore::embedded::{Embedded, Options};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use std::sync::atomic::{AtomicU64, Ordering};

/// A cluster that ends with this value.
pub struct Cluster {
    embedded: Embedded,
    databases: AtomicU64,
}

impl Cluster {
    /// Starts a cluster that flushes each commit, as a user's would.
    pub fn start() -> Self {
        let options = Options::temporary().setting("max_connections", "400");
        let embedded = Embedded::start(&options).unwrap_or_else(|error| panic!("{error}"));
        Self { embedded, databases: AtomicU64::new(0) }
    }

    /// A new, empty database.
    pub async fn database(&self) -> String {
        let name = format!("bench_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        execute(&self.embedded.url(), &format!("CREATE DATABASE {name}")).await;
        self.embedded.url_for(&name)
    }

    /// A new database with our schema.
    pub async fn migrated(&self) -> String {
        let url = self.database().await;
        let store = Store::connect(&url, 1).await.expect("the database");
        store.migrate().await.expect("the schema");
        store.close().await;
        url
    }

    /// `server_version`, for the report.
    pub async fn version(&self) -> String {
        let mut connection = connect(&self.embedded.url()).await;
        let query = sqlx::query_scalar("SELECT split_part(current_setting('server_version'), ' ', 1)");
        query.fetch_one(&mut connection).await.expect("a version")
    }
}

pub async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.expect("a connection")
}

pub async fn execute(url: &str, sql: &str) {
    let mut connection = connect(url).await;
    let outcome = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await;
    outcome.unwrap_or_else(|error| panic!("{sql}: {error}"));
    connection.close().await.expect("an orderly goodbye");
}

/// Waits until the demand of so many clients counts as blocked in one of our databases.
pub async fn until_blocked(url: &str, clients: usize) {
    let mut connection = connect(url).await;
    pgsemaphore_tests::until("they are blocked", async || {
        let query = sqlx::query_scalar("SELECT count(*) FROM pgsemaphore.blocked");
        let blocked: i64 = query.fetch_one(&mut connection).await.expect("a count");
        usize::try_from(blocked).is_ok_and(|blocked| blocked == clients)
    })
    .await;
}
