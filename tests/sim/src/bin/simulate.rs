//! Runs worlds for as long as asked: `simulate [STEPS [SEED]]`, or one world with its trace: `simulate --trace SEED`.
//! With `--hanging` before it, worlds in which calls hang.

use pgsemaphore_sim::{Simulate, WORLD_STEPS, simulate, simulate_hanging, simulate_many};
use std::process::ExitCode;
use std::time::Instant;

const PORTION: u64 = 1_000_000;

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let hanging = arguments.first().is_some_and(|argument| argument == "--hanging");
    arguments.drain(..usize::from(hanging));
    let simulate: Simulate = if hanging { simulate_hanging } else { simulate };
    let number = |at: usize| arguments.get(at).and_then(|text| text.replace('_', "").parse::<u64>().ok());
    if arguments.first().is_some_and(|argument| argument == "--trace") {
        let outcome = simulate(number(1).unwrap_or(0), WORLD_STEPS, None, true);
        outcome.trace.iter().for_each(|line| println!("{line}"));
        return if outcome.violation.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    run(simulate, number(0).unwrap_or(PORTION), number(1).unwrap_or(0))
}

fn run(simulate: Simulate, steps: u64, first_seed: u64) -> ExitCode {
    let started = Instant::now();
    let (mut seed, mut done) = (first_seed, 0);
    while done < steps {
        match simulate_many(simulate, seed, PORTION.min(steps - done)) {
            Ok(totals) => {
                done += totals.steps;
                seed = totals.next_seed;
                let seconds = started.elapsed().as_secs_f64();
                println!("{done} steps, seeds {first_seed} to {}, {seconds:.1} s: no violation", seed - 1);
            }
            Err((seed, outcome)) => {
                outcome.trace.iter().for_each(|line| println!("{line}"));
                println!("seed {seed}: {:?}", outcome.violation);
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
