//! The schema as a whole: brought up to date, its roles made, removed.

use super::transaction::commit_once;
use super::{Store, StoreError, connect};
use sqlx::{ConnectOptions as _, Connection as _, Executor, Postgres};

/// The roles, as people can run it with psql.
const ROLES: &str = include_str!("../../../docs/roles.sql");

/// How long a migration waits for a lock, of tables or of another migration. Who waits for a table holds up all that come
/// behind it.
const LOCK_WAIT: &str = "SET lock_timeout = '15s'";

/// Why the schemas were not removed.
#[derive(Debug, thiserror::Error)]
pub enum UninstallError {
    /// Permits are in use.
    #[error("{0} permits are in use")]
    Held(i64),
    /// The database did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for UninstallError {
    fn from(error: sqlx::Error) -> Self {
        StoreError::from(error).into()
    }
}

impl Store {
    /// Applies the migrations that are missing, on a connection of its own and one after the other. Of several that
    /// migrate at once one does it, and the others wait for it, up to 15 s. A database that is newer than this program is
    /// left as it is.
    ///
    /// # Errors
    /// [`StoreError::Migrate`] says which one failed, [`StoreError::MigrateLocked`] that somebody else holds a lock; a later
    /// run goes on from there.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        // A migration may take longer than a round may, and that is nothing to warn of.
        let options = self.options().clone().disable_statement_logging();
        let mut connection = connect::open(&options).await?;
        must_be_ours(&mut connection).await?;
        sqlx::raw_sql("SET statement_timeout = 0").execute(&mut connection).await?;
        sqlx::raw_sql(LOCK_WAIT).execute(&mut connection).await?;
        crate::MIGRATOR.run(&mut connection).await.map_err(StoreError::of_migration)?;
        connection.close().await?;
        Ok(())
    }

    /// Creates the roles that are missing, and grants all of them what they may do in this database.
    ///
    /// # Errors
    /// What the database said; nothing was done then.
    pub async fn create_roles(&self) -> Result<(), StoreError> {
        let mut lent = self.begin_once("BEGIN").await?;
        sqlx::raw_sql(ROLES).execute(&mut *lent).await?;
        commit_once(lent).await?;
        Ok(())
    }

    /// Drops both schemas with all that is in them or depends on it, unless permits are in use and it is not by
    /// `force`. Roles stay: other databases may use them. Without schemas nothing is done.
    ///
    /// # Errors
    /// [`UninstallError`]; nothing was dropped then.
    pub async fn uninstall(&self, force: bool) -> Result<(), UninstallError> {
        let mut lent = self.begin_once("BEGIN").await?;
        must_be_ours(&mut *lent).await?;
        let find = sqlx::query_scalar(include_str!("../../queries/find_semaphores.sql"));
        if find.fetch_one(&mut *lent).await? {
            sqlx::query(include_str!("../../queries/lock_semaphores.sql")).execute(&mut *lent).await?;
            let count = sqlx::query_scalar(include_str!("../../queries/count_held.sql"));
            let held: i64 = count.fetch_one(&mut *lent).await?;
            if held > 0 && !force {
                return Err(UninstallError::Held(held));
            }
        }
        sqlx::query(include_str!("../../queries/drop_schemas.sql")).execute(&mut *lent).await?;
        commit_once(lent).await?;
        Ok(())
    }
}

/// Refuses schemas of ours that somebody else made.
async fn must_be_ours<'c>(database: impl Executor<'c, Database = Postgres>) -> Result<(), StoreError> {
    let query = sqlx::query_as(include_str!("../../queries/read_foreign_schemas.sql"));
    let foreign: Option<(String, String)> = query.fetch_optional(database).await?;
    match foreign {
        None => Ok(()),
        Some((schema, owner)) => Err(StoreError::ForeignSchema { schema, owner }),
    }
}
