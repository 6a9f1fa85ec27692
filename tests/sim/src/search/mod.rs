//! Every way through a small world: no dice, but each thing that can happen next, from each state that can be reached.
//!
//! The world has the real ledgers, the real allocation and a network that loses, repeats, delays and reorders, within
//! [`Bounds`]. In each state the ceilings hold and what is held is counted (P1, P2), each plan passes the checker, and
//! no transaction frees what its owner did not release (P3). Where nothing can happen any more, all that is left comes
//! back by itself (P4). A client is declared dead only while it has no call open at any holder (P2).
//!
//! A transaction is one step here: the fence makes of any two that overlap one that fails and is done again. Time is not
//! counted: whoever waits for a moment may find that it has come. A state is remembered by a fingerprint of 128 bits.

mod actions;
mod actor;
mod state;
mod store;

use crate::audit::Violation;
use crate::plant::Plant;
use actions::Action;
use state::{State, World};
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

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
    /// How often clients are silent for longer than the policy allows. With any, requests are parked that get nothing.
    pub silences: u32,
    /// Permits of the largest lease, from what grants leave; 0 for no leases.
    pub lease: i64,
    /// A planted bug of processes, or [`Plant::ParkedUnheard`]; others of holders are not planted here.
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
    let mut world = World::new(bounds);
    let mut seen = HashSet::new();
    let start = world.start();
    seen.insert(start.fingerprint());
    let mut search = Search { states: 0, steps: 0, ends: 0 };
    let mut path = vec![Place::new(start, None, &world)];
    while let Some(place) = path.last_mut() {
        let mut verdict = Ok(());
        match place.next.pop() {
            Some(action) => {
                let Some((state, judged)) = place.state.after(&action, &mut world) else { continue };
                search.steps += 1;
                place.ends = false;
                let new = seen.len() < states_max && seen.insert(state.fingerprint());
                if new || judged.is_err() {
                    path.push(Place::new(state, Some(action), &world));
                }
                verdict = judged;
            }
            None if place.ends => {
                search.ends += 1;
                place.ends = false;
                verdict = place.state.all_comes_back(&mut world);
            }
            None => drop(path.pop()),
        }
        if let Err(violation) = verdict {
            return Err((violation, told(&path)));
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
    fn new(state: State, by: Option<Action>, world: &World) -> Self {
        let next = state.actions(world);
        Self { state, by, next, ends: true }
    }
}

fn told(path: &[Place]) -> Vec<String> {
    let steps = path.iter().zip(path.iter().skip(1));
    steps.filter_map(|(from, to)| Some(from.state.tells(to.by.as_ref()?))).collect()
}

/// What was done before is done again where it is forgotten.
fn forget_if_many<K, V>(done: &mut HashMap<K, V>) {
    const REMEMBERED_MAX: usize = 50_000;
    if done.len() >= REMEMBERED_MAX {
        done.clear();
    }
}

/// Something that is shared between states, with its fingerprint.
#[derive(Debug)]
struct Printed<T> {
    is: Rc<T>,
    print: u128,
}

impl<T> Clone for Printed<T> {
    fn clone(&self) -> Self {
        Self { is: self.is.clone(), print: self.print }
    }
}

impl<T: Debug> Printed<T> {
    fn new(is: T) -> Self {
        Self { print: print(&format!("{is:?}")), is: Rc::new(is) }
    }
}

/// A fingerprint of 128 bits: two hashes of the same, at once.
fn print(of: &impl Hash) -> u128 {
    let mut twice = Twice(DefaultHasher::new(), DefaultHasher::new());
    twice.1.write_u8(1);
    of.hash(&mut twice);
    u128::from(twice.0.finish()) << 64 | u128::from(twice.1.finish())
}

struct Twice(DefaultHasher, DefaultHasher);

impl Hasher for Twice {
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
        self.1.write(bytes);
    }

    fn finish(&self) -> u64 {
        self.0.finish()
    }
}
