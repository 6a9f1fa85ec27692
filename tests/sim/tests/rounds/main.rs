//! Runs every script of `tests/rounds/*.txt` against the real allocation over a store in memory.
//!
//! A script states one rule of a round. `tests/rounds/README.md` describes the language. Each transaction of a script
//! is also given to the independent checker, and the store's counters are recomputed after it.

mod parse;
mod render;
mod run;
mod setting;
mod words;

use std::fs;
use std::path::Path;

/// A mistake in a script, or something that turned out otherwise than it says.
#[derive(Debug)]
struct Mismatch {
    line: usize,
    detail: String,
}

#[test]
fn every_rule_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rounds");
    let mut scripts: Vec<_> = fs::read_dir(&folder)
        .expect("the folder of scripts")
        .map(|entry| entry.expect("an entry of the folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    scripts.sort();
    assert!(scripts.len() >= 80, "only {} scripts found", scripts.len());
    let mut failures = Vec::new();
    for path in &scripts {
        let text = fs::read_to_string(path).expect("a readable script");
        let outcome = parse::script(&text).and_then(|script| run::run(&script));
        if let Err(Mismatch { line, detail }) = outcome {
            let name = path.file_name().expect("a file").to_string_lossy();
            failures.push(format!("tests/rounds/{name}:{line}: {detail}"));
        }
    }
    assert!(failures.is_empty(), "\n\n{}\n", failures.join("\n\n"));
}
