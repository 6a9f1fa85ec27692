//! Scripts of rounds, `tests/rounds/*.txt`: each states one rule of a round and shows it at work.
//!
//! [`run`] runs one against the real allocation over the store in memory, gives each transaction to the independent
//! checker as well, and says what happened, so that other stores can be asked for the same. `tests/rounds/README.md`
//! describes the language.

mod parse;
mod render;
mod run;
mod setting;
mod words;

use crate::Limits;
use pgsemaphore_allocation::{Audit, Call, DbTime, Outcome, Semaphore, Work};
use std::fs;
use std::path::Path;

/// A mistake in a script, or something that turned out otherwise than it says.
#[derive(Debug)]
pub struct Mismatch {
    /// The line of the script.
    pub line: usize,
    /// What is wrong.
    pub detail: String,
}

/// What happens in a script, to one key.
#[derive(Debug)]
pub enum Event {
    /// This policy is in force from now on, or none.
    Limits(Option<Box<Limits>>),
    /// Since when clients could be heard; `None`: they can't now.
    Serving(Option<DbTime>),
    /// The key's row in the store has this round, whatever it had.
    Damaged {
        /// The round.
        round: u64,
    },
    /// The store is copied.
    Copy,
    /// The store is put back to the copy.
    Restore,
    /// A transaction.
    Transacted(Box<Transacted>),
}

/// A transaction and what came of it.
#[derive(Debug)]
pub struct Transacted {
    /// When it was, by the database's clock.
    pub now: DbTime,
    /// Its kind.
    pub work: Work,
    /// Who spoke in it.
    pub calls: Vec<Call>,
    /// One for each call.
    pub answers: Vec<Outcome>,
    /// What was declared.
    pub audit: Vec<Audit>,
    /// The key's row after it.
    pub semaphore: Semaphore,
}

/// The name and the text of each script, by name.
///
/// # Panics
/// When they cannot be read.
pub fn scripts() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rounds");
    let mut paths: Vec<_> = fs::read_dir(&folder)
        .expect("the folder of scripts")
        .map(|entry| entry.expect("an entry of the folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    paths.sort();
    let named = |path: &std::path::PathBuf| {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        (name, fs::read_to_string(path).expect("a readable script"))
    };
    paths.iter().map(named).collect()
}

/// Runs a script that starts at `start`.
///
/// # Errors
/// The first [`Mismatch`].
pub fn run(text: &str, start: DbTime) -> Result<Vec<Event>, Mismatch> {
    run::run(&parse::script(text)?, start)
}
