//! The command line: what each command reads, prints and exits with.
//!
//! Exit codes: 0 done, 1 failed, 2 usage or configuration. A failure is one line on standard error that says what to
//! do. Results go to standard output, logs to standard error.

mod access;
mod ask;
mod audit;
mod client;
mod database;
mod duration;
mod error;
mod explain;
mod output;
mod policy;
mod policy_fields;
mod policy_file;
mod quote;
mod remedies;
mod roles;
mod serve;
mod uninstall;
mod unseen;
mod usage;

pub(crate) use error::CliError;
pub(crate) use output::{Rows, table};

use std::process::ExitCode;

use crate::telemetry::{LogArgs, Telemetry};
use clap::{Args, Parser, Subcommand};
use database::DatabaseArgs;

/// A shared concurrency budget on PostgreSQL.
#[derive(Debug, Parser)]
#[command(name = "pgsemaphore", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    logs: LogArgs,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a holder: the server that job queues ask for permits
    Serve(Box<serve::ServeArgs>),
    /// Bring the schema of the database up to date
    ///
    /// Belongs to the owner of the schemas, over a connection without a pooler between. Of several at once one does it
    /// and the others wait; where it failed, the next one goes on.
    Migrate(MigrateArgs),
    /// Create the database roles that read, administer and serve
    #[command(subcommand)]
    Roles(roles::RolesCommand),
    /// Remove everything that pgsemaphore keeps in the database
    Uninstall(uninstall::UninstallArgs),
    /// Set, show and delete the policies that say how many permits there are
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Show what is in use: of all semaphores, or of one
    Usage(usage::UsageArgs),
    /// Show why work waits for a semaphore, and what would let it go on
    Explain(explain::ExplainArgs),
    /// Show who holds permits, and declare clients dead that are gone
    #[command(subcommand)]
    Client(client::ClientCommand),
    /// Count again what counters say, and put those right that are wrong
    Audit(audit::AuditArgs),
    /// See it work: four worker processes, two tenants, 200 jobs, one limit, and a count of what ran at once
    Demo,
    /// A worker process of the demo
    #[command(hide = true)]
    DemoWorker(crate::demo::WorkerArgs),
}

#[derive(Debug, Args)]
struct MigrateArgs {
    #[command(flatten)]
    database: DatabaseArgs,
}

/// Runs the command that the arguments of this process name.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match start(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let line = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
            eprintln!("pgsemaphore: {}", queue_wire::printable(&line));
            ExitCode::from(error.exit_code())
        }
    }
}

fn start(cli: Cli) -> Result<(), CliError> {
    let telemetry = Telemetry::start(&cli.logs, matches!(cli.command, Command::Serve(_)))?;
    let runtime = tokio::runtime::Runtime::new().map_err(CliError::Runtime)?;
    let outcome = runtime.block_on(run(cli.command, &telemetry));
    runtime.shutdown_background();
    telemetry.end();
    outcome
}

/// Ready when standard input ends: the process that started us is gone, or wants us to go.
pub(crate) async fn stdin_ended() {
    let (ended, wait) = tokio::sync::oneshot::channel();
    // A thread of its own: a read of standard input can't be cancelled, and the runtime would wait for it.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = ended.send(());
    });
    let _ = wait.await;
}

async fn run(command: Command, telemetry: &Telemetry) -> Result<(), CliError> {
    match command {
        Command::Serve(args) => serve::run(*args, telemetry).await,
        Command::Migrate(args) => {
            let (store, url) = args.database.connect(1).await?;
            store.migrate().await.map_err(|error| CliError::database(&url, error))?;
            output::print_line("the schema is up to date")
        }
        Command::Policy(command) => policy::run(command).await,
        Command::Roles(command) => roles::run(command).await,
        Command::Uninstall(args) => uninstall::run(args).await,
        Command::Usage(args) => usage::run(args).await,
        Command::Explain(args) => explain::run(args).await,
        Command::Client(command) => client::run(command).await,
        Command::Audit(args) => audit::run(args).await,
        Command::Demo => Ok(crate::demo::run().await?),
        Command::DemoWorker(args) => Ok(crate::demo::work(args).await?),
    }
}
