//! `policy set|get|list|delete`; `policy apply` has a module of its own.

use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use super::CliError;
use super::database::DatabaseArgs;
use super::output::{Page, group_name, or_dash, print, print_json, print_line, table};
use super::policy_fields::PolicyFields;
use super::policy_file;
use crate::store::Policy;

const PAGE: u16 = 1000;

#[derive(Debug, Subcommand)]
pub(super) enum PolicyCommand {
    /// Create a policy, or change the fields given of one
    ///
    /// Fields that are not given stay as they are; the value null sets a field to its default. The change holds from
    /// the next round on. Lowering a limit stops nothing that runs.
    Set(SetArgs),
    /// Make policies what a file says, all of them or none
    ///
    /// The file is JSON: {"policies": {"account:*": {"limit": 100}}}. Fields that are left out take their defaults,
    /// group_limits that are left out are kept. A policy that was last changed by other means (psql, HTTP, policy set)
    /// is left alone; one that says the same is not written; one that the file does not name is not touched.
    Apply(policy_file::ApplyArgs),
    /// Show a policy, as JSON
    Get(PatternArgs),
    /// Show all policies
    List(ListArgs),
    /// Delete a policy, with its group limits
    Delete(PatternArgs),
}

#[derive(Debug, Args)]
pub(super) struct PatternArgs {
    /// An exact key, or a prefix that ends in *
    pattern: String,
    #[command(flatten)]
    database: DatabaseArgs,
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

#[derive(Debug, Args)]
pub(super) struct SetArgs {
    /// An exact key, or a prefix that ends in *; the exact one wins, then the longest prefix
    pattern: String,
    /// Limit of a group under the shared one, G=null for none; may be given several times
    #[arg(long = "group", value_name = "G=N", value_parser = group_limit)]
    groups: Vec<(String, Value)>,
    #[command(flatten)]
    fields: PolicyFields,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(super) async fn run(command: PolicyCommand) -> Result<(), CliError> {
    match command {
        PolicyCommand::Set(args) => set(args).await,
        PolicyCommand::Apply(args) => policy_file::run(&args).await,
        PolicyCommand::Get(args) => get(&args).await,
        PolicyCommand::List(args) => list(&args).await,
        PolicyCommand::Delete(args) => delete(&args).await,
    }
}

async fn set(args: SetArgs) -> Result<(), CliError> {
    let (store, database) = args.database.connect_ready().await?;
    let PolicyFields(mut changes) = args.fields;
    if !args.groups.is_empty() {
        let current =
            store.policy(&args.pattern).await.map_err(|error| CliError::database(&database, error))?;
        let mut limits: Map<String, Value> = current
            .map(|policy| policy.group_limits)
            .unwrap_or_default()
            .into_iter()
            .map(|(group, limit)| (group, limit.into()))
            .collect();
        limits.extend(args.groups);
        limits.retain(|_, limit| !limit.is_null());
        changes.insert("group_limits".to_owned(), limits.into());
    }
    let policy = store
        .merge_policy(&args.pattern, &Value::from(changes).to_string(), &actor())
        .await
        .map_err(|error| CliError::policy(&args.pattern, &database, error))?;
    print_json(&policy)
}

async fn get(args: &PatternArgs) -> Result<(), CliError> {
    let (store, database) = args.database.connect_ready().await?;
    let policy = store.policy(&args.pattern).await.map_err(|error| CliError::database(&database, error))?;
    print_json(&policy.ok_or_else(|| CliError::NoPolicy(args.pattern.clone()))?)
}

async fn list(args: &ListArgs) -> Result<(), CliError> {
    let (store, database) = args.database.connect_ready().await?;
    let mut policies = Vec::new();
    let mut after = Some(String::new());
    while let Some(start) = after {
        let page =
            store.policies(&start, PAGE).await.map_err(|error| CliError::database(&database, error))?;
        policies.extend(page.policies);
        after = page.next;
    }
    if args.json { print_json(&policies) } else { print(&listed(&policies)) }
}

async fn delete(args: &PatternArgs) -> Result<(), CliError> {
    let (store, database) = args.database.connect_ready().await?;
    store
        .delete_policy(&args.pattern, &actor())
        .await
        .map_err(|error| CliError::policy(&args.pattern, &database, error))?;
    print_line(&format!("{}: deleted", args.pattern))
}

fn listed(policies: &[Policy]) -> Page {
    let mut page = Page::default();
    if policies.is_empty() {
        page.line("no policies yet: `pgsemaphore policy set PATTERN --limit N` makes one");
        return page;
    }
    let mut rows = table(&["PATTERN", ">LIMIT", "GROUP LIMITS", "PROVISIONING", "STATE", "SET BY", "SET AT"]);
    for policy in policies {
        let limit = policy.limit_function.clone().or_else(|| policy.limit.map(|limit| limit.to_string()));
        let groups: Vec<String> = policy
            .group_limits
            .iter()
            .map(|(group, limit)| format!("{}={limit}", group_name(group)))
            .collect();
        rows.add_row([
            policy.pattern.clone(),
            or_dash(limit),
            or_dash((!groups.is_empty()).then(|| groups.join(" "))),
            policy.provisioning.clone(),
            if policy.paused { "paused" } else { "active" }.to_owned(),
            policy.set_by.clone(),
            policy.set_at.clone(),
        ]);
    }
    page.table(&rows);
    page
}

/// `G=N`; a group may contain `=`, a limit may not.
fn group_limit(text: &str) -> Result<(String, Value), String> {
    let (group, limit) = text.rsplit_once('=').ok_or("say GROUP=LIMIT, like nightly=5")?;
    let limit = serde_json::from_str(limit).map_err(|_| format!("{limit} is not a number"))?;
    Ok((group.to_owned(), limit))
}

/// Who changes a policy, for its `set_by`: the user of this machine.
pub(super) fn actor() -> String {
    format!("cli:{}", user())
}

/// The name of the user that this process runs as, or the number where it has none, as in many containers.
pub(super) fn user() -> String {
    let uid = nix::unistd::Uid::current();
    let user = nix::unistd::User::from_uid(uid).ok().flatten();
    user.map_or_else(|| uid.to_string(), |user| user.name)
}

#[cfg(test)]
mod tests {
    use super::group_limit;

    #[test]
    fn a_group_and_its_limit() {
        assert_eq!(group_limit("nightly=5"), Ok(("nightly".to_owned(), 5.into())));
        assert_eq!(group_limit("a=b=0"), Ok(("a=b".to_owned(), 0.into())));
        assert_eq!(group_limit("=3"), Ok((String::new(), 3.into())));
        assert_eq!(group_limit("nightly=null"), Ok(("nightly".to_owned(), serde_json::Value::Null)));
        assert!(group_limit("nightly").is_err());
        assert!(group_limit("nightly=many").is_err());
    }
}
