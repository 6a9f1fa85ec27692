//! Connections that answer in bounded time, or are given up.
//!
//! PostgreSQL bounds its own work by the settings of the session. This bounds the wait for a server or a network that has
//! gone without a word, as a machine does that failed over or froze: TCP notices that after a quarter of an hour, or
//! never, and until then callers, timers and the places in the pool would be lost. A connection that did not answer, or
//! was abandoned while it worked, is closed and not used again.
//!
//! Behind a pooler in transaction mode each transaction may be on another session of PostgreSQL. So no prepared statement
//! gets a name, and what needs no transaction runs in one all the same: to be parsed and executed takes two messages.

use super::StoreError;
use super::fitness::{Fitness, refused_write};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use sqlx::error::BoxDynError;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{Connection as _, Describe, Either, Error, Execute, Executor, PgPool, Postgres, SqlStr};
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

/// Longer than any statement may take on the server, so that the server's own limits come first.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(25);

/// A pool whose statements end in bounded time.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    pool: PgPool,
    behind_pooler: bool,
    fitness: Arc<Fitness>,
}

/// A connection in use.
pub(crate) struct Lent {
    session: Session,
    /// All that it was asked is answered: it may be used again.
    answered: bool,
    /// It is not to be used again.
    spoilt: bool,
}

/// A connection as statements use it.
#[derive(Debug)]
pub(crate) struct Session {
    connection: PoolConnection<Postgres>,
    behind_pooler: bool,
}

/// A statement as a session sends it.
struct Sent<E> {
    statement: E,
    named: bool,
}

impl Connections {
    pub(super) fn new(pool: PgPool, behind_pooler: bool, fitness: Arc<Fitness>) -> Self {
        Self { pool, behind_pooler, fitness }
    }

    pub(super) fn behind_pooler(&self) -> bool {
        self.behind_pooler
    }

    /// How many are in use, and how many idle.
    pub(super) fn in_use(&self) -> (usize, usize) {
        let idle = self.pool.num_idle();
        (usize::try_from(self.pool.size()).unwrap_or(usize::MAX).saturating_sub(idle), idle)
    }

    /// Closes all connections; statements under way end first.
    pub(super) async fn close(&self) {
        self.pool.close().await;
    }

    /// A connection; when none could be had the last time, after a pause that grows.
    pub(super) async fn lend(&self) -> Result<Lent, Error> {
        if self.pool.num_idle() == 0 {
            tokio::time::sleep(self.fitness.pause()).await;
        }
        match self.pool.acquire().await {
            Ok(connection) => {
                self.fitness.succeeded();
                let session = Session { connection, behind_pooler: self.behind_pooler };
                Ok(Lent { session, answered: false, spoilt: false })
            }
            Err(error) => {
                self.fitness.failed();
                Err(self.explained(error))
            }
        }
    }

    /// The server takes no writes: no connection that is open now is used again.
    pub(super) fn distrust(&self) {
        self.fitness.distrust();
    }

    /// Why no connection could be had: that those opened were of no use, if that is it.
    fn explained(&self, error: Error) -> Error {
        match (error, self.fitness.unfit()) {
            (Error::PoolTimedOut, Some(unfit)) => Error::Configuration(Box::new(StoreError::from(unfit))),
            (error, _) => error,
        }
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
            let work = async {
                lent.open().await?;
                let steps: Vec<_> = lent.session.fetch_many(query).collect().await;
                lent.shut().await?;
                Ok::<_, Error>(steps)
            };
            let steps = bounded(work).await??;
            if steps.iter().filter_map(|step| step.as_ref().err()).any(refused_write) {
                self.distrust();
            }
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
            let work = async {
                lent.open().await?;
                let row = lent.session.fetch_optional(query).await;
                lent.shut().await?;
                Ok::<_, Error>(row)
            };
            let row = bounded(work).await??;
            if row.as_ref().is_err_and(refused_write) {
                self.distrust();
            }
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
        self.pool.prepare_with(sql, parameters)
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<Describe<Postgres>, Error>>
    where
        'c: 'e,
    {
        self.pool.describe(sql)
    }
}

/// Statements within transactions.
impl<'c> Executor<'c> for &'c mut Session {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let sent = self.sent(query);
        self.connection.fetch_many(sent)
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let sent = self.sent(query);
        self.connection.fetch_optional(sent)
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, Error>>
    where
        'c: 'e,
    {
        self.connection.prepare_with(sql, parameters)
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<Describe<Postgres>, Error>>
    where
        'c: 'e,
    {
        self.connection.describe(sql)
    }
}

impl<'q, E: Execute<'q, Postgres>> Execute<'q, Postgres> for Sent<E> {
    fn sql(self) -> SqlStr {
        self.statement.sql()
    }

    fn statement(&self) -> Option<&PgStatement> {
        self.statement.statement()
    }

    fn take_arguments(&mut self) -> Result<Option<PgArguments>, BoxDynError> {
        self.statement.take_arguments()
    }

    fn persistent(&self) -> bool {
        self.named && self.statement.persistent()
    }
}

impl Session {
    fn sent<E>(&self, statement: E) -> Sent<E> {
        Sent { statement, named: !self.behind_pooler }
    }
}

impl Lent {
    /// Gives the connection back, unless it is spoilt: then it is closed.
    pub(super) fn give_back(mut self) {
        self.answered = !self.spoilt;
    }

    /// Foreign code left the session otherwise than it found it: nothing that was prepared in it is relied on, and nobody
    /// gets it after this.
    pub(super) async fn spoil(&mut self) -> Result<(), Error> {
        self.spoilt = true;
        self.session.connection.clear_cached_statements().await
    }

    /// Before a statement that needs no transaction.
    async fn open(&mut self) -> Result<(), Error> {
        self.behind_pooler("BEGIN").await
    }

    /// After it. Where it failed this rolls back.
    async fn shut(&mut self) -> Result<(), Error> {
        self.behind_pooler("COMMIT").await
    }

    async fn behind_pooler(&mut self, statement: &'static str) -> Result<(), Error> {
        if self.session.behind_pooler {
            sqlx::raw_sql(statement).execute(&mut self.session).await?;
        }
        Ok(())
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if !self.answered {
            self.session.connection.close_on_drop();
        }
    }
}

impl Deref for Lent {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}
