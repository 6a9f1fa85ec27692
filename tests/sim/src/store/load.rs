//! What a transaction reads: only what the contract of a round's [`State`] asks for.

use super::{Limits, MemoryStore, Rows};
use pgsemaphore_allocation::{
    BLOCKED_LIFETIME, Block, BlockId, Call, Client, ClientId, Contended, DbTime, Group, GroupUsage, Kind,
    Reason, SemaphoreKey, Silence, Slot, State, Work, must_read_all_blocks, must_read_leases, silent_since,
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
    /// Whether the key has no row and gets none: no policy covers it, or it is a sync that has seen no round.
    pub without_row: bool,
}

impl MemoryStore {
    /// Makes rows ready, then reads what `work` for these calls looks at.
    pub fn begin(&mut self, key: &SemaphoreKey, work: Work, calls: &[Call], now: DbTime) -> Transaction {
        let looks = work == Work::Sync && calls.iter().all(|call| call.seen == 0);
        let without_row = !self.keys.contains_key(key) && (looks || !self.limits.contains_key(key));
        if work == Work::Round && !without_row {
            self.make_room(key, calls);
        }
        let nothing = Rows::default();
        let rows = self.keys.get(key).unwrap_or(&nothing);
        let limits = self.limits.get(key);
        let mut state = State::new(
            now,
            rows.semaphore_with_room(limits, calls),
            limits.map(|limits| limits.policy.clone()),
        );
        if work != Work::Sync {
            state.due = rows.due(now);
        }
        let silent_since = silent_since(work, now, &state.semaphore, state.policy.as_ref());
        if work == Work::Round {
            let denied = limits.iter().flat_map(|limits| &limits.not_permitted);
            let calls_here = |client: &ClientId| calls.iter().any(|call| call.client == *client);
            state.not_permitted = denied.filter(|(client, _)| calls_here(client)).cloned().collect();
        }
        state.silence = silent_since.map(|since| rows.silence(since, self.serving_since));
        state.blocks.extend(rows.reported(calls));
        state.blocks.extend(rows.listed(&state.due));
        state.blocks.extend(rows.unseen(calls));
        state.blocks.extend(rows.own_leases(calls));
        let calling: BTreeSet<_> = calls.iter().map(|call| &call.client).collect();
        let silent: Vec<_> = state.silence.iter().flat_map(|silence| silence.clients.clone()).collect();
        let concerned: BTreeSet<_> = calling.into_iter().chain(&silent).collect();
        state.clients = concerned.iter().map(|id| ((*id).clone(), rows.client(id))).collect();
        let all_of = must_read_all_blocks(&state, calls);
        state.blocks.extend(rows.all_blocks(&all_of));
        state.groups = rows.groups_of(&state.blocks, calls, &concerned, limits);
        let policy = state.policy.as_ref();
        if must_read_leases(work, now, &state.semaphore, policy, &state.groups) {
            state.all_leases = true;
            state.blocks.extend(rows.all_leases());
            state.groups = rows.groups_of(&state.blocks, calls, &concerned, limits);
        }
        let owners = state.blocks.values().map(|block| &block.client);
        state.clients.extend(owners.map(|id| (id.clone(), rows.client(id))));
        state.contended_elsewhere = rows.contended_by_others(&concerned, state.groups.keys(), now);
        Transaction { key: key.clone(), version: rows.version, state, without_row }
    }
}

impl Rows {
    fn due(&self, now: DbTime) -> BTreeMap<i32, Vec<Slot>> {
        let due = self.semaphore.batches.iter().filter(|batch| batch.deadline <= now);
        due.map(|batch| (batch.n, self.pending.get(&batch.n).cloned().unwrap_or_default())).collect()
    }

    fn reported(&self, calls: &[Call]) -> impl Iterator<Item = (Slot, Block)> {
        let grants = calls.iter().flat_map(|call| &call.grants).map(|report| &report.id);
        let leases = calls.iter().flat_map(|call| &call.leases).map(|report| &report.id);
        let named = grants.chain(leases).filter_map(|id| BlockId::parse(id));
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

    fn all_blocks(&self, clients: &BTreeSet<ClientId>) -> impl Iterator<Item = (Slot, Block)> {
        let own = self.blocks.iter().filter(|(_, block)| clients.contains(&block.client));
        own.map(|(slot, block)| (*slot, block.clone()))
    }

    fn silence(&self, since: DbTime, serving_since: Option<DbTime>) -> Silence {
        let (silent, others): (Vec<_>, Vec<_>) = self
            .clients
            .iter()
            .filter(|(_, client)| client.open_blocks != 0)
            .partition(|(_, client)| client.last_seen <= since);
        Silence {
            clients: silent.into_iter().map(|(id, _)| id.clone()).collect(),
            next_heard: others.into_iter().map(|(_, client)| client.last_seen).min(),
            serving_since,
        }
    }

    /// Leases of the clients that speak, by the rows which their own row lists.
    fn own_leases(&self, calls: &[Call]) -> impl Iterator<Item = (Slot, Block)> {
        let listed =
            calls.iter().filter_map(|call| self.clients.get(&call.client)).flat_map(|client| &client.leases);
        listed.filter_map(|slot| Some((*slot, self.blocks.get(slot)?.clone())))
    }

    fn all_leases(&self) -> impl Iterator<Item = (Slot, Block)> {
        let leases = self.blocks.iter().filter(|(_, block)| block.kind == Kind::Lease);
        leases.map(|(slot, block)| (*slot, block.clone()))
    }

    fn groups_of(
        &self,
        blocks: &BTreeMap<Slot, Block>,
        calls: &[Call],
        clients: &BTreeSet<&ClientId>,
        limits: Option<&Limits>,
    ) -> BTreeMap<Group, GroupUsage> {
        let demanded = calls.iter().flat_map(|call| &call.demand).map(|demand| &demand.group);
        let concerned = clients.iter().filter_map(|id| self.clients.get(*id));
        let blocked = concerned.flat_map(|client| &client.blocked).map(|entry| &entry.lacking.group);
        let of_blocks = blocks.values().map(|block| &block.group);
        let named: BTreeSet<_> = of_blocks.chain(demanded).chain(blocked).collect();
        let usage = |group: &Group| {
            let limit = limits.and_then(|limits| limits.groups.get(group)).copied();
            let unresolved =
                limit.is_none() && limits.is_some_and(|limits| limits.unresolved.contains(group));
            GroupUsage { limit, unresolved, ..self.groups.get(group).cloned().unwrap_or_default() }
        };
        named.into_iter().map(|group| (group.clone(), usage(group))).collect()
    }

    fn client(&self, id: &ClientId) -> Client {
        let new = || Client {
            last_seen: NEVER,
            incarnation: None,
            lowest_generation: 0,
            fenced_at: None,
            last_block: 0,
            blocked: Vec::new(),
            blocked_at: None,
            leases: Vec::new(),
            open_blocks: 0,
        };
        self.clients.get(id).cloned().unwrap_or_else(new)
    }

    fn contended_by_others<'a>(
        &self,
        calling: &BTreeSet<&ClientId>,
        groups: impl Iterator<Item = &'a Group>,
        now: DbTime,
    ) -> Contended {
        let others: Vec<_> =
            self.clients.iter().filter(|(id, _)| !calling.contains(id)).map(|(_, client)| client).collect();
        let until = |reason: Reason, group: Option<&Group>| {
            let blocked = others.iter().filter(|client| {
                let mut entries = client.blocked.iter().map(|entry| &entry.lacking);
                entries.any(|lacks| lacks.reason == reason && group.is_none_or(|group| lacks.group == *group))
            });
            let until = blocked.filter_map(|client| client.blocked_at).map(|at| at + BLOCKED_LIFETIME);
            until.filter(|until| *until > now).max()
        };
        let of_group = |group: &Group| Some((group.clone(), until(Reason::GroupLimit, Some(group))?));
        Contended { key: until(Reason::Limit, None), groups: groups.filter_map(of_group).collect() }
    }
}
