//! `audit [KEY]`: whether counters are what the blocks say, and making them so.

use clap::Args;

use super::CliError;
use super::database::DatabaseArgs;
use super::output::{Page, Rows, group_name, print, print_line, table};
use super::policy::actor;
use crate::store::Drift;
use crate::{Store, StoreError};

/// Keys that are counted in one statement.
const PAGE: i64 = 100;

#[derive(Debug, Args)]
pub(super) struct AuditArgs {
    /// Only this semaphore; without it, all
    key: Option<String>,
    /// Make counters that differ what the blocks say, and write that to the audit
    #[arg(long)]
    repair: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(super) async fn run(args: AuditArgs) -> Result<(), CliError> {
    let (store, database) = args.database.connect_ready().await?;
    let failed = |error| CliError::database(&database, error);
    let audited = match args.key {
        Some(key) => one(&store, key).await,
        None => all(&store).await,
    };
    let (keys, drift) = audited.map_err(failed)?;
    if drift.is_empty() {
        return print_line(&format!("{keys} semaphores: no counter differs from the blocks that it counts"));
    }
    if !args.repair {
        print(Page::default().table(&shown(&drift)))?;
        return Err(CliError::Drift(drift.len()));
    }
    let repaired = repair(&store, &drift).await.map_err(failed)?;
    let summary = format!("{} counters were put right", repaired.len());
    print(Page::default().table(&shown(&repaired)).line(&summary))
}

/// How many keys were counted, and what differs.
type Counted = (usize, Vec<Drift>);

async fn one(store: &Store, key: String) -> Result<Counted, StoreError> {
    Ok((1, store.verify(&key).await?))
}

async fn all(store: &Store) -> Result<Counted, StoreError> {
    let (mut keys, mut drift, mut after) = (0, Vec::new(), String::new());
    loop {
        let page = store.verify_after(&after, PAGE).await?;
        keys += page.keys.len();
        drift.extend(page.drift);
        match page.keys.into_iter().next_back() {
            Some(last) => after = last,
            None => return Ok((keys, drift)),
        }
    }
}

async fn repair(store: &Store, drift: &[Drift]) -> Result<Vec<Drift>, StoreError> {
    let mut repaired = Vec::new();
    for of_key in drift.chunk_by(|one, next| one.key == next.key) {
        repaired.extend(store.repair(&of_key[0].key, &actor()).await?);
    }
    Ok(repaired)
}

fn shown(drift: &[Drift]) -> Rows {
    let mut rows = table(&["KEY", "GROUP", "COUNTER", ">STORED", ">ACTUAL"]);
    for Drift { key, grp, counter, stored, actual } in drift {
        rows.add_row([
            key.clone(),
            grp.as_deref().map_or("-", group_name).to_owned(),
            counter.clone(),
            stored.to_string(),
            actual.to_string(),
        ]);
    }
    rows
}
