//! A client by the book, as plain as can be: what it says and what it makes of an answer, without I/O.
//!
//! Not the client crate: tests that look at single messages, and that decide themselves when one is lost, use this.

use serde_json::{Value, json};
use std::collections::BTreeMap;

use crate::holder::message;

/// A process that holds grants of one key.
#[derive(Debug, Clone)]
pub struct Worker {
    /// Who it is.
    pub client_id: String,
    /// The highest round it has heard of.
    pub seen: u64,
    /// What it holds, by id.
    pub blocks: BTreeMap<String, Held>,
}

/// A grant as its client knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// Permits of the grant that exist.
    pub permits: u64,
    /// How many it says it uses.
    pub claimed: u64,
    /// How many of those came back.
    pub released: u64,
    /// How many the holder has confirmed: so many items may have started.
    pub confirmed: u64,
}

impl Worker {
    /// A worker that has heard of nothing.
    #[must_use]
    pub fn new(client_id: impl Into<String>) -> Self {
        Self { client_id: client_id.into(), seen: 0, blocks: BTreeMap::new() }
    }

    /// What it says: all that it holds, and that it wants `count` permits of the empty group.
    #[must_use]
    pub fn wants(&self, count: u64) -> Value {
        let mut message = self.reports();
        message["demand"] = json!([{"group": "", "count": count}]);
        message
    }

    /// What it says when it wants nothing.
    #[must_use]
    pub fn reports(&self) -> Value {
        let report = |(id, held): (&String, &Held)| json!({"id": id, "claimed": held.claimed, "released": held.released});
        let reports: Vec<Value> = self.blocks.iter().map(report).collect();
        message(&self.client_id, json!({"seen": self.seen, "grants": reports}))
    }

    /// Takes an answer in.
    ///
    /// # Panics
    ///
    /// When it is no reply, or takes back what was confirmed.
    pub fn hear(&mut self, reply: &Value) {
        let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("no number in {reply}"));
        for block in reply["grants"].as_array().expect("grants") {
            let id = block["id"].as_str().expect("an id").to_owned();
            match block["status"].as_str() {
                Some("settled" | "not_found") => {
                    let held = self.blocks.remove(&id).unwrap_or_default();
                    assert_eq!(held.confirmed, held.released, "{id}: gone while items run");
                }
                Some("active" | "expired") => {
                    if !self.blocks.contains_key(&id) && number(&block["round"]) <= self.seen {
                        continue;
                    }
                    let held = self.blocks.entry(id.clone()).or_default();
                    assert!(number(&block["claimed"]) >= held.confirmed, "{id}: a confirmed claim is gone");
                    held.confirmed = number(&block["claimed"]);
                    held.permits = number(&block["permits"]);
                    held.claimed = held.claimed.min(held.permits);
                }
                _ => panic!("no verdict in {reply}"),
            }
        }
        self.seen = self.seen.max(number(&reply["round"]));
    }

    /// It wants to use all that it holds.
    pub fn claim(&mut self) {
        self.blocks.values_mut().for_each(|held| held.claimed = held.permits);
    }

    /// Everything that ran has ended, and what did not start never will.
    pub fn release(&mut self) {
        for held in self.blocks.values_mut() {
            held.claimed = held.permits;
            held.released = held.permits;
            held.confirmed = held.permits;
        }
    }

    /// Items that may run: claims that the holder has confirmed, and that have not ended.
    #[must_use]
    pub fn running(&self) -> u64 {
        self.blocks.values().map(|held| held.confirmed - held.released.min(held.confirmed)).sum()
    }

    /// Permits that count, as far as it knows.
    #[must_use]
    pub fn permits(&self) -> u64 {
        self.blocks.values().map(|held| held.permits - held.released).sum()
    }
}
