//! Connections that answer in bounded time, or are given up.
//!
//! PostgreSQL bounds its own work by the settings of the session. This bounds the wait for a server or a network that has
//! gone without a word, as a machine does that failed over or froze: TCP notices that after a quarter of an hour, or
//! never, and until then callers, timers and the places in the pool would be lost. A connection that did not answer, or
//! was abandoned while it worked, is closed and not used again.

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{Describe, Either, Error, Execute, Executor, PgConnection, PgPool, Postgres, SqlStr};
use std::io;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// Longer than any statement may take on the server, so that the server's own limits come first.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(25);

/// A pool whose statements end in bounded time.
#[derive(Debug, Clone)]
pub(crate) struct Connections(PgPool);

/// A connection in use.
pub(crate) struct Lent {
    connection: PoolConnection<Postgres>,
    /// All that it was asked is answered: it may be used again.
    answered: bool,
}

impl Connections {
    pub(super) fn new(pool: PgPool) -> Self {
        Self(pool)
    }

    /// The pool itself, for work that may take long.
    pub(super) fn unbounded(&self) -> &PgPool {
        &self.0
    }

    pub(super) async fn lend(&self) -> Result<Lent, Error> {
        Ok(Lent { connection: self.0.acquire().await?, answered: false })
    }
}

/// What `work` on a connection results in, if that is soon enough.
pub(super) async fn bounded<T>(work: impl Future<Output = T>) -> Result<T, Error> {
    let why = format!("no answer within {} s", ANSWER_TIMEOUT.as_secs());
    let late = |_| Error::Io(io::Error::new(io::ErrorKind::TimedOut, why));
    tokio::time::timeout(ANSWER_TIMEOUT, work).await.map_err(late)
}

/// Statements outside transactions; each on a connection of its own.
impl<'c> Executor<'c> for &'c Connections {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let steps = async move {
            let mut lent = self.lend().await?;
            let steps: Vec<_> = bounded(lent.fetch_many(query).collect()).await?;
            lent.give_back();
            Ok::<_, Error>(stream::iter(steps))
        };
        stream::once(steps).try_flatten().boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        Box::pin(async move {
            let mut lent = self.lend().await?;
            let row = bounded(lent.fetch_optional(query)).await?;
            lent.give_back();
            row
        })
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, Error>>
    where
        'c: 'e,
    {
        self.0.prepare_with(sql, parameters)
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<Describe<Postgres>, Error>>
    where
        'c: 'e,
    {
        self.0.describe(sql)
    }
}

impl Lent {
    /// Gives the connection back.
    pub(super) fn give_back(mut self) {
        self.answered = true;
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if !self.answered {
            self.connection.close_on_drop();
        }
    }
}

impl Deref for Lent {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}
