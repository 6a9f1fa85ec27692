//! Answers as they travel: moments of the database's clock become what is left of them when the reply is sent.

use crate::clock;
use crate::refusal::Refusal;
use crate::round::Turn;
use pgsemaphore_allocation::{
    Answer, Block, DbTime, Kind, Lacking, Outcome, Reason, Refused, Status, Verdict, VerdictStatus,
};
use queue_wire::{Blocked, GrantVerdict, Reply, VERSION};
use std::time::{Duration, Instant};

/// The reply to a call that arrived at `arrival` and was answered by `turn`.
pub(crate) fn reply(outcome: Outcome, turn: &Turn, arrival: Instant) -> Result<Reply, Refusal> {
    let answer = match outcome {
        Outcome::Answered(answer) => answer,
        Outcome::Refused(Refused::NoPolicy) => return Err(Refusal::SemaphoreNotFound),
        Outcome::Refused(Refused::SeenTooFarAhead { max }) => {
            let detail =
                format!("seen must be at most {max}: a round that a holder of this key answered with");
            return Err(Refusal::Invalid { field: "/seen", detail });
        }
    };
    let left = Left { now: turn.now, elapsed: clock::now().saturating_duration_since(turn.anchor) };
    let held = turn.anchor.saturating_duration_since(arrival);
    Ok(build(answer, &left, held))
}

fn build(answer: Answer, left: &Left, held: Duration) -> Reply {
    let grants = answer.verdicts.into_iter().map(|verdict| grant(verdict, left)).collect();
    Reply {
        v: VERSION,
        round: answer.round,
        grants,
        blocked: answer.blocked.into_iter().map(blocked).collect(),
        contended: answer.contended,
        held_ms: millis(held),
        next_request_in_ms: answer.next_round_at.map_or(0, |at| left.rounded_up(at)),
        ..Reply::default()
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

fn grant(verdict: Verdict, left: &Left) -> GrantVerdict {
    let status = match verdict.status {
        VerdictStatus::Open(Status::Active) => queue_wire::Status::Active,
        VerdictStatus::Open(Status::Expired) => queue_wire::Status::Expired,
        VerdictStatus::Open(Status::Retired) => queue_wire::Status::Retired,
        VerdictStatus::Settled => queue_wire::Status::Settled,
        VerdictStatus::NotFound => queue_wire::Status::NotFound,
    };
    let claimable = |block: &Block| block.kind == Kind::Grant && block.unclaimed() > 0;
    let block = verdict.block.as_ref();
    GrantVerdict {
        id: verdict.id,
        status,
        round: block.map(|block| block.id.round),
        group: block.map(|block| block.group.as_str().to_owned()),
        permits: block.map(|block| permits(block.permits)),
        claimed: block.map(|block| permits(block.used)),
        released: block.map(|block| permits(block.released)),
        claim_within_ms: block
            .map(|block| if claimable(block) { millis(left.until(block.deadline)) } else { 0 }),
    }
}

fn permits(permits: i64) -> u64 {
    u64::try_from(permits).unwrap_or(0)
}

fn blocked(lacking: Lacking) -> Blocked {
    let reason = match lacking.reason {
        Reason::LimitResolutionError => queue_wire::Reason::LimitResolutionError,
        Reason::GroupLimit => queue_wire::Reason::GroupLimit,
        Reason::Limit => queue_wire::Reason::Limit,
    };
    Blocked { group: lacking.group.as_str().to_owned(), count: permits(lacking.count), reason }
}
