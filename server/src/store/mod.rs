//! PostgreSQL: the only caller of SQL in the server, and the only one that begins a transaction.
//!
//! Authoritative for how rows are stored, for retries, and for what a COMMIT with an unknown outcome did. Not
//! authoritative for what a round decides: that is `pgsemaphore_allocation`. Each statement is a file in `queries/`.

mod apply;
mod clients;
mod connect;
mod connections;
mod declared;
mod error;
mod explain;
mod fitness;
mod hearing;
mod heartbeat;
mod hints;
mod keys;
mod load;
mod phases;
mod policies;
mod prepare;
mod rows;
mod schema;
mod self_check;
mod session;
mod transaction;
mod usage;

pub(crate) use apply::apply;
pub use clients::{KnownClient, SettleError, Settled};
use connections::Connections;
pub use declared::{Applied, ApplyError, Outcome};
pub use error::StoreError;
pub use explain::{Held, Situation};
use fitness::Fitness;
pub(crate) use keys::Swept;
pub(crate) use load::{
    FunctionCall, Loaded, Missing, Taken, is_anybody_blocked, knows_clients, load, look_at, take,
};
pub(crate) use phases::Phase;
pub use policies::{Policy, PolicyError, PolicyPage};
pub(crate) use prepare::Prepared;
pub use schema::UninstallError;
pub use self_check::{Audited, Drift};
pub use session::SESSION_SETTINGS;
pub use transaction::Attempts;
pub(crate) use transaction::{Attempt, Body, Ran, Step};
pub use usage::{BlockedUsage, ClientUsage, GroupUsage, SemaphorePage, SemaphoreUsage, Usage};

use crate::metrics::Metrics;
use pgsemaphore_allocation::SemaphoreKey;
use sqlx::postgres::PgConnectOptions;
use std::sync::Arc;
use std::time::Duration;

/// When rounds of a key may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timing {
    /// A round waits at most this long for more requests.
    pub(crate) wait: Duration,
    /// Rounds start no closer than this.
    pub(crate) period: Duration,
    /// Whether demand that leaves nobody waiting is served at once.
    pub(crate) eager: bool,
    /// Differs for each policy, and for each change of one.
    pub(crate) stamp: i64,
}

/// Connections to the database that holds the semaphores.
#[derive(Debug, Clone)]
pub struct Store {
    connections: Connections,
    vital: Connections,
    fitness: Arc<Fitness>,
    options: PgConnectOptions,
    counters: Arc<transaction::Counters>,
    metrics: Arc<Metrics>,
}

impl Store {
    /// Connects, with at most `connections` connections, and two more for [`Store::ready`] and heartbeats. The schema is
    /// not looked at.
    ///
    /// # Errors
    /// [`StoreError::Url`] for a URL that can't be read, [`StoreError::Unavailable`] when nothing answers,
    /// [`StoreError::NotDurable`] where `synchronous_commit` is `off`, [`StoreError::Standby`] and
    /// [`StoreError::ReadOnly`] where nothing can be written.
    pub async fn connect(url: &str, connections: u32) -> Result<Self, StoreError> {
        Self::connect_with(connect::options(url)?, connections, false).await
    }

    /// As [`Store::connect`], through a pooler in transaction mode, such as PgBouncer. The login must have
    /// [`SESSION_SETTINGS`], and nothing is told by NOTIFY.
    ///
    /// # Errors
    /// As [`Store::connect`], and [`StoreError::Settings`] where a setting is missing.
    pub async fn connect_behind_pooler(url: &str, connections: u32) -> Result<Self, StoreError> {
        Self::connect_with(connect::options_behind_pooler(url)?, connections, true).await
    }

    async fn connect_with(
        options: PgConnectOptions,
        connections: u32,
        behind_pooler: bool,
    ) -> Result<Self, StoreError> {
        connect::check(&options).await?;
        let fitness = Arc::<Fitness>::default();
        let pool = |connections| {
            let pool = connect::pool(&options, connections, &fitness);
            Connections::new(pool, behind_pooler, fitness.clone())
        };
        let (connections, vital) = (pool(connections), pool(2));
        Ok(Self { connections, vital, fitness, options, counters: Arc::default(), metrics: Arc::default() })
    }

    /// Checks that the database answers, takes writes, and has a schema that is new enough for this binary.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`], [`StoreError::Standby`], [`StoreError::ReadOnly`], or [`StoreError::Schema`] with
    /// what to do.
    pub async fn ready(&self) -> Result<(), StoreError> {
        let needed = crate::MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or(0);
        let query = sqlx::query_scalar(include_str!("../../queries/read_migrations.sql"));
        let found: Option<i64> = match query.fetch_optional(self.vital()).await {
            Err(sqlx::Error::Database(e)) if e.code().as_deref() == Some("42P01") => None,
            answer => answer?,
        };
        if found.unwrap_or(0) < needed {
            Err(StoreError::Schema { found: found.unwrap_or(0), needed })
        } else {
            Ok(())
        }
    }

    /// When rounds of `key` may start; `None` where no policy covers it.
    pub(crate) async fn timing(&self, key: &SemaphoreKey) -> Result<Option<Timing>, StoreError> {
        let query = sqlx::query_as(include_str!("../../queries/read_timing.sql")).bind(key.as_str());
        let row: Option<(i32, i32, bool, i64)> = query.fetch_optional(self.pool()).await?;
        let timing = |(wait, period, eager, stamp)| Timing {
            wait: millis(wait),
            period: millis(period),
            eager,
            stamp,
        };
        Ok(row.map(timing))
    }

    /// Connections for statements that need no transaction.
    pub(crate) fn pool(&self) -> &Connections {
        &self.connections
    }

    /// How many connections are in use, and how many idle.
    pub(crate) fn connections_in_use(&self) -> (usize, usize) {
        self.connections.in_use()
    }

    /// What is counted of this store, and of the holder over it.
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Connections for signs of life, which do not wait for each other, nor for rounds that wait for locks.
    pub(crate) fn vital(&self) -> &Connections {
        &self.vital
    }

    /// Why the server can't be used although it answers, as far as new connections have shown.
    pub(crate) fn unfit(&self) -> Option<StoreError> {
        self.fitness.unfit().map(StoreError::from)
    }

    /// How to open a connection of one's own, for LISTEN.
    pub(crate) fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    /// Whether nothing can be heard from other holders and psql.
    pub(crate) fn is_deaf(&self) -> bool {
        self.connections.behind_pooler()
    }

    /// Closes all connections; statements under way end first.
    pub async fn close(&self) {
        self.connections.close().await;
        self.vital.close().await;
    }
}

pub(crate) fn millis(millis: i32) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}
