//! Between what travels and what a round sees. A server has its own code for this, with all its checks.

use pgsemaphore_allocation::{
    Answer, Block, Call, ClientId, DbTime, Demand, GrantReport, Group, Incarnation, Kind, Lacking,
    LeaseReport, Micros, Outcome, Permits, Reason, Refused, Status, Verdict, VerdictStatus,
};
use queue_client::Endpoint;
use queue_client::wire::{self, Message, Reply};

/// The call that a message is, which came to this endpoint.
pub(crate) fn call(message: &Message, endpoint: Endpoint, waited: Micros) -> Call {
    let mut demand = Vec::<Demand>::new();
    for entry in &message.demand {
        let (count, oldest_age) = (permits(entry.count), permits(entry.oldest_age_ms).saturating_mul(1000));
        match demand.iter_mut().find(|other| other.group.as_str() == entry.group) {
            None => demand.push(Demand { group: Group::new(entry.group.as_str()), count, oldest_age }),
            Some(same) => {
                same.count += count;
                same.oldest_age = same.oldest_age.max(oldest_age);
            }
        }
    }
    let reports = message.grants.iter().flatten();
    let report = |report: &wire::GrantReport| GrantReport {
        id: report.id.clone(),
        claimed: permits(report.claimed),
        released: permits(report.released),
    };
    let leases = message.leases.iter().flatten();
    let lease_report = |report: &wire::LeaseReport| LeaseReport {
        id: report.id.clone(),
        drawn: permits(report.drawn),
        released: permits(report.released),
        stopped: report.stopped,
    };
    Call {
        client: ClientId::new(message.client_id.as_str()),
        from: Incarnation {
            generation: message.generation,
            process: message.process.clone(),
            resumes: message.resume,
        },
        seen: message.seen,
        all: message.all,
        waited,
        asks: endpoint == Endpoint::Request,
        demand,
        grants: reports.map(report).collect(),
        leases: leases.map(lease_report).collect(),
        takes_leases: message.leases.is_some(),
        applied: false,
    }
}

/// What a caller is told; an error is a code.
pub(crate) fn answer(outcome: Outcome, now: DbTime, held: Micros) -> Result<Reply, super::network::Refusal> {
    match outcome {
        Outcome::Answered(answer) => Ok(reply(answer, now, held)),
        Outcome::Refused(Refused::NoPolicy) => Err(super::network::Refusal::NotFound),
        Outcome::Refused(Refused::Fenced { generation }) => Err(super::network::Refusal::Fenced(generation)),
        Outcome::Refused(Refused::RoundsUsedUp) => Err(super::network::Refusal::Unavailable),
        Outcome::Refused(Refused::SeenTooFarAhead { .. }) => Err(super::network::Refusal::Invalid),
    }
}

fn reply(answer: Answer, now: DbTime, held: Micros) -> Reply {
    let (grants, leases): (Vec<_>, Vec<_>) =
        answer.verdicts.into_iter().partition(|verdict| verdict.kind == Kind::Grant);
    Reply {
        v: wire::VERSION,
        round: answer.round,
        grants: grants.into_iter().map(|verdict| grant(verdict, now)).collect(),
        leases: leases.into_iter().map(|verdict| lease(verdict, now)).collect(),
        blocked: answer.blocked.into_iter().map(blocked).collect(),
        contended: answer.contended,
        contended_groups: answer.contended_groups.iter().map(|group| group.as_str().to_owned()).collect(),
        state: answer.state,
        held_ms: unsigned(held / 1000),
        next_request_in_ms: answer.next_round_at.map_or(0, |at| unsigned((at - now) / 1000)),
        report_within_ms: answer.report_within.map(|within| unsigned(within / 1000)),
    }
}

fn grant(verdict: Verdict, now: DbTime) -> wire::GrantVerdict {
    let status = status(verdict.status);
    let block = verdict.block.as_ref();
    let left = |block: &Block| {
        let claimable = block.kind == Kind::Grant && block.unclaimed() > 0;
        if claimable { unsigned((block.deadline - now) / 1000) } else { 0 }
    };
    wire::GrantVerdict {
        id: verdict.id,
        status,
        round: block.map(|block| block.id.round),
        group: block.map(|block| block.group.as_str().to_owned()),
        permits: block.map(|block| unsigned(block.permits)),
        claimed: block.map(|block| unsigned(block.used)),
        released: block.map(|block| unsigned(block.released)),
        claim_within_ms: block.map(left),
    }
}

fn lease(verdict: Verdict, now: DbTime) -> wire::LeaseVerdict {
    let block = verdict.block.as_ref();
    let left = |block: &Block| {
        if block.is_live_lease() { unsigned((block.reported_at + block.ttl - now) / 1000) } else { 0 }
    };
    wire::LeaseVerdict {
        id: verdict.id,
        status: status(verdict.status),
        round: block.map(|block| block.id.round),
        group: block.map(|block| block.group.as_str().to_owned()),
        permits: block.map(|block| unsigned(block.permits)),
        drawn: block.map(|block| unsigned(block.used)),
        released: block.map(|block| unsigned(block.released)),
        ttl_ms: block.map(left),
    }
}

fn status(status: VerdictStatus) -> wire::Status {
    match status {
        VerdictStatus::Open(Status::Active) => wire::Status::Active,
        VerdictStatus::Open(Status::Expired) => wire::Status::Expired,
        VerdictStatus::Open(Status::Retired) => wire::Status::Retired,
        VerdictStatus::Settled => wire::Status::Settled,
        VerdictStatus::NotFound => wire::Status::NotFound,
    }
}

fn blocked(lacking: Lacking) -> wire::Blocked {
    let reason = match lacking.reason {
        Reason::Paused => wire::Reason::Paused,
        Reason::NotPermitted => wire::Reason::NotPermitted,
        Reason::LimitResolutionError => wire::Reason::LimitResolutionError,
        Reason::GroupLimit => wire::Reason::GroupLimit,
        Reason::Limit => wire::Reason::Limit,
    };
    wire::Blocked { group: lacking.group.as_str().to_owned(), count: unsigned(lacking.count), reason }
}

fn permits(count: u64) -> Permits {
    Permits::try_from(count).unwrap_or(Permits::MAX)
}

fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
