//! `serve`: a holder as a process, from its options to its orderly end.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, channel};

use super::access::AccessArgs;
use super::database::{self, DatabaseArgs};
use super::output::print_line;
use super::{CliError, duration};
use crate::embedded::{Embedded, EmbeddedError, Options};
use crate::http;
use crate::telemetry::Telemetry;
use crate::{Holder, Settings};

/// Files that callers may not take, beside those of connections to the database: who takes all others must not cut a
/// holder off from it.
const OTHER_FILES: u64 = 64;

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// Where to listen; port 0 takes any free one. The first line of output names the address
    #[arg(
        long,
        env = "PGSEMAPHORE_LISTEN",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:7432",
        value_parser = address
    )]
    listen: SocketAddr,

    /// Where other holders reach this one, and no other: by default the address that it listens on
    ///
    /// Not through a balancer. Holders pass requests on to each other.
    #[arg(long, env = "PGSEMAPHORE_ADVERTISE_URL", value_name = "URL", value_parser = crate::address::origin)]
    advertise_url: Option<String>,

    #[command(flatten)]
    database: DatabaseArgs,

    /// Bring the schema up to date first, as `pgsemaphore migrate` does
    #[arg(long, env = "PGSEMAPHORE_MIGRATE")]
    migrate: bool,

    /// The database is reached through a pooler in transaction mode, such as PgBouncer
    ///
    /// Its login must have the settings of the role pgsemaphore_holder (`pgsemaphore roles create`). Changes that psql
    /// and other holders make are noticed within 5 s instead of at once. Migrating needs a direct connection.
    #[arg(long, env = "PGSEMAPHORE_POOLER", conflicts_with_all = ["migrate", "embedded"])]
    pooler: bool,

    /// Run a private PostgreSQL in this folder, from the server binaries of this machine
    ///
    /// It listens on 127.0.0.1 only, keeps its data between starts, and ends with this process. Its URL is in the file
    /// DIR/url, and stays the same while its port is free at the next start. Implies --migrate. No other database is used
    /// then.
    #[arg(
        long,
        env = "PGSEMAPHORE_EMBEDDED",
        value_name = "DIR",
        num_args = 0..=1,
        default_missing_value = "pgsemaphore-data",
        conflicts_with = "database_url"
    )]
    embedded: Option<PathBuf>,

    #[command(flatten)]
    access: AccessArgs,

    /// Although no access tokens are configured, listen on an address that other machines reach, and answer whatever name
    /// the holder is called by
    #[arg(long, env = "PGSEMAPHORE_INSECURE")]
    insecure: bool,

    /// Largest number of connections from callers; further ones wait until one ends. Fewer where the limit of open files
    /// leaves no room for so many
    #[arg(
        long,
        env = "PGSEMAPHORE_CONNECTIONS",
        value_name = "N",
        default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    connections: u32,

    /// Largest number of connections to the database for calls; three more serve signs of life and news
    #[arg(
        long,
        env = "PGSEMAPHORE_DATABASE_CONNECTIONS",
        value_name = "N",
        default_value_t = 8,
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    database_connections: u32,

    /// Delete what is stored about a key that nobody uses after this time, like 600s or 10m
    #[arg(
        long,
        env = "PGSEMAPHORE_FORGET_AFTER",
        value_name = "TIME",
        default_value = "10m",
        value_parser = duration::parse
    )]
    forget_after: Duration,

    /// How often to look at the database for metrics, and to count again what the counters of some keys say
    #[arg(
        long,
        env = "PGSEMAPHORE_SELF_CHECK_EVERY",
        value_name = "TIME",
        default_value = "10s",
        value_parser = duration::parse
    )]
    self_check_every: Duration,

    /// Give this key metrics of its own; may be repeated, in the environment separated by commas
    #[arg(long = "metrics-key", env = "PGSEMAPHORE_METRICS_KEY", value_name = "KEY", value_delimiter = ',')]
    metrics_keys: Vec<String>,

    /// End when standard input does, so as not to outlive the process that started this one
    #[arg(long, hide = true)]
    end_with_stdin: bool,
}

pub(super) async fn run(args: ServeArgs, telemetry: &Telemetry) -> Result<(), CliError> {
    let options = options(&args).await?;
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    // Before anything slow: a port that is in use is found out at once, and early callers wait instead of failing.
    let failed_to_listen = |source| CliError::Listen { address: args.listen, source };
    let listener = TcpListener::bind(args.listen).await.map_err(failed_to_listen)?;
    let address = listener.local_addr().map_err(failed_to_listen)?;
    let mut asked = asked_to_end(args.end_with_stdin)?;

    let url = format!("{scheme}://{address}");
    let (holder, embedded) = tokio::select! {
        started = start(&args, &url) => started?,
        _ = asked.recv() => return Ok(()),
    };
    telemetry.observe(&holder);
    http::serve(listener, holder, options, asked).await;
    if let Some(embedded) = embedded {
        // Stops PostgreSQL, which blocks.
        let _ = tokio::task::spawn_blocking(move || drop(embedded)).await;
    }
    tracing::info!("ended");
    Ok(())
}

/// A holder that is reached at `url`, and the PostgreSQL that is its own.
async fn start(args: &ServeArgs, url: &str) -> Result<(Holder, Option<Embedded>), CliError> {
    let embedded = match &args.embedded {
        Some(folder) => Some(start_embedded(folder.clone()).await?),
        None => None,
    };
    let database = match &embedded {
        Some(embedded) => embedded.url(),
        None => args.database.url()?,
    };
    let (store, database) = database::connect(&database, args.database_connections, args.pooler).await?;
    let failed = |error| CliError::database(&database, error);
    if args.migrate || embedded.is_some() {
        store.migrate().await.map_err(failed)?;
    }
    store.ready().await.map_err(failed)?;
    let settings = Settings {
        forget_after: args.forget_after,
        self_check_every: args.self_check_every,
        metrics_keys: args.metrics_keys.clone(),
    };
    if args.listen.ip().is_unspecified() && args.advertise_url.is_none() {
        tracing::warn!("other holders can't reach this one at {url}: give --advertise-url if there are any");
    }
    let advertised = args.advertise_url.as_deref().unwrap_or(url);
    let holder = Holder::start(store, advertised, settings).await;
    print_line(&format!("listening on {url}"))?;
    tracing::info!(url, %database, "serving");
    Ok((holder, embedded))
}

/// Who may call, and how many.
async fn options(args: &ServeArgs) -> Result<http::Options, CliError> {
    let (access, tls) = (args.access.access().await?, args.access.tls().await?);
    let peers = Some(args.access.peers().await?);
    let exposed = !args.listen.ip().is_loopback();
    if exposed && !access.needs_token() && !args.insecure {
        return Err(CliError::Exposed(args.listen));
    }
    if exposed && access.needs_token() && tls.is_none() {
        tracing::warn!("tokens travel unencrypted: give --tls-cert, unless something in front speaks TLS");
    }
    let files = raise_file_limit().saturating_sub(OTHER_FILES + u64::from(args.database_connections));
    let connections = files.clamp(1, u64::from(args.connections));
    if connections < u64::from(args.connections) {
        tracing::info!(connections, "the limit of open files leaves room for so many callers");
    }
    let connections = usize::try_from(connections).unwrap_or(usize::MAX);
    Ok(http::Options { access, tls, peers, connections, any_host: args.insecure })
}

/// A connection is an open file; the limit that a process starts with is often far below what it may have. Answers how
/// many files may be open.
fn raise_file_limit() -> u64 {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most).map(|()| most));
    raised.unwrap_or_else(|error| {
        tracing::warn!(%error, "the limit of open files stays as it is");
        u64::MAX
    })
}

async fn start_embedded(folder: PathBuf) -> Result<Embedded, EmbeddedError> {
    let start = tokio::task::spawn_blocking(move || Embedded::start(&Options::in_folder(folder)));
    let embedded = start.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
    let url = embedded.folder().join("url");
    tracing::info!(pid = embedded.pid(), "embedded PostgreSQL started; its URL is in {}", url.display());
    Ok(embedded)
}

/// Says so at each SIGTERM, at each Ctrl-C, and on wish when standard input ends before that.
fn asked_to_end(with_stdin: bool) -> Result<Receiver<()>, CliError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(CliError::Runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CliError::Runtime)?;
    let (asks, asked) = channel(1);
    tokio::spawn(async move {
        let mut first = true;
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = crate::cli::stdin_ended(), if with_stdin && first => {}
            }
            first = false;
            tracing::info!("asked to end");
            if asks.send(()).await.is_err() {
                return;
            }
        }
    });
    Ok(asked)
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let mut found =
        text.to_socket_addrs().map_err(|error| format!("{error}; say HOST:PORT, like 127.0.0.1:7432"))?;
    found.next().ok_or_else(|| "this name has no address".to_owned())
}
