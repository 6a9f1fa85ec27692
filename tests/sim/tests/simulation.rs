//! Random worlds without a violation, seeds that once failed, and planted bugs, each of which is found.
//!
//! `SIM_STEPS` says how many steps to take in all (600,000 unless said), `SIM_SEED` with which seed to begin.

use pgsemaphore_sim::{Plant, Totals, WORLD_STEPS, simulate, simulate_hanging, simulate_many};

/// Seeds of worlds that found something once, each with what it was.
const KEPT: &str = include_str!("../kept-seeds.txt");

fn wanted(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.replace('_', "").parse().ok()).unwrap_or(default)
}

#[test]
fn no_promise_is_broken() {
    let (first, steps) = (wanted("SIM_SEED", 0), wanted("SIM_STEPS", 600_000));
    match simulate_many(simulate, first, steps) {
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
        // A ledger that is lied to may also fail an assertion of its own; that is no finding of the audit.
        let world = |seed| simulate(seed, WORLD_STEPS, Some(plant), false).violation;
        let found = |seed| std::panic::catch_unwind(|| world(seed)).ok().flatten();
        let finds = |seed: &u64| found(*seed).is_some_and(|violation| violation.promise == plant.breaks());
        let seed = (0..500).find(finds);
        let seed =
            seed.unwrap_or_else(|| panic!("{plant:?} breaks {} unseen: {:?}", plant.breaks(), found(0)));
        println!("{plant:?} is found with seed {seed}");
    }
}

/// O-10, O-12: every call hangs with probability 0.2, and one holder at a time answers nobody.
#[test]
fn where_calls_hang_nobody_is_declared_dead_and_all_are_served() {
    let (first, steps) = (wanted("SIM_SEED", 0), wanted("SIM_STEPS", 600_000) / 4);
    let totals = simulate_many(simulate_hanging, first, steps);
    let Totals { census, steps, .. } = totals.unwrap_or_else(|(seed, outcome)| {
        panic!("seed {seed}, `simulate --hanging --trace {seed}` shows all of it: {:?}", outcome.violation)
    });
    println!("{steps} steps where calls hang: {census:#?}");
    for what in
        ["a call hangs", "a holder freezes", "calls are cut off", "answers are cut off", "a runtime ends"]
    {
        assert!(census.get(what).is_some_and(|times| *times >= 20), "{what} hardly happens: {census:?}");
    }
}

#[test]
fn every_planted_bug_of_hanging_calls_is_found() {
    for plant in Plant::HANGING {
        let finds = |seed: &u64| {
            let found = simulate_hanging(*seed, WORLD_STEPS, Some(plant), false).violation;
            found.is_some_and(|violation| violation.promise == plant.breaks())
        };
        let seed =
            (0..100).find(finds).unwrap_or_else(|| panic!("{plant:?} breaks {} unseen", plant.breaks()));
        println!("{plant:?} is found with seed {seed}");
    }
}
