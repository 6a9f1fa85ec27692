//! From the bytes of a body to a [`Message`] that keeps every rule of the protocol.
//!
//! Authoritative for what a body may say: grammar, ranges, sizes and the rules between fields. A body that breaks one is
//! refused whole, with the first fault and where it is; nothing of it is applied. Not authoritative for what the
//! message means, nor for anything that only the database's state shows.

use crate::json::{self, Rules, Version};
use queue_wire::{COUNT_MAX, DEMAND_MAX, Demand, Message, REPORTS_MAX, Takeover, VERSION};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

const RULES: Rules = Rules {
    lists_of_objects: &["demand", "grants", "leases"],
    integers_only: false,
    decimal: "",
    no_nul: false,
};

/// Why a body is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// It is not JSON.
    #[error("{0}")]
    Json(String),
    /// It is of another version of the protocol.
    #[error("this holder speaks version {VERSION} of the protocol")]
    Version,
    /// A part of it breaks a rule.
    #[error("{detail}")]
    Field {
        /// JSON Pointer into the body.
        field: String,
        /// What is wrong and what to do.
        detail: String,
    },
}

impl Invalid {
    /// A part of the body breaks a rule.
    pub(crate) fn field(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Field { field: field.into(), detail: detail.into() }
    }
}

/// Reads the body of a `request`.
pub fn request(body: &[u8]) -> Result<Message, Invalid> {
    message(body)
}

/// Reads the body of a `sync`: what it says of demand is checked and then ignored.
pub fn sync(body: &[u8]) -> Result<Message, Invalid> {
    let message = message(body)?;
    Ok(Message { demand: Vec::new(), ..message })
}

/// Reads a body strictly into a type: no duplicate members, no fraction where an integer belongs.
pub(crate) fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, Invalid> {
    let mut from = serde_json::Deserializer::from_slice(body);
    serde_path_to_error::deserialize(&mut from).map_err(|error| {
        let parent = json::pointer(error.path());
        json::fault(&parent, error.inner())
    })
}

/// Reads the body of a `takeover`.
pub fn takeover(body: &[u8]) -> Result<Takeover, Invalid> {
    let takeover: Takeover = versioned(body)?;
    if takeover.generation == 0 {
        return Err(Invalid::field("/generation", "generation must be above that of every earlier process"));
    }
    Ok(takeover)
}

/// Reads a body of this version of the protocol.
fn versioned<T: DeserializeOwned>(body: &[u8]) -> Result<T, Invalid> {
    let scan = json::scan(body, RULES);
    if scan.version.is_some_and(|version| version != Version::Integer(i128::from(VERSION))) {
        return Err(match scan.version {
            Some(Version::Integer(_)) => Invalid::Version,
            _ => scan.fault.unwrap_or_else(|| Invalid::field("/v", "v must be the integer 1")),
        });
    }
    scan.fault.map_or(Ok(()), Err)?;
    decode(body)
}

fn message(body: &[u8]) -> Result<Message, Invalid> {
    let message: Message = versioned(body)?;
    check_lists(&message)?;
    if message.generation > 0 && message.process.is_none() {
        return Err(Invalid::field("/process", "process is required when generation is above 0"));
    }
    Ok(Message { demand: merge(message.demand)?, ..message })
}

fn check_lists(message: &Message) -> Result<(), Invalid> {
    let grants = message.grants.as_ref().map_or(0, Vec::len);
    let leases = message.leases.as_ref().map_or(0, Vec::len);
    let too_many =
        |field: &str, what: &str| Err(Invalid::field(field, format!("{what} in one message at most")));
    if message.demand.len() > DEMAND_MAX {
        return too_many("/demand", &format!("{DEMAND_MAX} entries"));
    }
    if grants > REPORTS_MAX {
        return too_many("/grants", &format!("{REPORTS_MAX} reports"));
    }
    if grants + leases > REPORTS_MAX {
        return too_many("/leases", &format!("{REPORTS_MAX} reports, of grants and leases together,"));
    }
    let missing =
        |field: &str| Err(Invalid::field(format!("/{field}"), format!("{field} is required with all: true")));
    match (&message.grants, &message.leases) {
        (None, _) if message.all => missing("grants"),
        (_, None) if message.all => missing("leases"),
        _ => Ok(()),
    }
}

/// Groups named twice become one entry: counts add up, the older age holds.
fn merge(demand: Vec<Demand>) -> Result<Vec<Demand>, Invalid> {
    let mut merged = Vec::<Demand>::with_capacity(demand.len());
    let mut places = HashMap::<String, usize>::with_capacity(demand.len());
    for (at, entry) in demand.into_iter().enumerate() {
        match places.entry(entry.group.clone()) {
            Entry::Vacant(place) => {
                place.insert(merged.len());
                merged.push(entry);
            }
            Entry::Occupied(place) => {
                let first = &mut merged[*place.get()];
                first.count += entry.count;
                first.oldest_age_ms = first.oldest_age_ms.max(entry.oldest_age_ms);
                if first.count > COUNT_MAX {
                    let detail = format!("the counts of one group must add up to at most {COUNT_MAX}");
                    return Err(Invalid::field(format!("/demand/{at}/count"), detail));
                }
            }
        }
    }
    Ok(merged)
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
