//! Who is let in, and in what order.

use super::{Case, Violation, violated};
use crate::answers::Outcome;
use crate::blocked::Reason;
use crate::names::{DbTime, Group};
use crate::state::{Extra, Kind, Policy, Provisioning, Semaphore};
use std::collections::{BTreeMap, BTreeSet};

/// No round admits work that takes the usage above a ceiling: of the mode, or of a group.
pub(super) fn ceilings_hold(case: &Case) -> Result<(), Violation> {
    let mut groups = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    for block in case.made() {
        groups.insert(&block.group);
        kinds.insert(block.kind);
    }
    for kind in kinds {
        let Some(policy) = &case.before.policy else { return violated("P1", "a block without a policy") };
        if let Some(above) = above_mode(policy, &case.plan.semaphore, kind) {
            return violated("P1", above);
        }
    }
    for group in groups {
        let ceiling = case.before.groups.get(group).and_then(|usage| usage.limit);
        let usage = case.plan.groups.get(group).map_or(0, |usage| usage.grants + usage.leases);
        if ceiling.is_some_and(|ceiling| usage > ceiling) {
            return violated(
                "P1",
                format!("usage {usage} of group {group:?} is above its ceiling {ceiling:?}"),
            );
        }
    }
    Ok(())
}

/// How a round that made blocks of `kind` went above what the mode allows them.
fn above_mode(policy: &Policy, usage: &Semaphore, kind: Kind) -> Option<String> {
    let Some(limit) = policy.limit else { return Some("a block without a limit".to_owned()) };
    let (grants, leases) = (usage.grants, usage.leases);
    let within = match (policy.provisioning, kind) {
        (Provisioning::None, Kind::Lease) => false,
        (Provisioning::None | Provisioning::Strict, _) => grants + leases <= limit,
        (Provisioning::Under { reserve }, kind) => {
            let kept = reserve.clamp(0, (limit - 1).max(0));
            let own = if kind == Kind::Grant { grants <= limit - kept } else { leases <= kept };
            own && grants + leases <= limit
        }
        (Provisioning::Over { .. }, Kind::Grant) => grants <= limit,
        (Provisioning::Over { .. }, Kind::Lease) if limit == 0 => false,
        (Provisioning::Over { extra: Extra::Permits(extra) }, Kind::Lease) => leases <= extra,
        (Provisioning::Over { extra: Extra::Millionths(ratio) }, Kind::Lease) => {
            i128::from(leases) * 1_000_000 <= i128::from(limit) * i128::from(ratio)
        }
    };
    (!within).then(|| {
        format!("{grants} + {leases} after making a {kind:?}, limit {limit}, {:?}", policy.provisioning)
    })
}

/// Nobody gets a permit while older demand lacks one: of the shared limit, or in the same group of its ceiling.
pub(super) fn oldest_is_served_first(case: &Case) -> Result<(), Violation> {
    let mut starved = BTreeMap::<Option<&Group>, Place>::new();
    let mut served = BTreeMap::<Option<&Group>, Place>::new();
    let mut calls_of = BTreeMap::<_, usize>::new();
    case.calls.iter().for_each(|call| *calls_of.entry(&call.client).or_default() += 1);
    let mut owners = BTreeSet::new();
    let grants = case.made().filter(|block| block.kind == Kind::Grant);
    owners.extend(grants.map(|block| (&block.client, &block.group)));
    for (at, (call, outcome)) in case.calls.iter().zip(&case.plan.answers).enumerate() {
        let Outcome::Answered(answer) = outcome else { continue };
        let reasons: BTreeMap<_, _> =
            answer.blocked.iter().map(|lacks| (&lacks.group, lacks.reason)).collect();
        for demand in &call.demand {
            let place = (case.plan.now - call.waited - demand.oldest_age, at);
            for scope in scopes(reasons.get(&demand.group).copied(), &demand.group) {
                let first = starved.entry(scope).or_insert(place);
                *first = place.min(*first);
            }
            // Of two calls of one client it can't be told for which a block was made.
            if owners.contains(&(&call.client, &demand.group)) && calls_of[&call.client] == 1 {
                for scope in [None, Some(&demand.group)] {
                    let last = served.entry(scope).or_insert(place);
                    *last = place.max(*last);
                }
            }
        }
    }
    let jumped =
        starved.into_iter().find(|(scope, place)| served.get(scope).is_some_and(|last| place < last));
    match jumped {
        Some((scope, place)) => {
            violated("P5", format!("demand younger than that of {place:?} in {scope:?} was served"))
        }
        None => Ok(()),
    }
}

/// How old demand is, and in which call it came.
type Place = (DbTime, usize);

/// Where nobody younger may be served: in the whole key, or in the group.
fn scopes(lacks: Option<Reason>, group: &Group) -> Vec<Option<&Group>> {
    match lacks {
        Some(Reason::Limit) => vec![None, Some(group)],
        Some(Reason::GroupLimit) => vec![Some(group)],
        Some(Reason::Paused | Reason::NotPermitted | Reason::LimitResolutionError) | None => Vec::new(),
    }
}
