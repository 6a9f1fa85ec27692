//! `roles create`: who may read, administer and serve.

use clap::{Args, Subcommand};

use super::CliError;
use super::database::DatabaseArgs;
use super::output::print_line;

#[derive(Debug, Subcommand)]
pub(super) enum RolesCommand {
    /// Create the roles pgsemaphore_reader, pgsemaphore_admin and pgsemaphore_holder, and grant them what they may do
    ///
    /// Belongs to the owner of the schemas, who must be allowed to create roles. Safe to repeat; to be repeated after
    /// each migration. None of the roles logs in: make logins members of them. What is run is docs/roles.sql.
    Create(CreateArgs),
}

#[derive(Debug, Args)]
pub(super) struct CreateArgs {
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(super) async fn run(command: RolesCommand) -> Result<(), CliError> {
    let RolesCommand::Create(args) = command;
    let (store, database) = args.database.connect_ready().await?;
    store.create_roles().await.map_err(|error| CliError::database(&database, error))?;
    print_line(
        "pgsemaphore_reader, pgsemaphore_admin and pgsemaphore_holder are ready: make logins members of them",
    )
}
