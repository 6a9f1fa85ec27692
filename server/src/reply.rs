//! Answers as they travel: moments of the database's clock become what is left of them when the reply is sent.

use crate::clock;
use crate::refusal::Refusal;
use pgsemaphore_allocation::{
    Answer, Block, DbTime, Kind, Lacking, Outcome, Reason, Refused, Status, Verdict, VerdictStatus,
};
use queue_wire::{Blocked, GrantVerdict, LeaseVerdict, Reply, VERSION};
use std::time::{Duration, Instant};

/// What one transaction said to a call, and when that was by both clocks.
pub(crate) struct Said {
    pub(crate) outcome: Outcome,
    pub(crate) now: DbTime,
    pub(crate) anchor: Instant,
}

impl Said {
    /// The reply to a call that arrived at `arrival`, if it is sent now.
    pub(crate) fn reply(self, arrival: Instant) -> Result<Reply, Refusal> {
        let answer = match self.outcome {
            Outcome::Answered(answer) => answer,
            Outcome::Refused(Refused::NoPolicy) => return Err(Refusal::SemaphoreNotFound),
            Outcome::Refused(Refused::Fenced { generation }) => return Err(Refusal::Fenced { generation }),
            Outcome::Refused(Refused::RoundsUsedUp) => return Err(Refusal::RoundsUsedUp),
            Outcome::Refused(Refused::SeenTooFarAhead { max }) => {
                let detail =
                    format!("must be a round that a holder answered with on this key, now at most {max}");
                return Err(Refusal::Invalid { field: "/seen", detail });
            }
        };
        let left = Left { now: self.now, elapsed: clock::now().saturating_duration_since(self.anchor) };
        let held = self.anchor.saturating_duration_since(arrival);
        Ok(build(answer, &left, held))
    }
}

fn build(answer: Answer, left: &Left, held: Duration) -> Reply {
    let (grants, leases): (Vec<_>, Vec<_>) =
        answer.verdicts.into_iter().partition(|verdict| verdict.kind == Kind::Grant);
    Reply {
        v: VERSION,
        round: answer.round,
        grants: grants.into_iter().map(|verdict| grant(verdict, left)).collect(),
        leases: leases.into_iter().map(|verdict| lease(verdict, left)).collect(),
        blocked: answer.blocked.into_iter().map(blocked).collect(),
        contended: answer.contended,
        contended_groups: answer.contended_groups.iter().map(|group| group.as_str().to_owned()).collect(),
        state: answer.state,
        held_ms: millis(held),
        report_within_ms: answer.report_within.map(|within| u64::try_from(within / 1000).unwrap_or(0)),
        next_request_in_ms: answer.next_round_at.map_or(0, |at| left.rounded_up(at)),
    }
}

/// What is left until a moment of the database's clock.
struct Left {
    now: DbTime,
    elapsed: Duration,
}

impl Left {
    fn until(&self, at: DbTime) -> Duration {
        Duration::from_micros(u64::try_from(at - self.now).unwrap_or(0)).saturating_sub(self.elapsed)
    }

    fn rounded_up(&self, at: DbTime) -> u64 {
        u64::try_from(self.until(at).as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn status(status: VerdictStatus) -> queue_wire::Status {
    match status {
        VerdictStatus::Open(Status::Active) => queue_wire::Status::Active,
        VerdictStatus::Open(Status::Expired) => queue_wire::Status::Expired,
        VerdictStatus::Open(Status::Retired) => queue_wire::Status::Retired,
        VerdictStatus::Settled => queue_wire::Status::Settled,
        VerdictStatus::NotFound => queue_wire::Status::NotFound,
    }
}

fn group(block: &Block) -> String {
    block.group.as_str().to_owned()
}

fn grant(verdict: Verdict, left: &Left) -> GrantVerdict {
    let block = verdict.block.as_ref();
    let claim_within =
        |grant: &Block| if grant.unclaimed() > 0 { millis(left.until(grant.deadline)) } else { 0 };
    GrantVerdict {
        id: verdict.id,
        status: status(verdict.status),
        round: block.map(|block| block.id.round),
        group: block.map(group),
        permits: block.map(|block| permits(block.permits)),
        claimed: block.map(|block| permits(block.used)),
        released: block.map(|block| permits(block.released)),
        claim_within_ms: block.map(claim_within),
    }
}

fn lease(verdict: Verdict, left: &Left) -> LeaseVerdict {
    let block = verdict.block.as_ref();
    let ttl = |lease: &Block| {
        if lease.is_live_lease() { millis(left.until(lease.reported_at + lease.ttl)) } else { 0 }
    };
    LeaseVerdict {
        id: verdict.id,
        status: status(verdict.status),
        round: block.map(|block| block.id.round),
        group: block.map(group),
        permits: block.map(|block| permits(block.permits)),
        drawn: block.map(|block| permits(block.used)),
        released: block.map(|block| permits(block.released)),
        ttl_ms: block.map(ttl),
    }
}

fn permits(permits: i64) -> u64 {
    u64::try_from(permits).unwrap_or(0)
}

fn blocked(lacking: Lacking) -> Blocked {
    let reason = match lacking.reason {
        Reason::Paused => queue_wire::Reason::Paused,
        Reason::NotPermitted => queue_wire::Reason::NotPermitted,
        Reason::LimitResolutionError => queue_wire::Reason::LimitResolutionError,
        Reason::GroupLimit => queue_wire::Reason::GroupLimit,
        Reason::Limit => queue_wire::Reason::Limit,
    };
    Blocked { group: lacking.group.as_str().to_owned(), count: permits(lacking.count), reason }
}
