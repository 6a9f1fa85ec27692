//! The store in a state, and every transaction that was ever run on one.

use super::Printed;
use crate::audit::{Verdict, footprint, violated};
use crate::store::{MemoryStore, Rows, Transaction};
use crate::world::network::{CallName, Packet};
use crate::world::translate;
use pgsemaphore_allocation::{Call, ClientId, DbTime, Plan, SemaphoreKey, Work, check, round, sync, timer};
use queue_client::Endpoint;
use queue_client::wire::Message;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// A call and what it says.
pub(super) type Request = (CallName, Rc<Message>);

/// The store, with its fingerprint.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) print: u128,
    store: MemoryStore,
}

/// A commit: the store after it, the answers, and whether the promises hold.
pub(super) type Committed = (Rc<Stored>, Vec<Printed<Packet>>, Verdict);

/// Every transaction that was ever run.
pub(super) struct Transactions {
    key: SemaphoreKey,
    done: HashMap<(u128, u128), Committed>,
}

impl Stored {
    fn new(store: MemoryStore) -> Self {
        Self { print: super::print(&store), store }
    }
}

impl Transactions {
    pub(super) fn new() -> Self {
        Self { key: SemaphoreKey::new("key"), done: HashMap::new() }
    }

    /// The store before anything, with the key's row.
    pub(super) fn start(&self, limits: crate::store::Limits, now: i64) -> Rc<Stored> {
        let mut store = MemoryStore::new();
        store.set_limits(&self.key, Some(limits));
        store.set_serving_since(Some(DbTime(now)));
        let first = store.begin(&self.key, Work::Timer, &[], DbTime(now));
        store.commit(&first, &timer(&first.state)).expect("nothing else runs");
        Rc::new(Stored::new(store))
    }

    pub(super) fn rows<'a>(&self, stored: &'a Stored) -> &'a Rows {
        stored.store.rows(&self.key).expect("the first state has made the key's row")
    }

    /// One transaction from its first read to its answers.
    pub(super) fn run(&mut self, on: &Stored, now: i64, work: Work, batch: &[Printed<Request>]) -> Committed {
        let calls: Vec<_> = batch.iter().map(|request| request.print).collect();
        let key = (on.print, super::print(&(now, work == Work::Sync, calls)));
        if let Some(done) = self.done.get(&key) {
            return done.clone();
        }
        let mut store = on.store.clone();
        let (packets, mut verdict) = self.transact(&mut store, DbTime(now), work, batch);
        if verdict.is_ok() {
            verdict = self.nothing_comes_back_twice(&on.store, &store);
        }
        let committed = (Rc::new(Stored::new(store)), packets, verdict);
        super::forget_if_many(&mut self.done);
        self.done.insert(key, committed.clone());
        committed
    }

    /// A timer that looks for silent clients. Those with an open call are heard by the holder that looks, or (`elsewhere`)
    /// another one has noted that it hears them.
    pub(super) fn look_for_silent(
        &self,
        on: &Stored,
        now: i64,
        open: &BTreeSet<ClientId>,
        elsewhere: bool,
    ) -> (Rc<Stored>, Verdict) {
        let mut store = on.store.clone();
        if elsewhere {
            store.hear(&self.key, open, DbTime(now));
        }
        let mut transaction = store.begin(&self.key, Work::Timer, &[], DbTime(now));
        if !elsewhere {
            transaction.state.open_calls.clone_from(open);
        }
        let plan = timer(&transaction.state);
        let verdict = self.commit(&mut store, &transaction, Work::Timer, &[], &plan);
        (Rc::new(Stored::new(store)), verdict)
    }

    fn transact(
        &self,
        store: &mut MemoryStore,
        now: DbTime,
        work: Work,
        batch: &[Printed<Request>],
    ) -> (Vec<Printed<Packet>>, Verdict) {
        let endpoint = if work == Work::Round { Endpoint::Request } else { Endpoint::Sync };
        let calls: Vec<_> = batch.iter().map(|request| translate::call(&request.is.1, endpoint, 0)).collect();
        let transaction = store.begin(&self.key, work, &calls, now);
        let plan = match work {
            Work::Round => round(&transaction.state, &calls),
            Work::Sync => sync(&transaction.state, &calls),
            Work::Timer => timer(&transaction.state),
        };
        let verdict = self.commit(store, &transaction, work, &calls, &plan);
        let answers = batch.iter().zip(plan.answers).map(|(request, outcome)| {
            let answer = translate::answer(outcome, plan.now, 0);
            Printed::new(Packet::Answer { name: request.is.0.clone(), answer: answer.map(Rc::new) })
        });
        (answers.collect(), verdict)
    }

    fn commit(
        &self,
        store: &mut MemoryStore,
        transaction: &Transaction,
        work: Work,
        calls: &[Call],
        plan: &Plan,
    ) -> Verdict {
        if let Err(objection) = check(work, &transaction.state, calls, plan) {
            return violated(objection.promise, objection.detail);
        }
        if store.commit(transaction, plan).is_err() {
            return violated("P7", "a conflict where nothing else runs");
        }
        match store.verify(&self.key).first() {
            Some(difference) => violated("P3", difference.to_string()),
            None => Ok(()),
        }
    }

    fn nothing_comes_back_twice(&self, before: &MemoryStore, after: &MemoryStore) -> Verdict {
        let blocks =
            |store: &MemoryStore| store.rows(&self.key).map(|rows| rows.blocks.clone()).unwrap_or_default();
        let after = blocks(after);
        for old in blocks(before).values() {
            let new = after.get(&old.id.slot).filter(|new| new.id == old.id);
            // A stopped lease counts more again when its client says that it had drawn more.
            let late = new.filter(|_| old.stopped).map_or(0, |new| new.used - old.used);
            let back = new.is_some_and(|new| new.used < old.used || new.released < old.released);
            if back || new.map_or(0, footprint) > footprint(old) + late {
                return violated("P3", format!("{old:?} went back to {new:?}"));
            }
        }
        Ok(())
    }
}
