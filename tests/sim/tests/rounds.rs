//! Runs every script of `tests/rounds/*.txt` against the real allocation over a store in memory.

use pgsemaphore_allocation::DbTime;
use pgsemaphore_sim::script::{self, Mismatch};

const START: DbTime = DbTime(1_764_428_000_000_000);

#[test]
fn every_rule_holds() {
    let scripts = script::scripts();
    assert!(scripts.len() >= 80, "only {} scripts found", scripts.len());
    let mut failures = Vec::new();
    for (name, text) in scripts {
        if let Err(Mismatch { line, detail }) = script::run(&text, START) {
            failures.push(format!("tests/rounds/{name}:{line}: {detail}"));
        }
    }
    assert!(failures.is_empty(), "\n\n{}\n", failures.join("\n\n"));
}
