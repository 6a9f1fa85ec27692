//! Which database a command speaks to, and the password it does so with.

use std::path::PathBuf;
use std::str::FromStr as _;

use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sqlx::postgres::PgConnectOptions;

use super::CliError;
use crate::Store;
use crate::live::Unusable;
use crate::store::StoreError;

/// What is heeded behind the `?` of a database's URL.
const PARAMETERS: [&str; 18] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
    "statement-cache-capacity",
];
/// Its password, by itself.
const PASSWORD: &str = "PGSEMAPHORE_DATABASE_PASSWORD";

#[derive(Debug, Args)]
pub(super) struct DatabaseArgs {
    /// The database, as postgres://USER@HOST:PORT/NAME [env: PGSEMAPHORE_DATABASE_URL, else DATABASE_URL]
    ///
    /// With ?sslmode=verify-full&sslrootcert=FILE the connection is encrypted, and the server is the right one.
    ///
    /// A password may be in the URL, percent-encoded; then prefer the environment, because other users of this machine
    /// can read arguments.
    #[arg(long, value_name = "URL")]
    pub(super) database_url: Option<String>,

    /// A file with the password of the database, in place of the URL's [else: PGSEMAPHORE_DATABASE_PASSWORD]
    #[arg(long, env = "PGSEMAPHORE_DATABASE_PASSWORD_FILE", value_name = "FILE")]
    database_password_file: Option<PathBuf>,
}

impl DatabaseArgs {
    /// The option, else `PGSEMAPHORE_DATABASE_URL`, else `DATABASE_URL`. An empty variable is as good as none. A
    /// password that is given by itself is in it.
    pub(super) fn url(&self) -> Result<String, CliError> {
        let url = self
            .database_url
            .clone()
            .or_else(|| variable("PGSEMAPHORE_DATABASE_URL"))
            .or_else(|| variable("DATABASE_URL"))
            .ok_or(CliError::NoDatabase)?;
        let mut url = checked(&url)?;
        if let Some(password) = self.password()? {
            url.push(if url.contains('?') { '&' } else { '?' });
            url.push_str("password=");
            url.extend(utf8_percent_encode(&password, NON_ALPHANUMERIC));
        }
        Ok(url)
    }

    fn password(&self) -> Result<Option<String>, Unusable> {
        let Some(file) = &self.database_password_file else { return Ok(variable(PASSWORD)) };
        let read = std::fs::read_to_string(file).map_err(|why| Unusable::file(file, why.to_string()))?;
        let password = read.strip_suffix('\n').unwrap_or(&read);
        let password = password.strip_suffix('\r').unwrap_or(password);
        if password.is_empty() {
            return Err(Unusable::file(file, "there is no password"));
        }
        Ok(Some(password.to_owned()))
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

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
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

/// The URL with the parameters that are heeded. A password that is not percent-encoded may end up in another part of a
/// URL, and from there in messages: such URLs are refused, and parameters that nobody knows are not told to anybody.
fn checked(url: &str) -> Result<String, CliError> {
    let host = url.find("://").map_or(0, |at| at + 3);
    let behind_host = url[host..].find(['/', '?', '#']).map_or("", |at| &url[host + at..]);
    if behind_host.contains(['@', '#']) {
        return Err(CliError::Unencoded);
    }
    let Some((place, parameters)) = url.split_once('?') else { return Ok(url.to_owned()) };
    let mut heeded = Vec::new();
    for (number, parameter) in (1..).zip(parameters.split('&')) {
        let name = parameter.split('=').next().unwrap_or_default();
        if PARAMETERS.contains(&name) || name.starts_with("options[") {
            heeded.push(parameter);
        } else {
            tracing::warn!("parameter {number} of the database URL is not one that is known here: ignored");
        }
    }
    Ok(format!("{place}?{}", heeded.join("&")))
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
    use super::{checked, without_password};

    #[test]
    fn names_of_databases_have_no_password() {
        let name = without_password("postgres://me:secret@db.example:5433/jobs?sslmode=require");
        assert_eq!(name, "postgres://me@db.example:5433/jobs");
        assert_eq!(without_password("secret"), "the database");
    }

    #[test]
    fn a_password_that_spills_over_is_refused() {
        for good in [
            "postgres://me:se%40cret@db:5433/jobs?sslmode=verify-full&sslrootcert=/a/b",
            "postgres://me:a@b@db/jobs",
            "postgres:///jobs?host=/var/run/postgresql&options[search_path]=x",
            "postgres://db",
            "nonsense",
        ] {
            assert_eq!(checked(good).ok().as_deref(), Some(good));
        }
        for spilt in [
            "postgres://me:12/secret@db/jobs",
            "postgres://me:12?secret@db/jobs",
            "postgres://me:12#secret@db/jobs",
            "postgres://db/jobs#secret",
        ] {
            let error = checked(spilt).expect_err(spilt).to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        let unknown = checked("postgres://db/jobs?sslmode=require&channel_binding=require&port=1");
        assert_eq!(unknown.ok().as_deref(), Some("postgres://db/jobs?sslmode=require&port=1"));
    }
}
