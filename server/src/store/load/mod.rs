//! Reads what a round looks at: a number of statements that does not depend on the number of calls.

mod blocks;
mod calls;
mod clients;
mod groups;
mod resolve;
mod room;

pub(crate) use self::resolve::FunctionCall;
use self::resolve::Functions;
use super::rows::{KeyRow, db_time};
use super::transaction::Attempt;
use super::{StoreError, Timing, millis};
use pgsemaphore_allocation::{
    Call, DbTime, Policy, Semaphore, SemaphoreKey, Slot, State, Work, must_read_leases,
};
use std::collections::BTreeSet;
use std::time::Instant;

/// The key's row and policy, held for this transaction.
pub(crate) struct Taken {
    /// The database's clock when the row was held.
    pub(crate) now: DbTime,
    /// A moment of this process's clock that is not before `now`.
    pub(crate) anchor: Instant,
    /// The version of the key's row before this transaction.
    pub(crate) version: Option<i64>,
    /// The key's row.
    pub(crate) semaphore: Option<Semaphore>,
    /// The policy that wins, with when rounds may start.
    pub(crate) policy: Option<(Policy, Timing)>,
    /// Rows of batches that exist.
    pub(crate) batch_cap: i32,
    pattern: Option<String>,
    functions: Functions,
}

/// Rows that a round needs and that do not exist. They are made outside of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) clients: Vec<String>,
    pub(crate) groups: BTreeSet<String>,
    /// Rows for blocks that must exist.
    pub(crate) slot_cap: Slot,
    /// Rows of batches that must exist.
    pub(crate) batch_cap: i32,
}

/// What was read.
pub(crate) enum Loaded {
    /// All that the round needs, and which functions were asked for it.
    State(Box<State>, Vec<FunctionCall>),
    /// Rows are missing.
    Missing(Missing),
}

/// Takes the key's row.
pub(crate) async fn take(attempt: &mut Attempt, key: &SemaphoreKey) -> Result<Taken, StoreError> {
    let query =
        sqlx::query_as(include_str!("../../../queries/take_key.sql")).bind(key.as_str()).bind(attempt.writer);
    let row: KeyRow = query.fetch_one(&mut *attempt.tx).await?;
    attempt.version = row.version;
    let before = row.version.map(|version| version - 1);
    taken(row, before)
}

/// Reads the key's row without taking it, for a transaction that writes nothing.
pub(crate) async fn look_at(attempt: &mut Attempt, key: &SemaphoreKey) -> Result<Taken, StoreError> {
    let query = sqlx::query_as(include_str!("../../../queries/look_at_key.sql")).bind(key.as_str());
    let row: KeyRow = query.fetch_one(&mut *attempt.tx).await?;
    let before = row.version;
    taken(row, before)
}

fn taken(mut row: KeyRow, version: Option<i64>) -> Result<Taken, StoreError> {
    let anchor = crate::clock::now();
    if !row.durable {
        return Err(StoreError::NotDurable);
    }
    let timing = |row: &KeyRow| {
        let (wait, period) = (millis(row.round_wait_ms?), millis(row.round_period_ms?));
        Some(Timing { wait, period, eager: row.eager?, stamp: row.stamp? })
    };
    Ok(Taken {
        now: db_time(row.now),
        anchor,
        version,
        policy: row.policy()?.zip(timing(&row)),
        batch_cap: row.batch_cap.unwrap_or(0),
        semaphore: row.version.map(|_| row.semaphore()),
        pattern: row.pattern,
        functions: Functions {
            limit: row.limit_function,
            group_limit: row.group_limit_function,
            can_grant: row.can_grant_function,
        },
    })
}

/// Whether one of the callers has a row, although the key has none.
pub(crate) async fn knows_clients(
    attempt: &mut Attempt,
    key: &SemaphoreKey,
    calls: &[Call],
) -> Result<bool, StoreError> {
    let ids: Vec<&str> = calls.iter().map(|call| call.client.as_str()).collect();
    let query = sqlx::query(include_str!("../../../queries/read_clients.sql")).bind(key.as_str());
    Ok(query.bind(ids).fetch_optional(&mut *attempt.tx).await?.is_some())
}

/// Whether demand of anybody is blocked on the key.
pub(crate) async fn is_anybody_blocked(
    attempt: &mut Attempt,
    key: &SemaphoreKey,
) -> Result<bool, StoreError> {
    let query = sqlx::query_scalar(include_str!("../../../queries/read_anybody_blocked.sql"));
    Ok(query.bind(key.as_str()).fetch_one(&mut *attempt.tx).await?)
}

/// Reads what `calls` need of a key whose row is `semaphore`.
pub(crate) async fn load(
    attempt: &mut Attempt,
    key: &SemaphoreKey,
    taken: &Taken,
    semaphore: Semaphore,
    work: Work,
    calls: &[Call],
) -> Result<Loaded, StoreError> {
    let mut reader = Reader {
        attempt,
        key,
        calls,
        pattern: taken.pattern.as_deref(),
        missing: Missing::default(),
        asked: Vec::new(),
        state: State::new(taken.now, semaphore, taken.policy.as_ref().map(|(policy, _)| policy.clone())),
    };
    reader.read_calls().await?;
    reader.read_silence(work).await?;
    if work != Work::Sync {
        reader.read_due().await?;
    }
    reader.read_listed().await?;
    reader.read_unseen().await?;
    reader.read_all_of_some().await?;
    reader.read_groups().await?;
    if work == Work::Round {
        reader.resolve(&taken.functions).await?;
    }
    let State { now, semaphore, policy, groups, .. } = &reader.state;
    if must_read_leases(work, *now, semaphore, policy.as_ref(), groups) {
        reader.read_leases().await?;
        reader.read_groups().await?;
    }
    reader.read_owners().await?;
    if work == Work::Round {
        reader.find_room(taken.batch_cap).await?;
    }
    if reader.missing != Missing::default() {
        return Ok(Loaded::Missing(reader.missing));
    }
    reader.read_contended().await?;
    Ok(Loaded::State(Box::new(reader.state), reader.asked))
}

/// Reads into a state, step by step.
struct Reader<'a> {
    attempt: &'a mut Attempt,
    key: &'a SemaphoreKey,
    calls: &'a [Call],
    pattern: Option<&'a str>,
    missing: Missing,
    asked: Vec<FunctionCall>,
    state: State,
}
