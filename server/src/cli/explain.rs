//! `explain KEY [GROUP]`: limit, used, by whom, what waits, for which reason, since when, and what would unblock it.

use clap::Args;
use serde::Serialize;

use super::CliError;
use super::database::DatabaseArgs;
use super::output::{Page, Rows, ago, group_name, print, print_json, table};
use super::remedies::{self, Remedy};
use super::unseen::unseen;
use crate::store::{BlockedUsage, GroupUsage, Held, Situation, Usage};

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The semaphore
    key: String,
    /// Only what concerns this group
    group: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Explanation {
    v: u64,
    key: String,
    pattern: Option<String>,
    limit: Option<i32>,
    extra: i64,
    grants: i64,
    leases: i64,
    available: Option<i64>,
    /// How far usage is above the limit.
    over_by: i64,
    /// Of the group that was asked for: its ceiling and what it uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<GroupUsage>,
    held: Vec<Held>,
    blocked: Vec<BlockedUsage>,
    unblock: Vec<Remedy>,
    /// What the database can't know of requests that wait for a round.
    unseen: String,
}

pub(super) async fn run(args: ExplainArgs) -> Result<(), CliError> {
    let (store, database) = args.database.connect_ready().await?;
    let situation = store.situation(&args.key).await;
    let situation = situation.map_err(|error| CliError::database(&database, error))?;
    let situation = situation.ok_or_else(|| CliError::NoSemaphore(args.key.clone()))?;
    let explanation = explained(situation, args.group.as_deref());
    if args.json { print_json(&explanation) } else { print(&explanation.page()) }
}

fn explained(mut situation: Situation, group: Option<&str>) -> Explanation {
    let concerned = |of: &str| group.is_none_or(|group| of == group);
    situation.usage.blocked.retain(|entry| concerned(&entry.group));
    let (unblock, unseen) = (remedies::of(&situation), unseen(&situation));
    let Situation { usage, mut held, .. } = situation;
    held.retain(|entry| concerned(&entry.group));
    let group = group.map(|group| group_usage(&usage, group));
    Explanation {
        v: usage.v,
        key: usage.key,
        pattern: usage.pattern,
        limit: usage.limit,
        extra: usage.extra,
        grants: usage.grants,
        leases: usage.leases,
        available: usage.available,
        over_by: usage.available.map_or(0, |available| (-available).max(0)),
        group,
        held,
        blocked: usage.blocked,
        unblock,
        unseen,
    }
}

/// Of a group that nobody uses, too.
fn group_usage(usage: &Usage, group: &str) -> GroupUsage {
    let known = usage.groups.iter().find(|known| known.group == group).cloned();
    known.unwrap_or_else(|| GroupUsage {
        group: group.to_owned(),
        limit: None,
        grants: 0,
        leases: 0,
        contended: false,
    })
}

impl Explanation {
    fn page(&self) -> Page {
        let mut page = Page::default();
        let policy = self.pattern.as_ref().map_or_else(|| "no policy".to_owned(), |p| format!("policy {p}"));
        page.line(&format!("{}, {policy}", self.key));
        let limit = self.limit.map(i64::from);
        page.line(&level("limit", limit, self.grants, self.leases, self.available));
        if self.extra > 0 {
            page.line(&format!("leases may use {} more", self.extra));
        }
        if let Some(group) = &self.group {
            let name = format!("group {}: limit", group_name(&group.group));
            let left = group.limit.map(|limit| limit - group.grants - group.leases);
            page.line(&level(&name, group.limit, group.grants, group.leases, left));
        }
        if !self.held.is_empty() {
            page.line("").table(&held(&self.held));
        }
        page.line("");
        if self.blocked.is_empty() {
            page.line("nothing waits that a round has seen");
        } else {
            page.table(&waiting(&self.blocked));
        }
        page.line(&self.unseen);
        if !self.unblock.is_empty() {
            page.line("");
        }
        for remedy in &self.unblock {
            page.line(&format!("{}: {}", remedy.reason, remedy.what));
        }
        page
    }
}

/// One line: a ceiling, what counts against it, and what is left or missing.
fn level(name: &str, limit: Option<i64>, grants: i64, leases: i64, left: Option<i64>) -> String {
    let limit = limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
    let left = match left {
        Some(left) if left < 0 => format!(": over by {}", -left),
        Some(left) => format!(": {left} left"),
        None => String::new(),
    };
    format!("{name} {limit}, used {} ({grants} by grants, {leases} by leases){left}", grants + leases)
}

fn held(held: &[Held]) -> Rows {
    let mut rows = table(&["HELD BY", "GROUP", ">GRANTS", ">LEASES", ">LAST SEEN", "STATE"]);
    for entry in held {
        rows.add_row([
            entry.client_id.clone(),
            group_name(&entry.group).to_owned(),
            entry.grants.to_string(),
            entry.leases.to_string(),
            format!("{} ago", ago(entry.last_seen_ms_ago)),
            if entry.unheard { "unheard" } else { "heard" }.to_owned(),
        ]);
    }
    rows
}

fn waiting(blocked: &[BlockedUsage]) -> Rows {
    let mut rows = table(&["WAITS", "GROUP", ">ITEMS", "REASON", ">SINCE"]);
    for entry in blocked {
        rows.add_row([
            entry.client_id.clone(),
            group_name(&entry.group).to_owned(),
            entry.count.to_string(),
            entry.reason.clone(),
            format!("{} ago", ago(entry.since_ms_ago)),
        ]);
    }
    rows
}
