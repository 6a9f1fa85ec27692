//! What would let blocked work go on: a sentence for each reason.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::output::{ago, group_name};
use super::quote::{arguments, shell_word, sql_literal};
use crate::store::{Held, Policy, Situation};

/// Holders that are named.
const NAMED: usize = 3;
/// Reason of what is told of clients that may be gone.
const UNHEARD: &str = "unheard";

/// What would unblock some of the demand.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Remedy {
    /// The reason of the demand, or `unheard`.
    pub(super) reason: String,
    /// The group concerned, where it is one alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) group: Option<String>,
    /// One sentence.
    pub(super) what: String,
}

/// One remedy for each reason that demand of `situation` is blocked by, in their order; then the clients that may be gone.
pub(super) fn of(situation: &Situation) -> Vec<Remedy> {
    let mut told = BTreeSet::new();
    let mut remedies = Vec::new();
    for entry in &situation.usage.blocked {
        let of_group = matches!(entry.reason.as_str(), "group_limit" | "paused" | "not_permitted");
        let group = of_group.then(|| entry.group.clone());
        if told.insert((entry.reason.clone(), group.clone())) {
            let what = remedy(situation, &entry.reason, &entry.group);
            remedies.push(Remedy { reason: entry.reason.clone(), group, what });
        }
    }
    let unheard = situation.held.iter().filter(|held| held.unheard);
    let gone: BTreeMap<&str, &Held> = unheard.map(|held| (held.client_id.as_str(), held)).collect();
    remedies.extend(gone.into_values().map(|held| Remedy {
        reason: UNHEARD.to_owned(),
        group: None,
        what: unheard_client(situation, held),
    }));
    remedies
}

/// How to find out whether a client is gone, and what to run then.
fn unheard_client(situation: &Situation, held: &Held) -> String {
    let by_itself =
        situation.policy.as_ref().and_then(|policy| policy.settle_lost_clients_after_ms).map_or_else(
            || "they stay counted until somebody says that it is gone".to_owned(),
            |after| format!("the policy settles it once it is silent for {}", ago(after)),
        );
    format!(
        "{} holds permits and was last heard {} ago; {by_itself}. See whether its process still runs (`SELECT * FROM \
         pgsemaphore.grants WHERE client_id = {}` shows since when it holds what). If it is gone: start its successor with \
         the same client_id, or `pgsemaphore client settle {}`",
        shell_word(&held.client_id),
        ago(held.last_seen_ms_ago),
        sql_literal(&held.client_id),
        arguments(&[&situation.usage.key, &held.client_id])
    )
}

fn remedy(situation: &Situation, reason: &str, group: &str) -> String {
    let Some(policy) = &situation.policy else {
        return "no policy matches the key any more: make one with `pgsemaphore policy set`".to_owned();
    };
    let remedy = match reason {
        "paused" => paused(policy, group),
        "not_permitted" => not_permitted(policy, group),
        "limit_resolution_error" => unresolved(policy, &situation.usage.key),
        "group_limit" => Some(group_limit(situation, policy, group)),
        "limit" => Some(limit(situation, policy)),
        _ => None,
    };
    remedy.unwrap_or_else(|| "the policy says so no longer: the next round looks again".to_owned())
}

fn paused(policy: &Policy, group: &str) -> Option<String> {
    if policy.paused {
        return Some(format!("unpause the policy: {}", set(policy, "--paused false")));
    }
    let (others, this): (Vec<&String>, Vec<&String>) =
        policy.paused_groups.iter().partition(|other| *other != group);
    this.first()?;
    let options: Vec<String> = others.iter().map(|other| option("--paused-groups", other)).collect();
    let options = if options.is_empty() { "--paused-groups null".to_owned() } else { options.join(" ") };
    Some(format!("unpause group {}: {}", group_name(group), set(policy, &options)))
}

fn not_permitted(policy: &Policy, group: &str) -> Option<String> {
    let function = policy.can_grant_function.as_ref()?;
    Some(format!(
        "can_grant_function {function} does not answer true for group {} of these clients: change what it answers",
        group_name(group)
    ))
}

fn unresolved(policy: &Policy, key: &str) -> Option<String> {
    let named = |field, function: &Option<String>| function.as_ref().map(|name| format!("{field} {name}"));
    let functions: Vec<String> = [
        named("limit_function", &policy.limit_function),
        named("group_limit_function", &policy.group_limit_function),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!functions.is_empty()).then(|| {
        format!(
            "{} failed, took too long or answered NULL: call it for key {} in psql, and repair it",
            functions.join(" or "),
            sql_literal(key)
        )
    })
}

fn group_limit(situation: &Situation, policy: &Policy, group: &str) -> String {
    let usage = situation.usage.groups.iter().find(|usage| usage.group == group);
    let ceiling = usage.and_then(|usage| usage.limit);
    let raise = match (ceiling, &policy.group_limit_function) {
        (Some(ceiling), _) => {
            let option = option("--group", &format!("{group}=N"));
            format!("raise the ceiling of {ceiling} ({})", set(policy, &option))
        }
        (None, Some(function)) => format!("have group_limit_function {function} answer more"),
        (None, None) => {
            return format!(
                "group {} has no ceiling any more: the next round looks again",
                group_name(group)
            );
        }
    };
    let used = usage.map_or(0, |usage| usage.grants + usage.leases);
    let over = ceiling.map_or(0, |ceiling| used - ceiling);
    let held = situation.held.iter().filter(|held| held.group == group);
    let waiting = if ceiling == Some(0) { String::new() } else { or_wait(held) };
    format!("group {}{}: {raise}{waiting}", group_name(group), over_by(over))
}

fn limit(situation: &Situation, policy: &Policy) -> String {
    let raise = match &policy.limit_function {
        Some(function) => format!("have limit_function {function} answer more"),
        None => format!("raise the limit ({})", set(policy, "--limit N")),
    };
    let over = situation.usage.available.map_or(0, |available| -available);
    let waiting =
        if situation.usage.limit == Some(0) { String::new() } else { or_wait(situation.held.iter()) };
    format!("{raise}{waiting}{}", over_by(over))
}

fn over_by(over: i64) -> String {
    if over > 0 { format!(" (over by {over})") } else { String::new() }
}

fn set(policy: &Policy, options: &str) -> String {
    let pattern = arguments(&[&policy.pattern]);
    if policy.pattern.starts_with('-') {
        return format!("`pgsemaphore policy set {options} {pattern}`");
    }
    format!("`pgsemaphore policy set {pattern} {options}`")
}

/// An option with its value, which may begin with `-`.
fn option(name: &str, value: &str) -> String {
    let between = if value.starts_with('-') { '=' } else { ' ' };
    format!("{name}{between}{}", shell_word(value))
}

/// Names who holds most. Permits of clients that may be gone never come back by waiting: they have a remedy of their own.
fn or_wait<'a>(held: impl Iterator<Item = &'a Held>) -> String {
    let mut permits = BTreeMap::new();
    held.filter(|held| !held.unheard)
        .for_each(|held| *permits.entry(held.client_id.as_str()).or_insert(0) += held.grants + held.leases);
    let mut most: Vec<(&str, i64)> = permits.into_iter().collect();
    most.sort_by_key(|(_, permits)| std::cmp::Reverse(*permits));
    let named: Vec<String> =
        most.iter().take(NAMED).map(|(client, permits)| format!("{client} ({permits})")).collect();
    if named.is_empty() {
        String::new()
    } else {
        format!(", or wait for who holds most: {}", named.join(", "))
    }
}
