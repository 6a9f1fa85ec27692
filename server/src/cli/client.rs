//! `client list` and `client settle`: who holds what, and declaring one dead.

use clap::{Args, Subcommand};
use pgsemaphore_allocation::{ClientId, SemaphoreKey};

use super::CliError;
use super::ask::confirmed;
use super::database::DatabaseArgs;
use super::output::{Page, ago, print, print_json, print_line, table};
use super::policy::actor;
use crate::store::KnownClient;

#[derive(Debug, Subcommand)]
pub(super) enum ClientCommand {
    /// Show clients and what they hold
    List(ListArgs),
    /// Declare a client dead on a key: what it holds comes back, and its processes are refused from now on
    ///
    /// Make sure that it runs nothing more: what its items still do is not counted any longer. Asks if the client was heard
    /// within 10 minutes.
    Settle(SettleArgs),
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Only those of this semaphore
    key: Option<String>,
    /// Only those that hold permits and were not heard for over 10 minutes
    #[arg(long)]
    unheard: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

#[derive(Debug, Args)]
pub(super) struct SettleArgs {
    /// The semaphore
    key: String,
    /// The client, as `client list` shows it
    client_id: String,
    /// Why, for the audit
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Do not ask, although the client was heard lately
    #[arg(long)]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(super) async fn run(command: ClientCommand) -> Result<(), CliError> {
    match command {
        ClientCommand::List(args) => list(&args).await,
        ClientCommand::Settle(args) => settle(&args).await,
    }
}

async fn list(args: &ListArgs) -> Result<(), CliError> {
    let (store, database) = args.database.connect_ready().await?;
    let clients = store.clients(args.key.as_deref(), args.unheard).await;
    let clients = clients.map_err(|error| CliError::database(&database, error))?;
    if args.json { print_json(&clients) } else { print(&listed(&clients)) }
}

fn listed(clients: &[KnownClient]) -> Page {
    let mut page = Page::default();
    if clients.is_empty() {
        page.line("no such clients");
        return page;
    }
    let mut rows = table(&["KEY", "CLIENT", ">GENERATION", ">GRANTS", ">LEASES", ">LAST SEEN", "STATE"]);
    for client in clients {
        rows.add_row([
            client.key.clone(),
            client.client_id.clone(),
            client.generation.to_string(),
            client.grants.to_string(),
            client.leases.to_string(),
            format!("{} ago", ago(client.last_seen_ms_ago)),
            if client.unheard { "unheard" } else { "heard" }.to_owned(),
        ]);
    }
    page.table(&rows);
    page
}

async fn settle(args: &SettleArgs) -> Result<(), CliError> {
    let (store, database) = args.database.connect_ready().await?;
    let (key, client) = (SemaphoreKey::new(args.key.as_str()), ClientId::new(args.client_id.as_str()));
    let known = store.clients(Some(&args.key), false).await;
    let known = known.map_err(|error| CliError::database(&database, error))?;
    let heard = known.iter().find(|known| known.client_id == args.client_id && known.is_heard());
    let yes = args.yes || agreed(heard)?;
    let settled = store.settle_client(&key, &client, args.reason.as_deref(), &actor(), yes).await;
    let settled = settled.map_err(|error| CliError::settle(&args.key, &args.client_id, &database, error))?;
    if args.json {
        return print_json(&settled);
    }
    print_line(&format!(
        "{} of {}: {} permits of grants and {} of leases came back; generations below {} are refused",
        settled.client_id, settled.key, settled.grants, settled.leases, settled.generation
    ))
}

/// Whether the person at the terminal says that a client is dead that was heard lately.
fn agreed(heard: Option<&KnownClient>) -> Result<bool, CliError> {
    let Some(client) = heard else { return Ok(false) };
    let doing = format!(
        "{:?} was heard {} ago and holds {} permits of {:?} ({} of grants, {} of leases)",
        client.client_id,
        ago(client.last_seen_ms_ago),
        client.grants + client.leases,
        client.key,
        client.grants,
        client.leases
    );
    let question = format!("{doing}. What it runs would not be counted any more, and it would be refused.");
    if confirmed(&question)? { Ok(true) } else { Err(CliError::ClientHeard(doing)) }
}
