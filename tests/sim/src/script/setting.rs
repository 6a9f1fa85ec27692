//! Lines that change the policy.

use super::words::{Reading, Words, number};
use crate::Limits;
use pgsemaphore_allocation::{ClientId, Extra, Group, Micros, Permits, Provisioning};

/// One field of the policy, or the ceiling of a group.
#[derive(Debug, Clone)]
pub(super) enum Setting {
    Limit(Option<Permits>),
    GroupLimit(String, Option<Permits>),
    GrantTimeout(Micros),
    Leases(Provisioning),
    PermitsPerLease(Permits),
    LeaseTtl(Micros),
    LimitedGroups { within: bool },
    SettleAfter(Option<Micros>),
    Paused(bool),
    PausedGroup(String),
    GroupUnresolved(String),
    NotPermitted { client: String, group: String },
}

impl Setting {
    /// Reads a line that starts with `first`; `None` if it is no setting.
    pub(super) fn read(first: &str, words: &mut Words) -> Reading<Option<Self>> {
        Ok(Some(match first {
            "limit" if words.take("unresolved") => Self::Limit(None),
            "limit" => Self::Limit(Some(words.number()?)),
            "group" => {
                let group = words.next()?.to_owned();
                words.expect("limit")?;
                if words.take("unresolved") {
                    return Ok(Some(Self::GroupUnresolved(group)));
                }
                let limit = if words.take("none") { None } else { Some(words.number()?) };
                Self::GroupLimit(group, limit)
            }
            "grant" => {
                words.expect("timeout")?;
                Self::GrantTimeout(words.duration()?)
            }
            "leases" => Self::Leases(provisioning(words)?),
            "permits" => {
                words.expect("per")?;
                words.expect("lease")?;
                Self::PermitsPerLease(words.number()?)
            }
            "lease" => {
                words.expect("ttl")?;
                Self::LeaseTtl(words.duration()?)
            }
            "limited" => {
                words.expect("groups")?;
                let within = !words.take("excluded");
                if within {
                    words.expect("within")?;
                    words.expect("limit")?;
                }
                Self::LimitedGroups { within }
            }
            "paused" => match words.next() {
                Ok(group) => Self::PausedGroup(group.to_owned()),
                Err(_) => Self::Paused(true),
            },
            "unpaused" => Self::Paused(false),
            "forbidden" => {
                let client = words.next()?.to_owned();
                words.expect("in")?;
                Self::NotPermitted { client, group: words.next()?.to_owned() }
            }
            "settle" => {
                words.expect("after")?;
                Self::SettleAfter(if words.take("never") { None } else { Some(words.duration()?) })
            }
            _ => return Ok(None),
        }))
    }

    pub(super) fn apply(&self, limits: &mut Limits) {
        let policy = &mut limits.policy;
        match self {
            Self::Limit(limit) => policy.limit = *limit,
            Self::GroupLimit(group, Some(limit)) => {
                limits.unresolved.remove(&Group::new(group));
                limits.groups.insert(Group::new(group), *limit);
            }
            Self::GroupLimit(group, None) => {
                limits.groups.remove(&Group::new(group));
            }
            Self::GrantTimeout(timeout) => policy.grant_timeout = *timeout,
            Self::Leases(provisioning) => policy.provisioning = *provisioning,
            Self::PermitsPerLease(permits) => policy.permits_per_lease = *permits,
            Self::LeaseTtl(ttl) => policy.lease_ttl = *ttl,
            Self::Paused(paused) => {
                policy.paused = *paused;
                policy.paused_groups.clear();
            }
            Self::PausedGroup(group) => _ = policy.paused_groups.insert(Group::new(group)),
            Self::GroupUnresolved(group) => _ = limits.unresolved.insert(Group::new(group)),
            Self::NotPermitted { client, group } => {
                limits.not_permitted.insert((ClientId::new(client), Group::new(group)));
            }
            Self::SettleAfter(after) => policy.settle_after = *after,
            Self::LimitedGroups { within } => policy.leases_within_group_limit = *within,
        }
    }
}

/// `none`, `strict`, `under 20`, `over 5` (permits), `over 0.5` (of the limit).
fn provisioning(words: &mut Words) -> Reading<Provisioning> {
    Ok(match words.next()? {
        "none" => Provisioning::None,
        "strict" => Provisioning::Strict,
        "under" => Provisioning::Under { reserve: words.number()? },
        "over" => Provisioning::Over { extra: extra(words.next()?)? },
        other => return Err(format!("`{other}` is none of none, strict, under, over")),
    })
}

fn extra(word: &str) -> Reading<Extra> {
    let Some((whole, decimals)) = word.split_once('.') else { return Ok(Extra::Permits(number(word)?)) };
    if decimals.len() > 6 {
        return Err(format!("`{word}` has more than 6 decimals"));
    }
    Ok(Extra::Millionths(number(whole)? * 1_000_000 + number(&format!("{decimals:0<6}"))?))
}
