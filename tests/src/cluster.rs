//! One PostgreSQL per test process, and in it one database per test.
//!
//! The databases are copies of a template that is migrated once. A thread of its own creates and drops them, so that
//! neither depends on the runtime of a test, which ends with the test.

use std::sync::OnceLock;

use pgsemaphore::embedded::{Embedded, Options};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};
use tokio::sync::{mpsc, oneshot};

const TEMPLATE: &str = "pgsemaphore_template";
const CONNECTIONS: &str = "400";

/// A fresh, migrated database; it is dropped with this value.
#[derive(Debug)]
#[must_use = "the database is dropped with this value"]
pub struct Db {
    name: String,
    url: String,
    pool: PgPool,
}

impl Db {
    /// Creates the database, and at the first call the cluster that holds it.
    ///
    /// # Panics
    ///
    /// When PostgreSQL cannot be started or the database cannot be created: the message says why.
    pub async fn new() -> Self {
        let (reply, created) = oneshot::channel();
        cluster().send(Order::Create(reply)).expect("the thread of the test cluster runs");
        let (name, url) = created.await.expect("the test cluster creates a database");
        let pool = PgPoolOptions::new().max_connections(8).connect(&url).await.expect("the new database");
        Self { name, url, pool }
    }

    /// Where the database is reached.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A pool of connections of the test's own.
    #[must_use]
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }
}

impl Db {
    /// Replaces the pool by one that settings of the database do not reach.
    pub(crate) async fn shelter(&mut self) {
        self.pool = crate::hostile::sheltered(&self.url).await;
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        // At the end of the process nobody takes the order, and the whole cluster goes.
        let _ = cluster().send(Order::Drop(std::mem::take(&mut self.name)));
    }
}

/// A cluster for one test alone, which may stop and kill it; its database `postgres` is migrated.
///
/// # Panics
///
/// When PostgreSQL cannot be started: the message says why.
pub async fn private_cluster() -> Embedded {
    migrated(options()).await
}

/// As [`private_cluster`], and others than this machine's own may reach it, from addresses of a [`Network`].
///
/// [`Network`]: crate::Network
///
/// # Panics
///
/// When PostgreSQL cannot be started: the message says why.
pub async fn reachable_cluster() -> Embedded {
    let cluster = migrated(options().setting("listen_addresses", "*")).await;
    let rules = cluster.folder().join("data/pg_hba.conf");
    let mut rules = std::fs::File::options().append(true).open(rules).expect("its rules of access");
    std::io::Write::write_all(&mut rules, b"host all all 198.18.0.0/15 trust\n").expect("one rule more");
    let mut admin = PgConnection::connect(&cluster.url()).await.expect("the cluster");
    execute(&mut admin, "SELECT pg_reload_conf()".to_owned()).await;
    cluster
}

/// Settings of a test cluster in this folder.
pub(crate) fn options_in(folder: std::path::PathBuf) -> Options {
    Options::in_folder(folder).fast_and_open().setting("max_connections", CONNECTIONS)
}

async fn migrated(options: Options) -> Embedded {
    let cluster = tokio::task::spawn_blocking(move || Embedded::start(&options))
        .await
        .expect("no panic")
        .unwrap_or_else(|error| panic!("{error}"));
    migrate(&cluster.url()).await;
    cluster
}

enum Order {
    Create(oneshot::Sender<(String, String)>),
    Drop(String),
}

fn options() -> Options {
    Options::temporary().fast_and_open().setting("max_connections", CONNECTIONS)
}

fn cluster() -> &'static mpsc::UnboundedSender<Order> {
    static CLUSTER: OnceLock<mpsc::UnboundedSender<Order>> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let (orders, inbox) = mpsc::unbounded_channel();
        std::thread::Builder::new()
            .name("test-cluster".into())
            .spawn(move || run(inbox))
            .expect("a thread for the test cluster");
        orders
    })
}

/// Lives until the process ends, and the cluster's guard stops the cluster then.
#[tokio::main(flavor = "current_thread")]
async fn run(mut inbox: mpsc::UnboundedReceiver<Order>) {
    let cluster = Embedded::start(&options()).unwrap_or_else(|error| panic!("{error}"));
    let mut admin = PgConnection::connect(&cluster.url()).await.expect("the test cluster");
    execute(&mut admin, format!("create database {TEMPLATE}")).await;
    migrate(&cluster.url_for(TEMPLATE)).await;
    let mut created = 0_u64;
    while let Some(order) = inbox.recv().await {
        match order {
            Order::Create(reply) => {
                created += 1;
                let name = format!("test_{created}");
                execute(&mut admin, format!("create database {name} template {TEMPLATE}")).await;
                let url = cluster.url_for(&name);
                let _ = reply.send((name, url));
            }
            Order::Drop(name) => execute(&mut admin, format!("drop database {name} with (force)")).await,
        }
    }
}

async fn migrate(url: &str) {
    let mut connection = PgConnection::connect(url).await.expect("the database to migrate");
    pgsemaphore::MIGRATOR.run(&mut connection).await.expect("the migrations");
    connection.close().await.expect("an orderly goodbye");
}

async fn execute(admin: &mut PgConnection, statement: String) {
    let outcome = sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(admin).await;
    outcome.unwrap_or_else(|error| panic!("{statement}: {error}"));
}
