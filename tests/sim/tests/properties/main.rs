//! Thousands of small random worlds, of clients that keep to no protocol: they repeat, reorder and invent reports, ask
//! with any `seen`, while limits change and the clock jumps. After every transaction the checker agrees, the counters
//! are what the blocks say, and the world's own invariants hold. Plans that are tampered with are found out.

mod invariants;
mod leases;
mod mutations;
mod tampering;
mod tampering_clients;
mod tampering_leases;
mod tampering_order;
mod world;

use pgsemaphore_allocation::Kind;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use world::{World, any_world};

/// 1300 worlds, or as many as are asked for.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn every_plan_keeps_the_promises(steps in any_world()) {
        let mut world = World::new();
        for step in &steps {
            world.take(step, |_, _| Ok(())).map_err(TestCaseError::fail)?;
        }
        world.everything_comes_back().map_err(TestCaseError::fail)?;
    }

    /// The same true reports, in any order and any number of times, end in the same counts.
    #[test]
    fn order_and_repetition_of_reports_change_nothing(
        marks in prop::collection::vec((0..4_i64, 0..4_i64), 1..6),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut true_marks = vec![(0, 0)];
        for (claimed, released) in marks {
            let (c, r) = true_marks.last().copied().unwrap_or_default();
            let c: i64 = (c + claimed).min(9);
            true_marks.push((c, (r + released).min(c)));
        }
        let mut shuffled: Vec<_> = order.iter().map(|at| *at.get(&true_marks)).collect();
        shuffled.extend(true_marks.iter().rev());
        for kind in [Kind::Grant, Kind::Lease] {
            prop_assert_eq!(world::report_all(kind, &true_marks), world::report_all(kind, &shuffled));
        }
    }
}

/// Every tampered plan is found out, and every kind of tampering occurs often enough to mean something.
#[test]
fn the_checker_finds_what_is_tampered_with() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut tried = std::collections::BTreeMap::<&str, u32>::new();
    for _ in 0..cases() * 3 {
        let steps = any_world().new_tree(&mut runner).expect("a world").current();
        let mut world = World::new();
        for step in &steps {
            world.take(step, |case, plan| mutations::try_all(case, plan, &mut tried)).expect("found out");
        }
    }
    let times = |name: &str| tried.get(name).copied().unwrap_or(0);
    let rare: Vec<_> = mutations::ALL.iter().map(|mutation| (mutation.name, times(mutation.name))).collect();
    let rare: Vec<_> = rare.into_iter().filter(|(_, times)| *times < 5).collect();
    assert!(rare.is_empty(), "tried hardly ever: {rare:?}");
}
