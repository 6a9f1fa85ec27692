//! Reads what a round looks at: a number of statements that does not depend on the number of calls.

use super::rows::{BlockRow, ClientRow, KeyRow, corrupt, db_time, round_to};
use super::transaction::Attempt;
use super::{StoreError, Timing, millis};
use pgsemaphore_allocation::{
    BLOCKED_LIFETIME, BLOCKED_REWRITTEN_AFTER, Block, BlockId, Call, Client, ClientId, DbTime, Group,
    GroupUsage, Policy, Reason, Semaphore, SemaphoreKey, Slot, State, Work,
};
use sqlx::FromRow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use time::OffsetDateTime;

/// The key's row and policy, held for this transaction.
pub(crate) struct Taken {
    /// The database's clock when the row was held.
    pub(crate) now: DbTime,
    /// A moment of this process's clock that is not before `now`.
    pub(crate) anchor: Instant,
    /// The key's row.
    pub(crate) semaphore: Option<Semaphore>,
    /// The policy that wins, with when rounds may start.
    pub(crate) policy: Option<(Policy, Timing)>,
    /// Rows of batches that exist.
    pub(crate) batch_cap: i32,
    pattern: Option<String>,
}

/// Rows that a round needs and that do not exist. They are made outside of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) clients: Vec<String>,
    pub(crate) groups: Vec<String>,
    /// Rows for blocks that must exist.
    pub(crate) slot_cap: Slot,
    /// Rows of batches that must exist.
    pub(crate) batch_cap: i32,
}

/// What was read.
pub(crate) enum Loaded {
    /// All that the round needs.
    State(Box<State>),
    /// Rows are missing.
    Missing(Missing),
}

/// Takes the key's row.
pub(crate) async fn take(attempt: &mut Attempt, key: &SemaphoreKey) -> Result<Taken, StoreError> {
    let query =
        sqlx::query_as(include_str!("../../queries/take_key.sql")).bind(key.as_str()).bind(attempt.writer);
    let mut row: KeyRow = query.fetch_one(&mut *attempt.tx).await?;
    if !row.durable {
        return Err(StoreError::NotDurable);
    }
    attempt.version = row.version;
    let timing = |wait: Option<i32>, period: Option<i32>| {
        Some(Timing { wait: millis(wait?), period: millis(period?) })
    };
    Ok(Taken {
        now: db_time(row.now),
        anchor: crate::clock::now(),
        policy: row.policy().zip(timing(row.round_wait_ms, row.round_period_ms)),
        batch_cap: row.batch_cap.unwrap_or(0),
        semaphore: row.version.map(|_| row.semaphore()),
        pattern: row.pattern,
    })
}

/// Reads what `calls` need of a key whose row is `semaphore`.
pub(crate) async fn load(
    attempt: &mut Attempt,
    key: &SemaphoreKey,
    taken: &Taken,
    mut semaphore: Semaphore,
    work: Work,
    calls: &[Call],
) -> Result<Loaded, StoreError> {
    let mut missing = Missing::default();
    let clients = read_clients(attempt, key, calls, &mut missing).await?;
    let due = if work == Work::Sync {
        BTreeMap::new()
    } else {
        read_due(attempt, key, taken.now, &semaphore).await?
    };
    let mut blocks = read_named(attempt, key, calls, &due).await?;
    read_unseen(attempt, key, calls, &clients, &mut blocks).await?;
    let groups = read_groups(attempt, key, taken, calls, &blocks, &mut missing).await?;
    if work == Work::Round {
        let wanted = calls.iter().flat_map(|call| &call.demand).filter(|demand| demand.count > 0).count();
        find_rows(attempt, key, wanted, taken.batch_cap, &mut semaphore, &mut missing).await?;
    }
    if missing != Missing::default() {
        return Ok(Loaded::Missing(missing));
    }
    let contended_elsewhere_until = read_contended(attempt, key, taken.now, &semaphore, &clients).await?;
    let policy = taken.policy.as_ref().map(|(policy, _)| policy.clone());
    let now = taken.now;
    let state = State { now, semaphore, policy, groups, clients, blocks, due, contended_elsewhere_until };
    Ok(Loaded::State(Box::new(state)))
}

async fn read_clients(
    attempt: &mut Attempt,
    key: &SemaphoreKey,
    calls: &[Call],
    missing: &mut Missing,
) -> Result<BTreeMap<ClientId, Client>, StoreError> {
    let ids: BTreeSet<&str> = calls.iter().map(|call| call.client.as_str()).collect();
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let ids: Vec<_> = ids.into_iter().collect();
    let query = sqlx::query_as(include_str!("../../queries/read_clients.sql")).bind(key.as_str()).bind(&ids);
    let rows: Vec<ClientRow> = query.fetch_all(&mut *attempt.tx).await?;
    let mut clients = BTreeMap::new();
    for row in rows {
        clients.insert(ClientId::new(row.client_id.as_str()), row.client()?);
    }
    let unknown = ids.into_iter().filter(|id| !clients.contains_key(&ClientId::new(*id)));
    missing.clients = unknown.map(str::to_owned).collect();
    Ok(clients)
}

/// Which slots are listed in batches that are due.
async fn read_due(
    attempt: &mut Attempt,
    key: &SemaphoreKey,
    now: DbTime,
    semaphore: &Semaphore,
) -> Result<BTreeMap<i32, Vec<Slot>>, StoreError> {
    let due: Vec<i32> =
        semaphore.batches.iter().filter(|batch| batch.deadline <= now).map(|batch| batch.n).collect();
    if due.is_empty() {
        return Ok(BTreeMap::new());
    }
    let query = sqlx::query_as(include_str!("../../queries/read_pending.sql")).bind(key.as_str()).bind(due);
    let rows: Vec<(i32, Vec<i32>)> = query.fetch_all(&mut *attempt.tx).await?;
    Ok(rows.into_iter().collect())
}

/// Blocks that are reported or due.
async fn read_named(
    attempt: &mut Attempt,
    key: &SemaphoreKey,
    calls: &[Call],
    due: &BTreeMap<i32, Vec<Slot>>,
) -> Result<BTreeMap<Slot, Block>, StoreError> {
    let reported = calls.iter().flat_map(|call| &call.grants).filter_map(|report| BlockId::parse(&report.id));
    let slots: BTreeSet<Slot> = reported.map(|id| id.slot).chain(due.values().flatten().copied()).collect();
    if slots.is_empty() {
        return Ok(BTreeMap::new());
    }
    let slots: Vec<_> = slots.into_iter().collect();
    let query = sqlx::query_as(include_str!("../../queries/read_blocks.sql")).bind(key.as_str()).bind(slots);
    let rows: Vec<BlockRow> = query.fetch_all(&mut *attempt.tx).await?;
    rows.into_iter().map(|row| row.block().map(|block| (block.id.slot, block))).collect()
}

/// Blocks that a calling client has not heard of, where its latest block is one of those.
async fn read_unseen(
    attempt: &mut Attempt,
    key: &SemaphoreKey,
    calls: &[Call],
    clients: &BTreeMap<ClientId, Client>,
    blocks: &mut BTreeMap<Slot, Block>,
) -> Result<(), StoreError> {
    let behind = |call: &&Call| clients.get(&call.client).is_some_and(|client| client.last_block > call.seen);
    let (ids, seen): (Vec<_>, Vec<_>) =
        calls.iter().filter(behind).map(|call| (call.client.as_str(), round_to(call.seen))).unzip();
    if ids.is_empty() {
        return Ok(());
    }
    let query = sqlx::query_as(include_str!("../../queries/read_unseen_blocks.sql")).bind(key.as_str());
    let rows: Vec<BlockRow> = query.bind(ids).bind(seen).fetch_all(&mut *attempt.tx).await?;
    for row in rows {
        let block = row.block()?;
        blocks.insert(block.id.slot, block);
    }
    Ok(())
}

#[derive(FromRow)]
struct GroupRow {
    grp: String,
    grants: Option<i64>,
    leases: Option<i64>,
    permit_limit: Option<i32>,
}

async fn read_groups(
    attempt: &mut Attempt,
    key: &SemaphoreKey,
    taken: &Taken,
    calls: &[Call],
    blocks: &BTreeMap<Slot, Block>,
    missing: &mut Missing,
) -> Result<BTreeMap<Group, GroupUsage>, StoreError> {
    let demanded = calls.iter().flat_map(|call| &call.demand).map(|demand| demand.group.as_str());
    let names: BTreeSet<&str> = demanded.chain(blocks.values().map(|block| block.group.as_str())).collect();
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let names: Vec<_> = names.into_iter().collect();
    let query = sqlx::query_as(include_str!("../../queries/read_groups.sql")).bind(key.as_str());
    let rows: Vec<GroupRow> = query.bind(names).bind(&taken.pattern).fetch_all(&mut *attempt.tx).await?;
    let mut groups = BTreeMap::new();
    for GroupRow { grp, grants, leases, permit_limit } in rows {
        let (Some(grants), Some(leases)) = (grants, leases) else {
            missing.groups.push(grp);
            continue;
        };
        groups.insert(Group::new(grp), GroupUsage { grants, leases, limit: permit_limit.map(i64::from) });
    }
    Ok(groups)
}

/// Rows for `wanted` new blocks and for their batch.
async fn find_rows(
    attempt: &mut Attempt,
    key: &SemaphoreKey,
    wanted: usize,
    batch_cap: i32,
    semaphore: &mut Semaphore,
    missing: &mut Missing,
) -> Result<(), StoreError> {
    if wanted > semaphore.available_slots() && semaphore.unlisted_slots > 0 {
        let query = sqlx::query_scalar(include_str!("../../queries/read_free_slots.sql")).bind(key.as_str());
        let query = query.bind(semaphore.next_slot).bind(&semaphore.free_slots);
        let found: Vec<i32> =
            query.bind(i64::try_from(wanted.max(256)).unwrap_or(256)).fetch_all(&mut *attempt.tx).await?;
        semaphore.unlisted_slots -= i32::try_from(found.len()).map_err(|_| corrupt("count"))?;
        semaphore.free_slots.extend(found);
    }
    if wanted > semaphore.available_slots() {
        let short = i32::try_from(wanted - semaphore.available_slots()).map_err(|_| corrupt("count"))?;
        missing.slot_cap = semaphore.slot_cap + short.max(semaphore.slot_cap / 2).clamp(16, 4096.max(short));
    }
    let batches = i32::try_from(semaphore.batches.len()).map_err(|_| corrupt("count"))?;
    if wanted > 0 && batch_cap <= batches {
        missing.batch_cap = batches + 4;
    }
    Ok(())
}

/// Until when clients outside this transaction count as blocked by the limit. The key's row has the latest moment of
/// all clients; the others are looked at only where that may be one of ours.
async fn read_contended(
    attempt: &mut Attempt,
    key: &SemaphoreKey,
    now: DbTime,
    semaphore: &Semaphore,
    clients: &BTreeMap<ClientId, Client>,
) -> Result<Option<DbTime>, StoreError> {
    let Some(until) = semaphore.contended_until.filter(|until| *until > now) else { return Ok(None) };
    let by_limit =
        |client: &&Client| client.blocked.iter().any(|entry| entry.lacking.reason == Reason::Limit);
    let ours = clients.values().filter(by_limit).filter_map(|client| client.blocked_at).max();
    if ours.is_none_or(|at| at + BLOCKED_LIFETIME + BLOCKED_REWRITTEN_AFTER < until) {
        return Ok(Some(until));
    }
    let ids: Vec<&str> = clients.keys().map(ClientId::as_str).collect();
    let query = sqlx::query_scalar(include_str!("../../queries/read_contended_elsewhere.sql"));
    let latest: Option<OffsetDateTime> =
        query.bind(key.as_str()).bind(ids).fetch_one(&mut *attempt.tx).await?;
    Ok(latest.map(|at| db_time(at) + BLOCKED_LIFETIME))
}
