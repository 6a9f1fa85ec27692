//! `uninstall`: leaves the database as if pgsemaphore had never been there.

use clap::Args;

use super::CliError;
use super::ask::confirmed;
use super::database::DatabaseArgs;
use super::output::print_line;

#[derive(Debug, Args)]
pub(super) struct UninstallArgs {
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Also while permits are in use: what runs on them is not counted any longer
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(super) async fn run(args: UninstallArgs) -> Result<(), CliError> {
    let (store, database) = args.database.connect(1).await?;
    let question = format!(
        "This drops the schemas pgsemaphore and pgsemaphore_data of {database}, with all policies, permits in use and the audit."
    );
    if !args.yes && !confirmed(&question)? {
        return Err(CliError::Unconfirmed);
    }
    store.uninstall(args.force).await.map_err(|error| CliError::uninstall(&database, error))?;
    print_line("the schemas pgsemaphore and pgsemaphore_data are gone; roles were left as they are")
}
