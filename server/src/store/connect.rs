//! Connections: pinned plans, timeouts, and the check of what they lead to.

use super::StoreError;
use super::fitness::{self, Fitness};
use super::session::SESSION_SETTINGS;
use crate::trouble;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection, PgConnection, PgPool, Row as _};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// A caller waits at most this long for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);
/// A connection that idled longer is tried before it is used.
const TRY_AFTER_IDLE: Duration = Duration::from_secs(1);

/// How soon PostgreSQL notices that a holder or the network to it is gone, and ends the session with its locks: a
/// connection that idles, one that does not take an answer, and one whose statement waits or works. Behind a pooler it is
/// the pooler whose connections these would be.
const WIRE_SETTINGS: [(&str, &str); 5] = [
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "3"),
    ("tcp_keepalives_count", "3"),
    ("tcp_user_timeout", "15000"),
    ("client_connection_check_interval", "5000"),
];

pub(super) fn options(url: &str) -> Result<PgConnectOptions, StoreError> {
    Ok(plain_options(url)?.options(SESSION_SETTINGS).options(WIRE_SETTINGS))
}

/// Options that a pooler lets pass. The session's settings have to come from its login.
pub(super) fn options_behind_pooler(url: &str) -> Result<PgConnectOptions, StoreError> {
    Ok(plain_options(url)?.extra_float_digits(None).statement_cache_capacity(0))
}

fn plain_options(url: &str) -> Result<PgConnectOptions, StoreError> {
    let options = PgConnectOptions::from_str(url).map_err(StoreError::Url)?;
    Ok(without_brackets(options).application_name("pgsemaphore"))
}

/// An IPv6 address stands in brackets in a URL. The resolver of hosts wants it without.
fn without_brackets(options: PgConnectOptions) -> PgConnectOptions {
    let address = options.get_host().strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match address.map(ToOwned::to_owned) {
        Some(address) => options.host(&address),
        None => options,
    }
}

/// Opens a connection outside the pools, which takes writes.
pub(super) async fn open(options: &PgConnectOptions) -> Result<PgConnection, StoreError> {
    let mut connection = connect(options).await?;
    match fitness::examine(&mut connection).await? {
        Some(unfit) => Err(unfit.into()),
        None => Ok(connection),
    }
}

/// Connects once, to learn whether the database can be used.
pub(super) async fn check(options: &PgConnectOptions) -> Result<(), StoreError> {
    let mut first = open(options).await?;
    let missing = missing_settings(&mut first).await?;
    if missing.is_empty() { Ok(()) } else { Err(StoreError::Settings { missing }) }
}

/// A pool of connections that are opened as they are needed. One that leads to a server which can't be used is closed,
/// and tried again while its caller waits.
pub(super) fn pool(options: &PgConnectOptions, connections: u32, fitness: &Arc<Fitness>) -> PgPool {
    let (known, seen) = (fitness.clone(), fitness.clone());
    let pool = PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .test_before_acquire(false)
        .before_acquire(move |connection, meta| {
            let trusted = known.trusts(meta.age);
            Box::pin(async move {
                let fresh = meta.idle_for < TRY_AFTER_IDLE;
                Ok(trusted && (fresh || connection.ping().await.is_ok()))
            })
        })
        .after_connect(move |connection, _| {
            let seen = seen.clone();
            Box::pin(async move {
                let unfit = fitness::examine(connection).await?;
                seen.found(unfit);
                let Some(unfit) = unfit.map(StoreError::from) else { return Ok(()) };
                trouble::tell(&"a new connection is of no use", &unfit);
                Err(sqlx::Error::Configuration(Box::new(unfit)))
            })
        });
    pool.connect_lazy_with(options.clone())
}

async fn connect(options: &PgConnectOptions) -> Result<PgConnection, StoreError> {
    let connected = tokio::time::timeout(ACQUIRE_TIMEOUT, PgConnection::connect_with(options)).await;
    connected.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map_err(|error| match error.into() {
        StoreError::Fault(error) => StoreError::Unavailable(error),
        other => other,
    })
}

/// Which of [`SESSION_SETTINGS`] do not hold, as `name = value`.
async fn missing_settings(connection: &mut PgConnection) -> Result<String, sqlx::Error> {
    let mut missing = Vec::new();
    for row in sqlx::raw_sql(include_str!("../../queries/read_settings.sql")).fetch_all(connection).await? {
        let (name, found): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let wanted = SESSION_SETTINGS.iter().find(|(wanted, _)| *wanted == name);
        missing.extend(
            wanted.filter(|(_, value)| *value != found).map(|(name, value)| format!("{name} = {value}")),
        );
    }
    Ok(missing.join(", "))
}

#[cfg(test)]
mod tests {
    use super::plain_options;

    /// O-34
    #[test]
    fn an_address_of_ipv6_stands_in_brackets_in_the_url_alone() {
        for (url, host) in [
            ("postgresql://u@[::1]:5432/db", "::1"),
            ("postgres://u@[2001:db8::7]/db?sslmode=disable", "2001:db8::7"),
            ("postgres://u@127.0.0.1:5432/db", "127.0.0.1"),
            ("postgres://u@db.example/db", "db.example"),
        ] {
            assert_eq!(plain_options(url).expect(url).get_host(), host, "{url}");
        }
    }
}
