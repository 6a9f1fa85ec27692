//! Rows as the database has them, and as the allocation has them.

use super::StoreError;
use pgsemaphore_allocation::{
    Batch, Block, BlockId, BlockedEntry, Client, ClientId, DbTime, Extra, Group, Incarnation, Kind, Lacking,
    Policy, Provisioning, Reason, Semaphore, Status,
};
use serde::{Deserialize, Serialize};
use sqlx::FromRow;
use sqlx::types::Json;
use time::OffsetDateTime;

pub(super) fn db_time(at: OffsetDateTime) -> DbTime {
    DbTime(i64::try_from(at.unix_timestamp_nanos() / 1000).unwrap_or(i64::MAX))
}

pub(super) fn timestamp(at: DbTime) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(at.0) * 1000).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// A row that breaks a rule of the schema.
pub(super) fn corrupt(what: &str) -> StoreError {
    StoreError::Fault(sqlx::Error::Decode(format!("a row with an unknown {what}").into()))
}

pub(super) fn round_of(round: i64) -> u64 {
    u64::try_from(round).unwrap_or(0)
}

pub(super) fn round_to(round: u64) -> i64 {
    i64::try_from(round).unwrap_or(i64::MAX)
}

/// The key's row, NULL where there is none, and the policy that wins, NULL where there is none.
#[derive(FromRow)]
pub(super) struct KeyRow {
    pub(super) now: OffsetDateTime,
    /// Whether a COMMIT of this session is on disk when it is told; a reload of the configuration may change it.
    pub(super) durable: bool,
    pub(super) version: Option<i64>,
    round: Option<i64>,
    last_round_at: Option<OffsetDateTime>,
    permit_limit: Option<i32>,
    grants: Option<i64>,
    leases: Option<i64>,
    live_leases: Option<i64>,
    leases_due: Option<OffsetDateTime>,
    leases_judged_by: Option<i64>,
    contended_until: Option<OffsetDateTime>,
    settle_after_ms: Option<i64>,
    settle_after_since: Option<OffsetDateTime>,
    silence_due: Option<OffsetDateTime>,
    batch_ns: Option<Vec<i32>>,
    batch_deadlines: Option<Vec<OffsetDateTime>>,
    batch_open: Option<Vec<i32>>,
    pub(super) batch_cap: Option<i32>,
    free_slots: Option<Vec<i32>>,
    unlisted_slots: Option<i32>,
    next_slot: Option<i32>,
    slot_cap: Option<i32>,
    pub(super) pattern: Option<String>,
    policy_limit: Option<i32>,
    pub(super) limit_function: Option<String>,
    pub(super) group_limit_function: Option<String>,
    pub(super) can_grant_function: Option<String>,
    paused: Option<bool>,
    paused_groups: Option<Vec<String>>,
    grant_timeout_ms: Option<i32>,
    pub(super) round_wait_ms: Option<i32>,
    pub(super) round_period_ms: Option<i32>,
    pub(super) eager: Option<bool>,
    provisioning: Option<String>,
    lease_reserve: Option<i32>,
    lease_extra: Option<i32>,
    lease_extra_millionths: Option<i64>,
    permits_per_lease: Option<i32>,
    lease_ttl_ms: Option<i64>,
    limited_groups: Option<String>,
    settle_lost_clients_after_ms: Option<i64>,
    pub(super) stamp: Option<i64>,
}

impl KeyRow {
    pub(super) fn semaphore(&mut self) -> Semaphore {
        let batches = self.batch_ns.take().unwrap_or_default().into_iter();
        let deadlines = self.batch_deadlines.take().unwrap_or_default();
        let open = self.batch_open.take().unwrap_or_default();
        Semaphore {
            round: round_of(self.round.unwrap_or(0)),
            last_round_at: self.last_round_at.map(db_time),
            permit_limit: self.permit_limit.map(i64::from),
            grants: self.grants.unwrap_or(0),
            leases: self.leases.unwrap_or(0),
            live_leases: self.live_leases.unwrap_or(0),
            leases_due: self.leases_due.map(db_time),
            leases_judged_by: self.leases_judged_by.unwrap_or(0),
            contended_until: self.contended_until.map(db_time),
            settle_after: self.settle_after_ms.map(|ms| ms * 1000),
            settle_after_since: self.settle_after_since.map(db_time),
            silence_due: self.silence_due.map(db_time),
            batches: batches
                .zip(deadlines.into_iter().zip(open))
                .map(|(n, (deadline, open))| Batch { n, deadline: db_time(deadline), open })
                .collect(),
            free_slots: self.free_slots.take().unwrap_or_default(),
            unlisted_slots: self.unlisted_slots.unwrap_or(0),
            next_slot: self.next_slot.unwrap_or(0),
            slot_cap: self.slot_cap.unwrap_or(0),
        }
    }

    /// The policy; a limit that a function says is not resolved yet.
    pub(super) fn policy(&self) -> Result<Option<Policy>, StoreError> {
        if self.pattern.is_none() {
            return Ok(None);
        }
        Ok(Some(Policy {
            limit: self.policy_limit.filter(|_| self.limit_function.is_none()).map(i64::from),
            paused: self.paused.unwrap_or(false),
            paused_groups: self.paused_groups.iter().flatten().map(Group::new).collect(),
            grant_timeout: i64::from(self.grant_timeout_ms.unwrap_or(0)) * 1000,
            round_period: i64::from(self.round_period_ms.unwrap_or(0)) * 1000,
            provisioning: self.provisioning()?,
            permits_per_lease: i64::from(self.permits_per_lease.unwrap_or(0)),
            lease_ttl: self.lease_ttl_ms.unwrap_or(0) * 1000,
            leases_within_group_limit: self.limited_groups.as_deref() == Some("within_group_limit"),
            settle_after: self.settle_lost_clients_after_ms.map(|ms| ms * 1000),
            stamp: self.stamp.unwrap_or(0),
        }))
    }

    fn provisioning(&self) -> Result<Provisioning, StoreError> {
        let extra = match (self.lease_extra, self.lease_extra_millionths) {
            (Some(permits), _) => Extra::Permits(i64::from(permits)),
            (None, ratio) => Extra::Millionths(ratio.unwrap_or(0)),
        };
        match self.provisioning.as_deref() {
            Some("none") => Ok(Provisioning::None),
            Some("strict") => Ok(Provisioning::Strict),
            Some("under") => Ok(Provisioning::Under { reserve: i64::from(self.lease_reserve.unwrap_or(0)) }),
            Some("over") => Ok(Provisioning::Over { extra }),
            _ => Err(corrupt("mode of provisioning")),
        }
    }
}

#[derive(FromRow)]
pub(super) struct BlockRow {
    slot: i32,
    kind: String,
    round: i64,
    client_id: String,
    grp: String,
    permits: i32,
    used: i32,
    released: i32,
    status: String,
    deadline: Option<OffsetDateTime>,
    batch: Option<i32>,
    created_at: Option<OffsetDateTime>,
    stopped: bool,
    ttl_ms: i64,
    reported_at: Option<OffsetDateTime>,
}

impl BlockRow {
    pub(super) fn block(self) -> Result<Block, StoreError> {
        Ok(Block {
            id: BlockId { round: round_of(self.round), slot: self.slot },
            kind: parse_kind(&self.kind)?,
            client: ClientId::new(self.client_id),
            group: Group::new(self.grp),
            permits: i64::from(self.permits),
            used: i64::from(self.used),
            released: i64::from(self.released),
            status: parse_status(&self.status)?,
            deadline: self.deadline.map_or(DbTime(i64::MAX), db_time),
            batch: self.batch,
            created_at: self.created_at.map_or(DbTime(0), db_time),
            stopped: self.stopped,
            ttl: self.ttl_ms * 1000,
            reported_at: self.reported_at.map_or(DbTime(0), db_time),
        })
    }
}

fn parse_kind(text: &str) -> Result<Kind, StoreError> {
    match text {
        "grant" => Ok(Kind::Grant),
        "lease" => Ok(Kind::Lease),
        _ => Err(corrupt("kind")),
    }
}

pub(super) fn kind_text(kind: Kind) -> &'static str {
    match kind {
        Kind::Grant => "grant",
        Kind::Lease => "lease",
    }
}

fn parse_status(text: &str) -> Result<Status, StoreError> {
    match text {
        "active" => Ok(Status::Active),
        "expired" => Ok(Status::Expired),
        "retired" => Ok(Status::Retired),
        _ => Err(corrupt("status")),
    }
}

pub(super) fn status_text(status: Status) -> &'static str {
    match status {
        Status::Active => "active",
        Status::Expired => "expired",
        Status::Retired => "retired",
    }
}

#[derive(FromRow)]
pub(super) struct ClientRow {
    pub(super) client_id: String,
    last_seen: OffsetDateTime,
    generation: Option<i64>,
    process: Option<String>,
    resumes: bool,
    lowest_generation: i64,
    fenced_at: Option<OffsetDateTime>,
    last_block: i64,
    blocked: Json<Vec<BlockedJson>>,
    blocked_at: Option<OffsetDateTime>,
    lease_slots: Vec<i32>,
    open_blocks: i64,
}

impl ClientRow {
    pub(super) fn client(self) -> Result<Client, StoreError> {
        let (process, resumes) = (self.process, self.resumes);
        let incarnation = |generation| Incarnation { generation: round_of(generation), process, resumes };
        Ok(Client {
            last_seen: db_time(self.last_seen),
            incarnation: self.generation.map(incarnation),
            lowest_generation: round_of(self.lowest_generation),
            fenced_at: self.fenced_at.map(db_time),
            last_block: round_of(self.last_block),
            blocked: self.blocked.0.into_iter().map(BlockedJson::entry).collect::<Result<_, _>>()?,
            blocked_at: self.blocked_at.map(db_time),
            leases: self.lease_slots,
            open_blocks: self.open_blocks.cast_unsigned(),
        })
    }
}

/// Blocked demand of one group, as column `blocked` has it.
#[derive(Serialize, Deserialize)]
pub(super) struct BlockedJson {
    group: String,
    count: i64,
    reason: String,
    /// Microseconds since 1970.
    since: i64,
}

impl BlockedJson {
    pub(super) fn new(entry: &BlockedEntry) -> Self {
        Self {
            group: entry.lacking.group.as_str().to_owned(),
            count: entry.lacking.count,
            reason: entry.lacking.reason.name().to_owned(),
            since: entry.since.0,
        }
    }

    fn entry(self) -> Result<BlockedEntry, StoreError> {
        let reason = Reason::ALL.into_iter().find(|reason| reason.name() == self.reason);
        let reason = reason.ok_or_else(|| corrupt("reason"))?;
        let lacking = Lacking { group: Group::new(self.group), count: self.count, reason };
        Ok(BlockedEntry { lacking, since: DbTime(self.since) })
    }
}
