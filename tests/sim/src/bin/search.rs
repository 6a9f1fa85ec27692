//! Every way through a small world: `search [STATES [PROCESSES ITEMS CANCELS REQUESTS SYNCS UNDER_WAY ROUNDS DEADLINES
//! REPEATS CRASHES LIMIT LEASE SILENCES]]` stops after so many states, or when it has seen all of them.

use pgsemaphore_sim::{Bounds, search};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let said = std::env::args().skip(1).filter_map(|text| text.replace('_', "").parse::<u32>().ok());
    let said: Vec<u32> = said.collect();
    let get = |at: usize, unless_said: u32| said.get(at).copied().unwrap_or(unless_said);
    let states_max = get(0, u32::MAX) as usize;
    let bounds = Bounds {
        processes: get(1, 2),
        limit: i64::from(get(11, 2)),
        items: get(2, 1),
        cancels: get(3, 0),
        requests: get(4, 1),
        syncs: get(5, 2),
        under_way: get(6, 2) as usize,
        rounds: get(7, 2),
        deadlines: get(8, 1),
        repeats: get(9, 1),
        crashes: get(10, 0),
        lease: i64::from(get(12, 0)),
        silences: get(13, 0),
        plant: None,
    };
    println!("{bounds:?}");
    let started = Instant::now();
    match search(bounds, states_max) {
        Ok(search) => {
            let all = if search.states < states_max { "all" } else { "not all" };
            println!("{search:?}, {all}, in {:.1} s: no violation", started.elapsed().as_secs_f64());
            ExitCode::SUCCESS
        }
        Err((violation, steps)) => {
            steps.iter().for_each(|step| println!("{step}"));
            println!("{violation}");
            ExitCode::FAILURE
        }
    }
}
