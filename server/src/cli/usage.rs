//! `usage [KEY]`: what counts against the limits, now or every second.

use std::time::Duration;

use clap::Args;

use super::CliError;
use super::database::DatabaseArgs;
use super::output::{Page, ago, clear_screen, group_name, or_dash, print, print_json, table};
use crate::Store;
use crate::store::{SemaphorePage, Usage};

const PAGE: u16 = 1000;
const REDRAW_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(super) struct UsageArgs {
    /// The semaphore; without it, a list of all that were used lately
    key: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print again every second, until Ctrl-C
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(super) async fn run(args: UsageArgs) -> Result<(), CliError> {
    let (store, database) = args.database.connect_ready().await?;
    if !args.watch {
        return show(&args, &store, &database).await;
    }
    let redraw = async {
        let mut ticks = tokio::time::interval(REDRAW_EVERY);
        loop {
            ticks.tick().await;
            clear_screen()?;
            show(&args, &store, &database).await?;
        }
    };
    tokio::select! {
        outcome = redraw => outcome,
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

async fn show(args: &UsageArgs, store: &Store, database: &str) -> Result<(), CliError> {
    match &args.key {
        Some(key) => {
            let usage = store.usage(key).await.map_err(|error| CliError::database(database, error))?;
            let usage = usage.ok_or_else(|| CliError::NoSemaphore(key.clone()))?;
            if args.json { print_json(&usage) } else { print(&one(&usage)) }
        }
        None => {
            let all = all_pages(store).await.map_err(|error| CliError::database(database, error))?;
            if args.json { print_json(&all) } else { print(&list(&all)) }
        }
    }
}

async fn all_pages(store: &Store) -> Result<SemaphorePage, crate::StoreError> {
    let mut all = store.semaphores("", "", PAGE).await?;
    while let Some(after) = all.next.take() {
        let page = store.semaphores("", &after, PAGE).await?;
        all.semaphores.extend(page.semaphores);
        all.next = page.next;
    }
    Ok(all)
}

fn list(all: &SemaphorePage) -> Page {
    let mut page = Page::default();
    if all.semaphores.is_empty() {
        page.line("no semaphore was used lately");
        return page;
    }
    let mut rows = table(&["KEY", ">LIMIT", ">GRANTS", ">LEASES", ">AVAILABLE", "CONTENDED"]);
    for semaphore in &all.semaphores {
        rows.add_row([
            semaphore.key.clone(),
            or_dash(semaphore.limit),
            semaphore.grants.to_string(),
            semaphore.leases.to_string(),
            or_dash(semaphore.available),
            yes(semaphore.contended),
        ]);
    }
    page.table(&rows);
    page
}

fn one(usage: &Usage) -> Page {
    let mut head =
        table(&["KEY", "POLICY", ">LIMIT", ">EXTRA", ">GRANTS", ">LEASES", ">AVAILABLE", "CONTENDED"]);
    head.add_row([
        usage.key.clone(),
        or_dash(usage.pattern.as_ref()),
        or_dash(usage.limit),
        usage.extra.to_string(),
        usage.grants.to_string(),
        usage.leases.to_string(),
        or_dash(usage.available),
        yes(usage.contended),
    ]);
    let mut groups = table(&["GROUP", ">LIMIT", ">GRANTS", ">LEASES", "CONTENDED"]);
    for group in &usage.groups {
        groups.add_row([
            group_name(&group.group).to_owned(),
            or_dash(group.limit),
            group.grants.to_string(),
            group.leases.to_string(),
            yes(group.contended),
        ]);
    }
    let mut clients = table(&["CLIENT", ">GENERATION", ">GRANTS", ">LEASES", ">LAST SEEN"]);
    for client in &usage.clients {
        clients.add_row([
            client.client_id.clone(),
            client.generation.to_string(),
            client.grants.to_string(),
            client.leases.to_string(),
            format!("{} ago", ago(client.last_seen_ms_ago)),
        ]);
    }
    let mut blocked = table(&["BLOCKED", "GROUP", ">ITEMS", "REASON", ">SINCE"]);
    for entry in &usage.blocked {
        blocked.add_row([
            entry.client_id.clone(),
            group_name(&entry.group).to_owned(),
            entry.count.to_string(),
            entry.reason.clone(),
            format!("{} ago", ago(entry.since_ms_ago)),
        ]);
    }
    let mut page = Page::default();
    page.table(&head);
    for rows in [groups, clients, blocked].iter().filter(|rows| !rows.is_empty()) {
        page.line("").table(rows);
    }
    if usage.truncated {
        page.line("").line("only the first 1000 of each list are shown");
    }
    page
}

fn yes(truth: bool) -> String {
    if truth { "yes" } else { "no" }.to_owned()
}
