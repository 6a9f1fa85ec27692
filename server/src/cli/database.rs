//! Which database a command speaks to.

use std::str::FromStr as _;

use clap::Args;
use sqlx::postgres::PgConnectOptions;

use super::CliError;
use crate::Store;
use crate::store::StoreError;

#[derive(Debug, Args)]
pub(super) struct DatabaseArgs {
    /// The database, as postgres://USER:PASSWORD@HOST:PORT/NAME [env: PGSEMAPHORE_DATABASE_URL, else DATABASE_URL]
    ///
    /// Prefer the environment: other users of this machine can read arguments, and so the password.
    #[arg(long, value_name = "URL")]
    pub(super) database_url: Option<String>,
}

impl DatabaseArgs {
    /// The option, else `PGSEMAPHORE_DATABASE_URL`, else `DATABASE_URL`. An empty variable is as good as none.
    pub(super) fn url(&self) -> Result<String, CliError> {
        let variable = |name| std::env::var(name).ok();
        self.database_url
            .clone()
            .or_else(|| variable("PGSEMAPHORE_DATABASE_URL").filter(|url| !url.is_empty()))
            .or_else(|| variable("DATABASE_URL").filter(|url| !url.is_empty()))
            .ok_or(CliError::NoDatabase)
    }

    /// Connects; also answers how to call the database in messages.
    pub(super) async fn connect(&self, connections: u32) -> Result<(Store, String), CliError> {
        connect(&self.url()?, connections, false).await
    }

    /// Connects, and checks that the schema is the one that this program knows.
    pub(super) async fn connect_ready(&self) -> Result<(Store, String), CliError> {
        let (store, name) = self.connect(1).await?;
        store.ready().await.map_err(|error| CliError::database(&name, error))?;
        Ok((store, name))
    }
}

/// Connects; also answers how to call the database in messages.
pub(super) async fn connect(
    url: &str,
    connections: u32,
    behind_pooler: bool,
) -> Result<(Store, String), CliError> {
    let name = without_password(url);
    let store = match behind_pooler {
        true => Store::connect_behind_pooler(url, connections).await,
        false => Store::connect(url, connections).await,
    };
    match store {
        Ok(store) => Ok((store, name)),
        Err(error @ StoreError::Url(_)) => Err(CliError::DatabaseUrl(error)),
        Err(error) => Err(CliError::database(&name, error)),
    }
}

fn without_password(url: &str) -> String {
    match PgConnectOptions::from_str(url) {
        Ok(options) => {
            let place = match options.get_socket() {
                Some(socket) => socket.display().to_string(),
                None => format!("{}:{}", options.get_host(), options.get_port()),
            };
            let database = options.get_database().unwrap_or(options.get_username());
            format!("postgres://{}@{place}/{database}", options.get_username())
        }
        Err(_) => "the database".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::without_password;

    #[test]
    fn names_of_databases_have_no_password() {
        let name = without_password("postgres://me:secret@db.example:5433/jobs?sslmode=require");
        assert_eq!(name, "postgres://me@db.example:5433/jobs");
        assert_eq!(without_password("secret"), "the database");
    }
}
