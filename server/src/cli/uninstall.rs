//! `uninstall`: leaves the database as if pgsemaphore had never been there.

use std::io::{IsTerminal as _, Write as _};

use clap::Args;

use super::CliError;
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
    if !args.yes && !confirmed(&database)? {
        return Err(CliError::Unconfirmed);
    }
    store.uninstall(args.force).await.map_err(|error| CliError::uninstall(&database, error))?;
    print_line("the schemas pgsemaphore and pgsemaphore_data are gone; roles were left as they are")
}

/// Asks the person at the terminal; without one nobody agrees.
fn confirmed(database: &str) -> Result<bool, CliError> {
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    let mut terminal = std::io::stderr();
    let question = format!(
        "This drops the schemas pgsemaphore and pgsemaphore_data of {database}, with all policies, permits in use and \
         the audit. Type yes to go on: "
    );
    terminal.write_all(question.as_bytes()).and_then(|()| terminal.flush()).map_err(CliError::Output)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(CliError::Runtime)?;
    Ok(answer.trim() == "yes")
}
