//! What calls are told is what is written.

use super::{Case, Violation, Work, violated};
use crate::answers::{Answer, Outcome, Verdict, VerdictStatus};
use crate::call::{Call, Demand};
use crate::names::Permits;
use crate::state::Block;
use std::collections::BTreeSet;

/// Demand that gets nothing is blocked, with its exact count.
pub(super) fn every_demand_is_explained(case: &Case) -> Result<(), Violation> {
    if case.plan.answers.len() != case.calls.len() {
        return violated("P6", format!("{} answers to {} calls", case.plan.answers.len(), case.calls.len()));
    }
    if case.work != Work::Round {
        return Ok(());
    }
    for (call, outcome) in case.calls.iter().zip(&case.plan.answers) {
        let Outcome::Answered(answer) = outcome else { continue };
        for demand in &call.demand {
            let covered = covered(case, call, demand);
            let blocked =
                answer.blocked.iter().find(|lacks| lacks.group == demand.group).map_or(0, |b| b.count);
            if covered + blocked < demand.count || (blocked > 0 && covered + blocked != demand.count) {
                return violated(
                    "P6",
                    format!("{demand:?} has {covered} permits on the way and {blocked} blocked"),
                );
            }
        }
    }
    Ok(())
}

/// Permits that this call's reply delivers for the demand, and were not reported in it.
fn covered(case: &Case, call: &Call, demand: &Demand) -> Permits {
    let known: BTreeSet<_> = call.grants.iter().map(|report| report.id.clone()).collect();
    let unheard = |block: &&Block| {
        block.client == call.client
            && block.group == demand.group
            && block.id.round > call.seen
            && !known.contains(&block.id.to_string())
    };
    let kept = case.before.blocks.values().filter_map(|block| case.after(block)).filter(unheard);
    kept.map(|block| block.permits).sum::<Permits>()
        + case.made().filter(unheard).map(|block| block.permits).sum::<Permits>()
}

/// Each reported block has one verdict, each unheard one is delivered, and all say what the rows say.
pub(super) fn every_verdict_is_what_is_written(case: &Case) -> Result<(), Violation> {
    for (call, outcome) in case.calls.iter().zip(&case.plan.answers) {
        let Outcome::Answered(answer) = outcome else { continue };
        let told: BTreeSet<_> = answer.verdicts.iter().map(|verdict| verdict.id.as_str()).collect();
        if told.len() != answer.verdicts.len() {
            return violated("P7", "a block appears twice in one reply");
        }
        if let Some(report) = call.grants.iter().find(|report| !told.contains(report.id.as_str())) {
            return violated("P7", format!("no verdict for {report:?}"));
        }
        delivered(case, call, &told)?;
        check_answer(case, call, answer)?;
    }
    Ok(())
}

fn delivered(case: &Case, call: &Call, told: &BTreeSet<&str>) -> Result<(), Violation> {
    let unheard = |block: &&Block| block.client == call.client && block.id.round > call.seen;
    let kept = case.before.blocks.values().filter_map(|block| case.after(block));
    let missing =
        kept.chain(case.made()).filter(unheard).find(|block| !told.contains(block.id.to_string().as_str()));
    match missing {
        Some(block) => violated("P4", format!("the reply does not deliver {block:?}")),
        None => Ok(()),
    }
}

fn check_answer(case: &Case, call: &Call, answer: &Answer) -> Result<(), Violation> {
    if answer.round != case.plan.semaphore.round {
        return violated("P7", format!("the reply says round {}", answer.round));
    }
    match answer.verdicts.iter().find(|verdict| !is_true(case, call, verdict)) {
        Some(verdict) => violated("P7", format!("{verdict:?} is not what is written")),
        None => Ok(()),
    }
}

fn is_true(case: &Case, call: &Call, verdict: &Verdict) -> bool {
    let Some(block) = &verdict.block else { return verdict.status == VerdictStatus::NotFound };
    let after = case.after(block).or_else(|| case.made().find(|made| made.id == block.id));
    block.client == call.client
        && match verdict.status {
            VerdictStatus::Open(status) => after == Some(block) && status == block.status,
            VerdictStatus::Settled => after.is_none() && block.permits == block.released,
            VerdictStatus::NotFound => false,
        }
}
