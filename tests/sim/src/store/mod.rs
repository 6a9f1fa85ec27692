//! A store in memory: the rows of every key, read and written in transactions as PostgreSQL's are.
//!
//! Authoritative for the contract between a round and its store, as code: which rows a round may rely on ([`load`]),
//! what is made ready before it ([`room`]), and what must be true of the rows after it ([`verify`]). Each key has a
//! fence: a transaction that read an older version than the one it would replace fails with [`Conflict`] and writes
//! nothing.

mod load;
mod room;
mod verify;

pub use load::Transaction;
pub use verify::Difference;

use pgsemaphore_allocation::{
    Block, Client, ClientId, DbTime, Group, GroupUsage, Micros, Permits, Plan, Policy, Provisioning,
    Semaphore, SemaphoreKey, Slot, last_seen_resolution,
};
use queue_client::wire::Message;
use std::collections::{BTreeMap, BTreeSet};

/// The rows of every key, and the limits in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct MemoryStore {
    keys: BTreeMap<SemaphoreKey, Rows>,
    limits: BTreeMap<SemaphoreKey, Limits>,
    stamp: i64,
    serving_since: Option<DbTime>,
}

/// The policy of one key and the ceilings of its groups.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Limits {
    /// The policy that wins for the key.
    pub policy: Policy,
    /// Ceilings of groups that have one.
    pub groups: BTreeMap<Group, Permits>,
    /// Groups whose ceiling can't be resolved.
    pub unresolved: BTreeSet<Group>,
    /// Who may not be admitted where.
    pub not_permitted: BTreeSet<(ClientId, Group)>,
}

impl Limits {
    /// A limit without leases and ceilings; unclaimed permits come back after `grant_timeout`.
    pub fn of_grants(limit: Permits, grant_timeout: Micros) -> Self {
        let policy = Policy {
            limit: Some(limit),
            paused: false,
            paused_groups: BTreeSet::new(),
            grant_timeout,
            round_period: 0,
            provisioning: Provisioning::None,
            permits_per_lease: 64,
            lease_ttl: 1_800_000_000,
            leases_within_group_limit: false,
            settle_after: None,
            stamp: 0,
        };
        let (groups, unresolved, not_permitted) = Default::default();
        Self { policy, groups, unresolved, not_permitted }
    }
}

/// The rows of one key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Rows {
    /// Rises with every commit.
    pub version: u64,
    /// The key's row.
    pub semaphore: Semaphore,
    /// Counters and marks per group. Ceilings belong to the policy, so none is stored here.
    pub groups: BTreeMap<Group, GroupUsage>,
    /// Rows that hold a block; all others below `slot_cap` are free.
    pub blocks: BTreeMap<Slot, Block>,
    /// Rows listed in each batch, stale ones included.
    pub pending: BTreeMap<i32, Vec<Slot>>,
    /// Clients heard of.
    pub clients: BTreeMap<ClientId, Client>,
}

/// Another transaction of the key was committed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflict;

impl MemoryStore {
    /// A store without keys and policies.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a policy with its groups' ceilings in force for a key, or takes it away. The store stamps it anew.
    pub fn set_limits(&mut self, key: &SemaphoreKey, limits: Option<Limits>) {
        self.stamp += 1;
        match limits {
            Some(mut limits) => {
                limits.policy.stamp = self.stamp;
                self.limits.insert(key.clone(), limits)
            }
            None => self.limits.remove(key),
        };
    }

    /// Says since when holders can hear clients without a break; `None` if they can't now.
    pub fn set_serving_since(&mut self, since: Option<DbTime>) {
        self.serving_since = since;
    }

    /// Damages a key: its row has this round, whatever it had.
    pub fn set_round(&mut self, key: &SemaphoreKey, round: u64) {
        let rows = self.keys.entry(key.clone()).or_default();
        rows.semaphore.round = round;
        rows.version += 1;
    }

    /// Whether holders can hear clients now.
    pub fn is_served(&self) -> bool {
        self.serving_since.is_some()
    }

    /// What is in force for a key.
    pub fn limits(&self, key: &SemaphoreKey) -> Option<&Limits> {
        self.limits.get(key)
    }

    /// The rows of a key; none if nothing was ever written.
    pub fn rows(&self, key: &SemaphoreKey) -> Option<&Rows> {
        self.keys.get(key)
    }

    /// When a timer of the key has something to do.
    pub fn next_deadline(&self, key: &SemaphoreKey) -> Option<DbTime> {
        self.rows(key)?.semaphore.next_deadline()
    }

    /// A holder notes that it hears clients now, outside of the key's transactions: those that hold something, where what
    /// is noted is too old.
    pub fn hear(&mut self, key: &SemaphoreKey, clients: &BTreeSet<ClientId>, now: DbTime) {
        let after = self.limits.get(key).and_then(|limits| limits.policy.settle_after);
        let Some(rows) = self.keys.get_mut(key) else { return };
        let concerned = rows.clients.iter_mut().filter(|(id, _)| clients.contains(id));
        for (_, client) in concerned.filter(|(_, client)| client.open_blocks != 0) {
            if now - client.last_seen > last_seen_resolution(after) {
                client.last_seen = now;
            }
        }
    }

    /// Writes a plan, if the key is still as the transaction read it, and so are the clients that it writes.
    ///
    /// # Errors
    /// [`Conflict`] if they are not. Nothing is written then.
    ///
    /// # Panics
    /// If the plan writes to a row that does not exist.
    pub fn commit(&mut self, transaction: &Transaction, plan: &Plan) -> Result<(), Conflict> {
        if transaction.without_row {
            return Ok(());
        }
        let rows = self.keys.entry(transaction.key.clone()).or_default();
        let heard_since = |id: &ClientId| {
            let read = transaction.state.clients.get(id).map(|client| client.last_seen);
            rows.clients.get(id).is_some_and(|client| Some(client.last_seen) != read)
        };
        if rows.version != transaction.version || plan.clients.keys().any(heard_since) {
            return Err(Conflict);
        }
        rows.write(plan);
        Ok(())
    }
}

impl Rows {
    /// Whether the process that says this speaks for its client, or would.
    pub(crate) fn admits(&self, message: &Message) -> bool {
        let Some(client) = self.clients.get(&ClientId::new(message.client_id.as_str())) else { return true };
        let own = client.incarnation.as_ref();
        let speaks =
            own.is_some_and(|own| (own.generation, &own.process) == (message.generation, &message.process));
        message.generation >= if speaks { client.lowest_generation } else { client.lowest_admitted() }
    }

    fn write(&mut self, plan: &Plan) {
        self.version += 1;
        self.semaphore = plan.semaphore.clone();
        for (group, usage) in &plan.groups {
            self.groups.insert(group.clone(), GroupUsage { limit: None, unresolved: false, ..usage.clone() });
        }
        for (slot, block) in &plan.blocks {
            assert!((0..self.semaphore.slot_cap).contains(slot), "row {slot} does not exist");
            match block {
                Some(block) => self.blocks.insert(*slot, block.clone()),
                None => self.blocks.remove(slot),
            };
        }
        for (n, write) in &plan.pending {
            let listed = self.pending.entry(*n).or_default();
            if !write.append {
                listed.clear();
            }
            listed.extend(&write.slots);
        }
        for (id, client) in &plan.clients {
            let noted = self.clients.get(id).map_or(client.last_seen, |old| old.last_seen);
            let last_seen = client.last_seen.max(noted);
            self.clients.insert(id.clone(), Client { last_seen, ..client.clone() });
        }
    }
}
