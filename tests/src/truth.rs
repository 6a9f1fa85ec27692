//! What really ran, by the test's own records: the one witness that no bug of the product can mislead.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// A key, and a group in it or none for the key as a whole.
type Budget = (String, Option<String>);

/// Records of items that start and stop.
#[derive(Debug, Clone, Default)]
pub struct Truth(Arc<Mutex<Records>>);

#[derive(Debug, Default)]
struct Records {
    /// Numbers of the items that run.
    running: BTreeMap<Budget, BTreeSet<u64>>,
    /// The highest limit that was ever in force.
    highest: BTreeMap<Budget, u64>,
    started: u64,
    violations: Vec<String>,
}

/// An item that runs; it stops when this is dropped, which must be before its permit is.
#[derive(Debug)]
#[must_use = "the item stops when this value is dropped"]
pub struct Running {
    truth: Truth,
    key: String,
    group: String,
    number: u64,
}

impl Truth {
    /// This limit is about to be in force. Lowering one evicts nothing, so the highest counts.
    pub fn limit(&self, key: &str, group: Option<&str>, limit: u64) {
        let budget = (key.to_owned(), group.map(str::to_owned));
        let mut records = self.records();
        let highest = records.highest.entry(budget).or_default();
        *highest = limit.max(*highest);
    }

    /// An item starts.
    pub fn start(&self, key: &str, group: &str) -> Running {
        let mut records = self.records();
        records.started += 1;
        let number = records.started;
        for budget in budgets(key, group) {
            let running = records.running.entry(budget.clone()).or_default();
            running.insert(number);
            let running = running.len() as u64;
            if let Some(highest) = records.highest.get(&budget).filter(|highest| running > **highest) {
                let violation = format!("{budget:?}: {running} run, the limit was never above {highest}");
                records.violations.push(violation);
            }
        }
        Running { truth: self.clone(), key: key.to_owned(), group: group.to_owned(), number }
    }

    /// The items that run on a key right now, or in one of its groups.
    #[must_use]
    pub fn running(&self, key: &str, group: Option<&str>) -> BTreeSet<u64> {
        let budget = (key.to_owned(), group.map(str::to_owned));
        self.records().running.get(&budget).cloned().unwrap_or_default()
    }

    /// The highest limit that was ever in force; none where there was no limit.
    #[must_use]
    pub fn highest(&self, key: &str, group: Option<&str>) -> Option<u64> {
        self.records().highest.get(&(key.to_owned(), group.map(str::to_owned))).copied()
    }

    /// Items that have started.
    #[must_use]
    pub fn started(&self) -> u64 {
        self.records().started
    }

    /// Moments at which more ran than any limit allowed; must be empty.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.records().violations.clone()
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.0.lock().expect("no panic while locked")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut records = self.truth.records();
        for budget in budgets(&self.key, &self.group) {
            if let Some(running) = records.running.get_mut(&budget) {
                running.remove(&self.number);
            }
        }
    }
}

fn budgets(key: &str, group: &str) -> [Budget; 2] {
    [(key.to_owned(), None), (key.to_owned(), Some(group.to_owned()))]
}
