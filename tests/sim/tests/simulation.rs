//! Random worlds without a violation, seeds that once failed, and planted bugs, each of which is found.
//!
//! `SIM_STEPS` says how many steps to take in all (600,000 unless said), `SIM_SEED` with which seed to begin.

use pgsemaphore_sim::{Plant, WORLD_STEPS, simulate, simulate_many};

/// Seeds of worlds that found something once, each with what it was.
const KEPT: &str = include_str!("../kept-seeds.txt");

fn wanted(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.replace('_', "").parse().ok()).unwrap_or(default)
}

#[test]
fn no_promise_is_broken() {
    let (first, steps) = (wanted("SIM_SEED", 0), wanted("SIM_STEPS", 600_000));
    match simulate_many(first, steps) {
        Ok(totals) => {
            println!("{} steps, seeds {first} to {}: no violation", totals.steps, totals.next_seed - 1);
            println!("{:#?}", totals.census);
            let rare: Vec<_> = totals.census.iter().filter(|(_, times)| **times < 20).collect();
            assert!(rare.is_empty(), "these hardly happen: {rare:?}");
        }
        Err((seed, outcome)) => {
            let from = outcome.trace.len().saturating_sub(100);
            let last = outcome.trace[from..].join("\n");
            panic!("seed {seed}, `simulate --trace {seed}` shows all of it; the end is\n{last}");
        }
    }
}

#[test]
fn seeds_that_once_failed() {
    for line in KEPT.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (seed, what) = line.split_once(' ').unwrap_or((line, ""));
        let seed = seed.parse().expect("a seed");
        let outcome = simulate(seed, WORLD_STEPS, None, false);
        assert!(outcome.violation.is_none(), "seed {seed} ({what}): {:?}", outcome.violation);
    }
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in 0..5 {
        let (one, other) = (simulate(seed, 1_000, None, true), simulate(seed, 1_000, None, true));
        assert!(one.trace.len() > 500);
        assert_eq!(one.trace, other.trace);
        assert_eq!(one.steps, simulate(seed, 1_000, None, false).steps);
    }
}

#[test]
fn every_planted_bug_is_found() {
    for plant in Plant::ALL {
        let found = |seed| simulate(seed, WORLD_STEPS, Some(plant), false).violation;
        let finds = |seed: &u64| found(*seed).is_some_and(|violation| violation.promise == plant.breaks());
        let seed = (0..500).find(finds);
        let seed =
            seed.unwrap_or_else(|| panic!("{plant:?} breaks {} unseen: {:?}", plant.breaks(), found(0)));
        println!("{plant:?} is found with seed {seed}");
    }
}
