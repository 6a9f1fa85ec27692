//! Every way through worlds that are small enough for a test run. Larger ones: the binary `search`.

use pgsemaphore_sim::{Bounds, Plant, search};

const SMALL: Bounds = Bounds {
    processes: 2,
    limit: 2,
    items: 1,
    cancels: 0,
    requests: 1,
    syncs: 1,
    under_way: 2,
    rounds: 2,
    deadlines: 1,
    repeats: 1,
    crashes: 0,
    silences: 0,
    lease: 0,
    plant: None,
};

#[test]
fn two_processes() {
    let all = search(SMALL, usize::MAX).expect("no violation");
    assert!(all.states > 10_000 && all.ends > 100, "{all:?}");
}

#[test]
fn one_process_that_changes_its_mind() {
    let bounds = Bounds { processes: 1, items: 2, cancels: 1, syncs: 2, ..SMALL };
    let all = search(bounds, usize::MAX).expect("no violation");
    assert!(all.states > 1_000 && all.ends > 100, "{all:?}");
}

#[test]
fn a_process_that_crashes() {
    let bounds = Bounds { requests: 1, syncs: 1, repeats: 0, crashes: 1, ..SMALL };
    let all = search(bounds, usize::MAX).expect("no violation");
    assert!(all.states > 1_000 && all.ends > 100, "{all:?}");
}

#[test]
fn two_processes_with_leases() {
    let all = search(Bounds { lease: 1, ..SMALL }, usize::MAX).expect("no violation");
    assert!(all.states > 100_000 && all.ends > 1_000, "{all:?}");
}

#[test]
fn one_process_that_draws_again() {
    let bounds = Bounds { processes: 1, limit: 3, items: 2, syncs: 2, deadlines: 0, lease: 2, ..SMALL };
    let all = search(bounds, usize::MAX).expect("no violation");
    assert!(all.states > 50_000 && all.ends > 1_000, "{all:?}");
}

/// One permit for two items: one of them runs, the other one waits in a call that is parked.
const SILENT: Bounds =
    Bounds { processes: 1, limit: 1, items: 2, requests: 2, repeats: 0, silences: 1, ..SMALL };

#[test]
fn clients_that_are_silent_and_clients_that_wait() {
    let all = search(SILENT, usize::MAX).expect("no violation");
    assert!(all.states > 10_000 && all.ends > 100, "{all:?}");
}

#[test]
fn planted_bugs_are_found() {
    let bounds = Bounds { processes: 1, syncs: 2, under_way: 3, ..SMALL };
    let with_leases = Bounds { limit: 3, items: 2, lease: 2, ..bounds };
    let plants = [
        (Plant::StartsUnconfirmed, bounds),
        (Plant::TakesUpOldBlocks, bounds),
        (Plant::DrawsAfterStopped, with_leases),
        (Plant::ParkedUnheard, SILENT),
    ];
    for (plant, bounds) in plants {
        let found = search(Bounds { plant: Some(plant), ..bounds }, usize::MAX);
        let (violation, steps) = found.expect_err("a violation");
        assert_eq!(violation.promise, plant.breaks(), "{steps:#?}");
    }
}
