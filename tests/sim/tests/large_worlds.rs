//! What only shows in a key with many blocks: free rows beyond those listed, and more rounds than batches.

use pgsemaphore_allocation::{
    Call, ClientId, DbTime, Demand, GrantReport, Group, SemaphoreKey, Work, check, round, sync, timer,
};
use pgsemaphore_sim::{Conflict, Limits, MemoryStore};

struct World {
    key: SemaphoreKey,
    store: MemoryStore,
    now: DbTime,
}

impl World {
    fn new(limit: i64) -> Self {
        let key = SemaphoreKey::new("key");
        let mut store = MemoryStore::new();
        store.set_limits(&key, Some(Limits::of_grants(limit, 20_000_000)));
        Self { key, store, now: DbTime(1_764_428_000_000_000) }
    }

    fn transact(&mut self, work: Work, calls: &[Call]) {
        let transaction = self.store.begin(&self.key, work, calls, self.now);
        let plan = match work {
            Work::Round => round(&transaction.state, calls),
            Work::Sync => sync(&transaction.state, calls),
            Work::Timer => timer(&transaction.state),
        };
        check(work, &transaction.state, calls, &plan).expect("the checker agrees");
        self.store.commit(&transaction, &plan).expect("no other transaction");
        assert_eq!(self.store.verify(&self.key), []);
    }

    fn ids(&self) -> Vec<String> {
        let rows = self.store.rows(&self.key).expect("rows");
        rows.blocks.values().map(|block| block.id.to_string()).collect()
    }
}

fn wants(groups: usize) -> Call {
    let demand = |n: usize| Demand { group: Group::new(format!("g{n}")), count: 1, oldest_age: 0 };
    let demand = (0..groups).map(demand).collect();
    let (grants, leases) = Default::default();
    let client = ClientId::new("A");
    let from = Default::default();
    Call {
        client,
        from,
        seen: 0,
        all: false,
        waited: 0,
        asks: true,
        demand,
        grants,
        leases,
        takes_leases: false,
        applied: false,
    }
}

/// A message of a client that has seen everything up to now.
fn call(world: &World, call: Call) -> Call {
    Call { seen: world.store.rows(&world.key).map_or(0, |rows| rows.semaphore.round), ..call }
}

#[test]
fn free_rows_beyond_those_listed_are_used_again() {
    let mut world = World::new(1_000);
    for _ in 0..4 {
        let request = call(&world, wants(700));
        world.transact(Work::Round, &[request]);
        assert_eq!(world.ids().len(), 700);
        let report = |id| GrantReport { id, claimed: 1, released: 1 };
        let grants = world.ids().into_iter().map(report).collect();
        let release = call(&world, Call { grants, ..wants(0) });
        world.transact(Work::Sync, &[release]);
        let rows = world.store.rows(&world.key).expect("rows");
        assert!(rows.blocks.is_empty());
        assert!(rows.semaphore.unlisted_slots > 0);
    }
    let rows = world.store.rows(&world.key).expect("rows");
    assert!(rows.semaphore.slot_cap <= 704, "{} rows for 700 blocks", rows.semaphore.slot_cap);
}

#[test]
fn more_rounds_than_batches_are_all_reclaimed_in_time() {
    let mut world = World::new(1_000);
    for n in 0..300 {
        let request = call(&world, wants(1));
        world.now = world.now + 37_000;
        world.transact(Work::Round, &[request]);
        assert_eq!(world.ids().len(), n + 1);
    }
    let mut timers = 0;
    while let Some(deadline) = world.store.next_deadline(&world.key) {
        assert!(deadline > world.now, "a timer that finds nothing to do");
        world.now = deadline;
        world.transact(Work::Timer, &[]);
        timers += 1;
    }
    assert!(world.ids().is_empty());
    assert!(timers <= 300, "{timers} timers");
}

#[test]
fn of_two_transactions_at_once_one_fails() {
    let mut world = World::new(1);
    let calls = [call(&world, wants(1))];
    let one = world.store.begin(&world.key, Work::Round, &calls, world.now);
    let other = world.store.begin(&world.key, Work::Round, &calls, world.now);
    assert_eq!(world.store.commit(&one, &round(&one.state, &calls)), Ok(()));
    assert_eq!(world.store.commit(&other, &round(&other.state, &calls)), Err(Conflict));
    assert_eq!(world.ids().len(), 1);
}
