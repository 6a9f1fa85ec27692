//! What a transaction did, in the words of a script.

use super::words::RoundName;
use pgsemaphore_allocation::{
    Act, Answer, Audit, Block, BlockId, Client, DbTime, Group, Kind, Lacking, Outcome, Reason, Refused,
    Status, Verdict, VerdictStatus,
};
use std::collections::BTreeMap;

/// The names that a script gives to blocks and rounds.
#[derive(Debug, Clone, Default)]
pub(super) struct Aliases {
    blocks: BTreeMap<String, (Kind, BlockId)>,
    rounds: BTreeMap<String, u64>,
}

impl Aliases {
    pub(super) fn name_round(&mut self, name: &str, round: u64) {
        self.rounds.insert(name.to_owned(), round);
    }

    pub(super) fn round(&self, name: &RoundName, clock: DbTime) -> Result<u64, String> {
        let base = match name.base.as_str() {
            "nothing" => 0,
            "clock" => u64::try_from(clock.0).unwrap_or(0),
            base => *self.rounds.get(base).ok_or_else(|| format!("no round is called `{base}`"))?,
        };
        base.checked_add_signed(name.plus).ok_or_else(|| format!("{name:?} is no round"))
    }

    /// The id that a script means: a block's name, or the text itself between quotes (then a grant's, unless said).
    pub(super) fn id(&self, name: &str) -> Result<(Kind, String), String> {
        if let Some(text) = name.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
            return Ok((Kind::Grant, text.to_owned()));
        }
        let (kind, id) = self.blocks.get(name).ok_or_else(|| format!("no block is called `{name}`"))?;
        Ok((*kind, id.to_string()))
    }

    /// Names the new blocks of an answer as the phrases that expect them do.
    pub(super) fn name_blocks(&mut self, phrases: &[String], outcome: &Outcome) {
        let Outcome::Answered(answer) = outcome else { return };
        let new: Vec<_> = answer.verdicts.iter().filter_map(|verdict| verdict.block.as_ref()).collect();
        for phrase in phrases {
            let word = phrase.strip_prefix("grant ").or_else(|| phrase.strip_prefix("lease "));
            let Some(name) = word.and_then(|rest| rest.split(' ').next()) else {
                continue;
            };
            let unnamed = |block: &&&Block| self.name(block.id).is_none();
            let meant = |block: &&&Block| new_block(name, block) == *phrase;
            let found = new.iter().filter(unnamed).find(meant).map(|block| (block.kind, block.id));
            if let Some(found) = found.filter(|_| !self.blocks.contains_key(name)) {
                self.blocks.insert(name.to_owned(), found);
            }
        }
    }

    fn name(&self, id: BlockId) -> Option<&str> {
        self.blocks.iter().find(|(_, (_, other))| *other == id).map(|(name, _)| name.as_str())
    }

    /// What an outcome says, in phrases.
    pub(super) fn phrases(&self, outcome: &Outcome, made_in: Option<u64>) -> Vec<String> {
        match outcome {
            Outcome::Refused(Refused::NoPolicy) => vec!["refused: no policy".to_owned()],
            Outcome::Refused(Refused::RoundsUsedUp) => vec!["refused: rounds used up".to_owned()],
            Outcome::Refused(Refused::Fenced { generation }) => {
                vec![format!("refused: fenced below {generation}")]
            }
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
        phrases.extend(answer.contended_groups.iter().map(|group| format!("contended in {group}")));
        phrases.extend(answer.report_within.map(|within| format!("report within {}ms", within / 1000)));
        if phrases.is_empty() {
            phrases.push("nothing".to_owned());
        }
        phrases
    }

    fn verdict(&self, verdict: &Verdict, made_in: Option<u64>) -> String {
        let status = match verdict.status {
            VerdictStatus::Open(Status::Active) => "active",
            VerdictStatus::Open(Status::Expired) => "expired",
            VerdictStatus::Open(Status::Retired) => "retired",
            VerdictStatus::Settled => "settled",
            VerdictStatus::NotFound => "not found",
        };
        let Some(block) = &verdict.block else {
            let named = BlockId::parse(&verdict.id).and_then(|id| self.name(id));
            return match named {
                Some(name) => format!("{name} {status}"),
                None => format!("\"{}\" {status}", verdict.id),
            };
        };
        let name = self.name(block.id).unwrap_or("(unexpected)");
        if made_in == Some(block.id.round) {
            return new_block(name, block);
        }
        let mut phrase = format!("{name} {status} {}", block.permits);
        let used = if block.kind == Kind::Grant { "claimed" } else { "drawn" };
        for (what, count) in [(used, block.used), ("released", block.released)] {
            if count > 0 {
                phrase.push_str(&format!(", {what} {count}"));
            }
        }
        phrase
    }
}

fn new_block(name: &str, block: &Block) -> String {
    let kind = if block.kind == Kind::Grant { "grant" } else { "lease" };
    format!("{kind} {name} of {}{}", block.permits, in_group(" in ", &block.group))
}

fn in_group(word: &str, group: &Group) -> String {
    if group.as_str().is_empty() { String::new() } else { format!("{word}{group}") }
}

fn lacking(lacks: &Lacking) -> String {
    let reason = match lacks.reason {
        Reason::Paused => "paused",
        Reason::NotPermitted => "not permitted",
        Reason::LimitResolutionError => "limit resolution error",
        Reason::GroupLimit => "group limit",
        Reason::Limit => "limit",
    };
    format!("{}{}: {reason}", lacks.count, in_group(" of ", &lacks.group))
}

/// What is kept of a client's demand, in phrases; times count from the start of the script.
pub(super) fn kept(name: &str, client: &Client, start: DbTime) -> Vec<String> {
    let entries = client.blocked.iter();
    entries
        .map(|entry| format!("{name} {} since {}ms", lacking(&entry.lacking), (entry.since - start) / 1000))
        .collect()
}

/// What was declared, in a phrase.
pub(super) fn declared(entry: &Audit) -> String {
    let Audit { client, act, generation, grants, leases } = entry;
    let act = match act {
        Act::Takeover { resume: true } => "resumed",
        Act::Takeover { resume: false } => "taken over",
        Act::SettleSilent => "silent",
        Act::UnknownToClient => "unknown",
    };
    format!("{client} {act} {grants} + {leases} below {generation}")
}
