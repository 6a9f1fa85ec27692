//! Writes a plan: one statement whatever its size, and another one for what is declared.

use super::StoreError;
use super::rows::{BlockedJson, kind_text, round_to, status_text, timestamp};
use super::transaction::Attempt;
use pgsemaphore_allocation::{Act, Block, Plan, SemaphoreKey, Work};
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::QueryAs;
use sqlx::types::Json;
use time::OffsetDateTime;

/// How many rows were written: of keys, groups, blocks, batches and clients.
type Written = (i64, i64, i64, i64, i64);

type Write<'q> = QueryAs<'q, Postgres, Written, PgArguments>;

/// Writes `plan`. Rows that are missing, and a key's row that is another transaction's, end the attempt.
pub(crate) async fn apply(
    attempt: &mut Attempt,
    key: &SemaphoreKey,
    plan: &Plan,
    work: Work,
    batch_cap: i32,
) -> Result<(), StoreError> {
    let write = sqlx::query_as(include_str!("../../queries/apply_plan.sql"))
        .bind(key.as_str())
        .bind(attempt.version)
        .bind(attempt.writer);
    let write = with_key(write, plan, work, batch_cap)?;
    let write = with_groups(write, plan);
    let write = with_blocks(write, plan)?;
    let write = with_batches(write, plan);
    let write = with_clients(write, plan);
    if write.fetch_one(&mut *attempt.tx).await? != expected(plan) {
        return Err(StoreError::Fenced);
    }
    write_audit(attempt, key, plan).await
}

fn expected(plan: &Plan) -> Written {
    let count = |rows: usize| i64::try_from(rows).unwrap_or(i64::MAX);
    let Plan { groups, blocks, pending, clients, .. } = plan;
    (1, count(groups.len()), count(blocks.len()), count(pending.len()), count(clients.len()))
}

fn narrow(permits: i64) -> Result<i32, StoreError> {
    i32::try_from(permits).map_err(|_| super::rows::corrupt("number of permits"))
}

fn with_key<'q>(
    write: Write<'q>,
    plan: &'q Plan,
    work: Work,
    batch_cap: i32,
) -> Result<Write<'q>, StoreError> {
    let semaphore = &plan.semaphore;
    let batches = &semaphore.batches;
    let message_at = (work != Work::Timer).then(|| timestamp(plan.now));
    Ok(write
        .bind(round_to(semaphore.round))
        .bind(semaphore.last_round_at.map(timestamp))
        .bind(message_at)
        .bind(semaphore.permit_limit.map(narrow).transpose()?)
        .bind(semaphore.grants)
        .bind(semaphore.leases)
        .bind(semaphore.contended_until.map(timestamp))
        .bind(semaphore.next_deadline().map(timestamp))
        .bind(batches.iter().map(|batch| batch.n).collect::<Vec<_>>())
        .bind(batches.iter().map(|batch| timestamp(batch.deadline)).collect::<Vec<_>>())
        .bind(batches.iter().map(|batch| batch.open).collect::<Vec<_>>())
        .bind(batch_cap)
        .bind(&semaphore.free_slots)
        .bind(semaphore.unlisted_slots)
        .bind(semaphore.next_slot)
        .bind(semaphore.slot_cap)
        .bind(semaphore.live_leases)
        .bind(semaphore.leases_due.map(timestamp))
        .bind(semaphore.leases_judged_by)
        .bind(semaphore.settle_after.map(|after| after / 1000))
        .bind(semaphore.settle_after_since.map(timestamp))
        .bind(semaphore.silence_due.map(timestamp)))
}

fn with_groups<'q>(write: Write<'q>, plan: &'q Plan) -> Write<'q> {
    let groups = &plan.groups;
    write
        .bind(groups.keys().map(|group| group.as_str()).collect::<Vec<_>>())
        .bind(groups.values().map(|usage| usage.grants).collect::<Vec<_>>())
        .bind(groups.values().map(|usage| usage.leases).collect::<Vec<_>>())
        .bind(groups.values().map(|usage| usage.live_leases).collect::<Vec<_>>())
        .bind(groups.values().map(|usage| usage.contended_until.map(timestamp)).collect::<Vec<_>>())
}

/// The columns of blocks to write, one array each.
#[derive(Default)]
struct Columns<'a> {
    slots: Vec<i32>,
    kinds: Vec<Option<&'static str>>,
    rounds: Vec<i64>,
    clients: Vec<&'a str>,
    groups: Vec<&'a str>,
    permits: Vec<i32>,
    used: Vec<i32>,
    released: Vec<i32>,
    statuses: Vec<&'static str>,
    deadlines: Vec<Option<OffsetDateTime>>,
    batches: Vec<Option<i32>>,
    created: Vec<Option<OffsetDateTime>>,
    stopped: Vec<bool>,
    ttls: Vec<i64>,
    reported: Vec<Option<OffsetDateTime>>,
}

impl<'a> Columns<'a> {
    fn push(&mut self, slot: i32, block: Option<&'a Block>) -> Result<(), StoreError> {
        self.slots.push(slot);
        self.kinds.push(block.map(|block| kind_text(block.kind)));
        self.rounds.push(block.map_or(0, |block| round_to(block.id.round)));
        self.clients.push(block.map_or("", |block| block.client.as_str()));
        self.groups.push(block.map_or("", |block| block.group.as_str()));
        self.permits.push(narrow(block.map_or(0, |block| block.permits))?);
        self.used.push(narrow(block.map_or(0, |block| block.used))?);
        self.released.push(narrow(block.map_or(0, |block| block.released))?);
        self.statuses.push(block.map_or("active", |block| status_text(block.status)));
        self.deadlines.push(block.map(|block| timestamp(block.deadline)));
        self.batches.push(block.and_then(|block| block.batch));
        self.created.push(block.map(|block| timestamp(block.created_at)));
        self.stopped.push(block.is_some_and(|block| block.stopped));
        self.ttls.push(block.map_or(0, |block| block.ttl / 1000));
        self.reported.push(block.map(|block| timestamp(block.reported_at)));
        Ok(())
    }
}

fn with_blocks<'q>(write: Write<'q>, plan: &'q Plan) -> Result<Write<'q>, StoreError> {
    let mut columns = Columns::default();
    for (slot, block) in &plan.blocks {
        columns.push(*slot, block.as_ref())?;
    }
    Ok(write
        .bind(columns.slots)
        .bind(columns.kinds)
        .bind(columns.rounds)
        .bind(columns.clients)
        .bind(columns.groups)
        .bind(columns.permits)
        .bind(columns.used)
        .bind(columns.released)
        .bind(columns.statuses)
        .bind(columns.deadlines)
        .bind(columns.batches)
        .bind(columns.created)
        .bind(columns.stopped)
        .bind(columns.ttls)
        .bind(columns.reported))
}

fn with_batches<'q>(write: Write<'q>, plan: &'q Plan) -> Write<'q> {
    let pairs = plan.pending.iter().flat_map(|(n, write)| write.slots.iter().map(|slot| (*n, *slot)));
    let (ns, slots): (Vec<_>, Vec<_>) = pairs.unzip();
    let appended: Vec<_> = plan.pending.iter().filter(|(_, write)| write.append).map(|(n, _)| *n).collect();
    write.bind(ns).bind(slots).bind(appended)
}

fn with_clients<'q>(write: Write<'q>, plan: &'q Plan) -> Write<'q> {
    let clients = &plan.clients;
    let blocked =
        |client: &pgsemaphore_allocation::Client| Json(client.blocked.iter().map(BlockedJson::new).collect());
    let processes = || clients.values().map(|client| client.incarnation.as_ref());
    write
        .bind(clients.keys().map(|id| id.as_str()).collect::<Vec<_>>())
        .bind(clients.values().map(|client| timestamp(client.last_seen)).collect::<Vec<_>>())
        .bind(clients.values().map(|client| round_to(client.last_block)).collect::<Vec<_>>())
        .bind(clients.values().map(blocked).collect::<Vec<Json<Vec<BlockedJson>>>>())
        .bind(clients.values().map(|client| client.blocked_at.map(timestamp)).collect::<Vec<_>>())
        .bind(clients.values().map(|client| array_text(&client.leases)).collect::<Vec<_>>())
        .bind(clients.values().map(|client| client.open_blocks.cast_signed()).collect::<Vec<_>>())
        .bind(processes().map(|process| process.map(|p| round_to(p.generation))).collect::<Vec<_>>())
        .bind(processes().map(|process| process.and_then(|p| p.process.as_deref())).collect::<Vec<_>>())
        .bind(processes().map(|process| process.is_some_and(|p| p.resumes)).collect::<Vec<_>>())
        .bind(clients.values().map(|client| round_to(client.lowest_generation)).collect::<Vec<_>>())
        .bind(clients.values().map(|client| client.fenced_at.map(timestamp)).collect::<Vec<_>>())
}

async fn write_audit(attempt: &mut Attempt, key: &SemaphoreKey, plan: &Plan) -> Result<(), StoreError> {
    let audit = &plan.audit;
    if audit.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(include_str!("../../queries/write_audit.sql"))
        .bind(key.as_str())
        .bind(timestamp(plan.now))
        .bind(audit.iter().map(|entry| entry.client.as_str()).collect::<Vec<_>>())
        .bind(audit.iter().map(|entry| action_text(entry.act)).collect::<Vec<_>>())
        .bind(audit.iter().map(|entry| actor_text(entry.act)).collect::<Vec<_>>())
        .bind(audit.iter().map(|entry| round_to(entry.generation)).collect::<Vec<_>>())
        .bind(audit.iter().map(|entry| entry.grants).collect::<Vec<_>>())
        .bind(audit.iter().map(|entry| entry.leases).collect::<Vec<_>>())
        .bind(audit.iter().map(|entry| detail_text(entry.act)).collect::<Vec<_>>());
    query.execute(&mut *attempt.tx).await?;
    Ok(())
}

fn action_text(act: Act) -> &'static str {
    match act {
        Act::Takeover { .. } => "takeover",
        Act::SettleSilent => "settle_silent",
        Act::UnknownToClient => "unknown_to_client",
    }
}

/// On whose word: the client's, or nobody's but the policy's.
fn actor_text(act: Act) -> &'static str {
    match act {
        Act::Takeover { .. } | Act::UnknownToClient => "client",
        Act::SettleSilent => "policy",
    }
}

fn detail_text(act: Act) -> Option<&'static str> {
    match act {
        Act::Takeover { resume: true } => Some("resumed by a process of this generation"),
        Act::Takeover { resume: false } => Some("given up by a process of this generation"),
        Act::SettleSilent => Some("silent for longer than settle_lost_clients_after_ms"),
        Act::UnknownToClient => Some("not among the blocks that the client holds"),
    }
}

/// A list of slots as PostgreSQL spells an array.
fn array_text(slots: &[i32]) -> String {
    let slots: Vec<String> = slots.iter().map(i32::to_string).collect();
    format!("{{{}}}", slots.join(","))
}
