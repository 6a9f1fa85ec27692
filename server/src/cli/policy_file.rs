//! `policy apply -f FILE`: policies as a file declares them, such as one that a deployment mounts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::CliError;
use super::database::DatabaseArgs;
use super::output::{Page, print};
use super::policy::user;
use crate::json::{self, Rules};
use crate::policy_body;
use crate::request::{Invalid, decode};
use crate::store::{Applied, ApplyError, Outcome, PolicyError};

#[derive(Debug, Args)]
pub(super) struct ApplyArgs {
    /// The file
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Overwrite policies that were last changed by other means, too
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    policies: BTreeMap<String, Box<RawValue>>,
}

pub(super) async fn run(args: &ApplyArgs) -> Result<(), CliError> {
    let refused = |detail| CliError::PolicyFile { file: args.file.clone(), detail };
    let policies = read(&args.file).map_err(refused)?;
    let (store, database) = args.database.connect_ready().await?;
    let applied = store.apply_policies(&policies, args.force, &format!("apply:{}", user())).await;
    let applied = applied.map_err(|error| match error {
        ApplyError::Policy { pattern, error: PolicyError::Invalid { detail, .. } } => {
            refused(in_policy(&pattern, &detail))
        }
        ApplyError::Policy { pattern, error } => CliError::policy(&pattern, &database, error),
        ApplyError::Store(error) => CliError::database(&database, error),
    })?;
    print(&told(&policies, &applied))
}

/// Patterns, bytewise, and policies; or the policy and the field that break a rule.
fn read(file: &Path) -> Result<Vec<(String, String)>, String> {
    const RULES: Rules = Rules { lists_of_objects: &[], integers_only: false, decimal: "", no_nul: true };
    let body = std::fs::read(file).map_err(|error| error.to_string())?;
    let document = json::scan(&body, RULES).fault.map_or_else(|| decode::<Document>(&body), Err);
    let document = document.map_err(|fault| match fault {
        Invalid::Field { field, detail } if !detail.contains(field.trim_start_matches('/')) => {
            format!("{field}: {detail}")
        }
        fault => fault.to_string(),
    })?;
    let policies = document.policies.into_iter();
    policies
        .map(|(pattern, policy)| match policy_body::checked(policy.get().as_bytes()) {
            Ok(policy) => Ok((pattern, policy.to_owned())),
            Err(fault) => Err(in_policy(&pattern, &fault.to_string())),
        })
        .collect()
}

fn in_policy(pattern: &str, detail: &str) -> String {
    format!("policy {pattern:?}: {detail}")
}

fn told(policies: &[(String, String)], applied: &[Applied]) -> Page {
    let mut page = Page::default();
    for ((pattern, _), applied) in policies.iter().zip(applied) {
        let Applied { outcome, set_by, set_at } = applied;
        let (by, at) = (set_by.as_deref().unwrap_or("nobody"), set_at.as_deref().unwrap_or("never"));
        page.line(&match outcome {
            Outcome::Created => format!("{pattern}: created"),
            Outcome::Changed => format!("{pattern}: changed"),
            Outcome::Unchanged => format!("{pattern}: unchanged"),
            Outcome::LeftAlone => format!(
                "{pattern}: left alone, because it differs and was last changed by {by} at {at} (--force overwrites it)"
            ),
        });
    }
    page
}
