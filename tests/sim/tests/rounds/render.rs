//! What a transaction did, in the words of a script.

use crate::words::RoundName;
use pgsemaphore_allocation::{
    Answer, Block, BlockId, Client, DbTime, Group, Lacking, Outcome, Reason, Refused, Status, Verdict,
    VerdictStatus,
};
use std::collections::BTreeMap;

/// The names that a script gives to grants and rounds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Aliases {
    grants: BTreeMap<String, BlockId>,
    rounds: BTreeMap<String, u64>,
}

impl Aliases {
    pub(crate) fn name_round(&mut self, name: &str, round: u64) {
        self.rounds.insert(name.to_owned(), round);
    }

    pub(crate) fn round(&self, name: &RoundName, clock: DbTime) -> Result<u64, String> {
        let base = match name.base.as_str() {
            "nothing" => 0,
            "clock" => u64::try_from(clock.0).unwrap_or(0),
            base => *self.rounds.get(base).ok_or_else(|| format!("no round is called `{base}`"))?,
        };
        base.checked_add_signed(name.plus).ok_or_else(|| format!("{name:?} is no round"))
    }

    /// The id that a script means: a grant's name, or the text itself between quotes.
    pub(crate) fn id(&self, name: &str) -> Result<String, String> {
        if let Some(text) = name.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
            return Ok(text.to_owned());
        }
        let id = self.grants.get(name).ok_or_else(|| format!("no grant is called `{name}`"))?;
        Ok(id.to_string())
    }

    /// Names the new grants of an answer as the phrases that expect them do.
    pub(crate) fn name_grants(&mut self, phrases: &[String], outcome: &Outcome) {
        let Outcome::Answered(answer) = outcome else { return };
        let new: Vec<_> = answer.verdicts.iter().filter_map(|verdict| verdict.block.as_ref()).collect();
        for phrase in phrases {
            let Some(name) = phrase.strip_prefix("grant ").and_then(|rest| rest.split(' ').next()) else {
                continue;
            };
            let unnamed = |block: &&&Block| self.name(block.id).is_none();
            let meant = |block: &&&Block| grant_phrase(name, block) == *phrase;
            let found = new.iter().filter(unnamed).find(meant).map(|block| block.id);
            if let Some(id) = found.filter(|_| !self.grants.contains_key(name)) {
                self.grants.insert(name.to_owned(), id);
            }
        }
    }

    fn name(&self, id: BlockId) -> Option<&str> {
        self.grants.iter().find(|(_, other)| **other == id).map(|(name, _)| name.as_str())
    }

    /// What an outcome says, in phrases.
    pub(crate) fn phrases(&self, outcome: &Outcome, made_in: Option<u64>) -> Vec<String> {
        match outcome {
            Outcome::Refused(Refused::NoPolicy) => vec!["refused: no policy".to_owned()],
            Outcome::Refused(Refused::SeenTooFarAhead { .. }) => {
                vec!["refused: seen too far ahead".to_owned()]
            }
            Outcome::Answered(answer) => self.answer(answer, made_in),
        }
    }

    fn answer(&self, answer: &Answer, made_in: Option<u64>) -> Vec<String> {
        let mut phrases: Vec<_> =
            answer.verdicts.iter().map(|verdict| self.verdict(verdict, made_in)).collect();
        phrases.extend(answer.blocked.iter().map(|lacks| format!("blocked {}", lacking(lacks))));
        phrases.extend(answer.contended.then(|| "contended".to_owned()));
        if phrases.is_empty() {
            phrases.push("nothing".to_owned());
        }
        phrases
    }

    fn verdict(&self, verdict: &Verdict, made_in: Option<u64>) -> String {
        let Some(block) = &verdict.block else {
            let named = BlockId::parse(&verdict.id).and_then(|id| self.name(id));
            return match named {
                Some(name) => format!("{name} not found"),
                None => format!("\"{}\" not found", verdict.id),
            };
        };
        let name = self.name(block.id).unwrap_or("(unexpected)");
        if made_in == Some(block.id.round) {
            return grant_phrase(name, block);
        }
        let status = match verdict.status {
            VerdictStatus::Open(Status::Active) => "active",
            VerdictStatus::Open(Status::Expired) => "expired",
            VerdictStatus::Open(Status::Retired) => "retired",
            VerdictStatus::Settled => "settled",
            VerdictStatus::NotFound => "not found",
        };
        let mut phrase = format!("{name} {status} {}", block.permits);
        for (what, count) in [("claimed", block.used), ("released", block.released)] {
            if count > 0 {
                phrase.push_str(&format!(", {what} {count}"));
            }
        }
        phrase
    }
}

fn grant_phrase(name: &str, block: &Block) -> String {
    format!("grant {name} of {}{}", block.permits, in_group(" in ", &block.group))
}

fn in_group(word: &str, group: &Group) -> String {
    if group.as_str().is_empty() { String::new() } else { format!("{word}{group}") }
}

fn lacking(lacks: &Lacking) -> String {
    let reason = match lacks.reason {
        Reason::LimitResolutionError => "limit resolution error",
        Reason::GroupLimit => "group limit",
        Reason::Limit => "limit",
    };
    format!("{}{}: {reason}", lacks.count, in_group(" of ", &lacks.group))
}

/// What is kept of a client's demand, in phrases; times count from the start of the script.
pub(crate) fn kept(name: &str, client: &Client, start: DbTime) -> Vec<String> {
    let entries = client.blocked.iter();
    entries
        .map(|entry| format!("{name} {} since {}ms", lacking(&entry.lacking), (entry.since - start) / 1000))
        .collect()
}
