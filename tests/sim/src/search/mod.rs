//! Every way through a small world: no dice, but each thing that can happen next, from each state that can be reached.
//!
//! The world has the real ledgers, the real allocation and a network that loses, repeats, delays and reorders, within
//! [`Bounds`]. In each state the ceilings hold and what is held is counted (P1, P2), each plan passes the checker, and
//! no transaction frees what its owner did not release (P3). Where nothing can happen any more, all that is left comes
//! back by itself (P4).
//!
//! A transaction is one step here: the fence makes of any two that overlap one that fails and is done again. Time is not
//! counted: whoever waits for a moment may find that it has come. A state is remembered by a fingerprint of 128 bits.

mod actions;
mod state;

use crate::audit::Violation;
use crate::plant::Plant;
use actions::Action;
use state::State;
use std::collections::HashSet;

/// How small the world is.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Processes.
    pub processes: u32,
    /// The limit of the one semaphore.
    pub limit: i64,
    /// Items that each process has to run.
    pub items: u32,
    /// Items of each process that are cancelled while they wait.
    pub cancels: u32,
    /// Requests that each process sends.
    pub requests: u32,
    /// Syncs that each process sends.
    pub syncs: u32,
    /// Messages and answers that are under way at a time.
    pub under_way: usize,
    /// Rounds.
    pub rounds: u32,
    /// How often claim deadlines pass.
    pub deadlines: u32,
    /// How often something that was under way arrives and stays under way.
    pub repeats: u32,
    /// Processes that crash.
    pub crashes: u32,
    /// A planted bug of processes; those of holders are not planted here.
    pub plant: Option<Plant>,
}

/// What a search saw.
#[derive(Debug)]
pub struct Search {
    /// Different states.
    pub states: usize,
    /// Ways from one to another.
    pub steps: u64,
    /// States in which nothing can happen any more.
    pub ends: u64,
}

/// Goes through all states, or as many as are asked for.
///
/// # Errors
/// The promise that is broken, and the steps that lead there.
pub fn search(bounds: Bounds, states_max: usize) -> Result<Search, (Violation, Vec<String>)> {
    let mut seen = HashSet::new();
    let start = State::new(bounds);
    seen.insert(start.fingerprint());
    let mut search = Search { states: 0, steps: 0, ends: 0 };
    let mut path = vec![Place::new(start, None)];
    while let Some(place) = path.last_mut() {
        let mut verdict = Ok(());
        match place.next.pop() {
            Some(action) => {
                let Some((state, judged)) = place.state.after(action) else { continue };
                search.steps += 1;
                place.ends = false;
                let new = seen.len() < states_max && seen.insert(state.fingerprint());
                if new || judged.is_err() {
                    path.push(Place::new(state, Some(action)));
                }
                verdict = judged;
            }
            None if place.ends => {
                search.ends += 1;
                place.ends = false;
                verdict = place.state.all_comes_back();
            }
            None => drop(path.pop()),
        }
        if let Err(violation) = verdict {
            return Err((violation, told(bounds, path.iter().filter_map(|place| place.by))));
        }
    }
    search.states = seen.len();
    Ok(search)
}

/// A state on the way that is being tried, how it was reached, and what has not been tried in it.
struct Place {
    state: State,
    by: Option<Action>,
    next: Vec<Action>,
    /// Nothing was possible so far.
    ends: bool,
}

impl Place {
    fn new(state: State, by: Option<Action>) -> Self {
        let next = state.actions();
        Self { state, by, next, ends: true }
    }
}

fn told(bounds: Bounds, steps: impl Iterator<Item = Action>) -> Vec<String> {
    let mut state = State::new(bounds);
    let mut lines = Vec::new();
    for action in steps {
        lines.push(state.tells(action));
        if let Some((next, _)) = state.after(action) {
            state = next;
        }
    }
    lines
}
