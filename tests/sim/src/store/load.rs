//! What a transaction reads: only what the contract of a round's [`State`] asks for.

use super::{MemoryStore, Rows};
use pgsemaphore_allocation::{
    BLOCKED_LIFETIME, Block, BlockId, Call, Client, ClientId, DbTime, Group, GroupUsage, Permits, Reason,
    SemaphoreKey, Slot, State, Work,
};
use std::collections::{BTreeMap, BTreeSet};

/// A client that was never heard of: its first message is always written.
const NEVER: DbTime = DbTime(i64::MIN / 2);

/// What was read of a key, and the version of it that a commit must still find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// The key.
    pub key: SemaphoreKey,
    /// The version read.
    pub version: u64,
    /// The input of the round.
    pub state: State,
}

impl MemoryStore {
    /// Makes rows ready, then reads what `work` for these calls looks at.
    pub fn begin(&mut self, key: &SemaphoreKey, work: Work, calls: &[Call], now: DbTime) -> Transaction {
        if work == Work::Round {
            self.make_room(key, calls);
        }
        let nothing = Rows::default();
        let rows = self.keys.get(key).unwrap_or(&nothing);
        let due = if work == Work::Sync { BTreeMap::new() } else { rows.due(now) };
        let mut blocks = BTreeMap::new();
        blocks.extend(rows.reported(calls));
        blocks.extend(rows.listed(&due));
        blocks.extend(rows.unseen(calls));
        let limits = self.limits.get(key);
        let ceilings = limits.map(|limits| &limits.groups);
        let groups = rows.groups_of(&blocks, calls, ceilings);
        let calling: BTreeSet<_> = calls.iter().map(|call| &call.client).collect();
        let state = State {
            now,
            semaphore: rows.semaphore_with_room(calls),
            policy: limits.map(|limits| limits.policy.clone()),
            groups,
            clients: calling.iter().map(|id| ((*id).clone(), rows.client(id))).collect(),
            blocks,
            due,
            contended_elsewhere_until: rows.contended_by_others(&calling, now),
        };
        Transaction { key: key.clone(), version: rows.version, state }
    }
}

impl Rows {
    fn due(&self, now: DbTime) -> BTreeMap<i32, Vec<Slot>> {
        let due = self.semaphore.batches.iter().filter(|batch| batch.deadline <= now);
        due.map(|batch| (batch.n, self.pending.get(&batch.n).cloned().unwrap_or_default())).collect()
    }

    fn reported(&self, calls: &[Call]) -> impl Iterator<Item = (Slot, Block)> {
        let named =
            calls.iter().flat_map(|call| &call.grants).filter_map(|report| BlockId::parse(&report.id));
        named.filter_map(|id| {
            let block = self.blocks.get(&id.slot).filter(|block| block.id == id)?;
            Some((id.slot, block.clone()))
        })
    }

    fn listed(&self, due: &BTreeMap<i32, Vec<Slot>>) -> impl Iterator<Item = (Slot, Block)> {
        let listed = due.iter().flat_map(|(n, slots)| slots.iter().map(move |slot| (*n, *slot)));
        listed.filter_map(|(n, slot)| {
            let block = self.blocks.get(&slot).filter(|block| block.batch == Some(n))?;
            Some((slot, block.clone()))
        })
    }

    /// A client without blocks made after `seen` costs no search.
    fn unseen(&self, calls: &[Call]) -> impl Iterator<Item = (Slot, Block)> {
        let behind = calls.iter().filter(|call| {
            self.clients.get(&call.client).is_some_and(|client| client.last_block > call.seen)
        });
        behind.flat_map(|call| {
            let own = self.blocks.iter().filter(|(_, block)| block.client == call.client);
            let unseen = own.filter(|(_, block)| block.id.round > call.seen);
            unseen.map(|(slot, block)| (*slot, block.clone()))
        })
    }

    fn groups_of(
        &self,
        blocks: &BTreeMap<Slot, Block>,
        calls: &[Call],
        ceilings: Option<&BTreeMap<Group, Permits>>,
    ) -> BTreeMap<Group, GroupUsage> {
        let demanded = calls.iter().flat_map(|call| &call.demand).map(|demand| &demand.group);
        let named: BTreeSet<_> = blocks.values().map(|block| &block.group).chain(demanded).collect();
        let usage = |group: &Group| {
            let (grants, leases) = self.groups.get(group).copied().unwrap_or_default();
            let limit = ceilings.and_then(|ceilings| ceilings.get(group)).copied();
            GroupUsage { grants, leases, limit }
        };
        named.into_iter().map(|group| (group.clone(), usage(group))).collect()
    }

    fn client(&self, id: &ClientId) -> Client {
        let new = || Client { last_seen: NEVER, last_block: 0, blocked: Vec::new(), blocked_at: None };
        self.clients.get(id).cloned().unwrap_or_else(new)
    }

    fn contended_by_others(&self, calling: &BTreeSet<&ClientId>, now: DbTime) -> Option<DbTime> {
        let others = self.clients.iter().filter(|(id, _)| !calling.contains(id)).map(|(_, client)| client);
        let by_limit =
            others.filter(|client| client.blocked.iter().any(|entry| entry.lacking.reason == Reason::Limit));
        let until = by_limit.filter_map(|client| client.blocked_at).map(|at| at + BLOCKED_LIFETIME);
        until.filter(|until| *until > now).max()
    }
}
