//! Tampered plans, and the promise that each of them breaks.

use crate::tampering as t;
use crate::tampering_clients as c;
use crate::tampering_leases as l;
use crate::tampering_order as o;
use crate::world::Case;
use pgsemaphore_allocation::Plan;
use std::collections::BTreeMap;

/// A way to tamper with a plan.
pub(crate) struct Mutation {
    pub(crate) name: &'static str,
    /// The promises that the checker may name.
    breaks: &'static [&'static str],
    /// `None` where there is nothing to tamper with in this way.
    apply: fn(&Case, &Plan) -> Option<Plan>,
}

const fn mutation(
    name: &'static str,
    breaks: &'static [&'static str],
    apply: fn(&Case, &Plan) -> Option<Plan>,
) -> Mutation {
    Mutation { name, breaks, apply }
}

pub(crate) const ALL: &[Mutation] = &[
    mutation("grant one more than the limit", &["P1"], t::one_more_than_the_limit),
    mutation("grant one more than the group's ceiling", &["P1"], t::one_more_than_the_ceiling),
    mutation("make a grant outside a round", &["P1"], t::grant_without_a_round),
    mutation("give the key a counter of its own", &["P3"], t::miscount_the_key),
    mutation("miscount a group", &["P3"], t::miscount_a_group),
    mutation("count a grant in another group", &["P3"], t::move_to_another_group),
    mutation("lower a claim", &["P3"], t::lower_a_claim),
    mutation("lower a release", &["P3"], t::lower_a_release),
    mutation("release what nobody released", &["P2"], t::release_what_runs),
    mutation("believe releases of claims not honoured", &["P2"], t::believe_every_release),
    mutation("settle a grant that is in use", &["P2"], t::settle_what_runs),
    mutation("reclaim before the deadline", &["P2"], t::reclaim_too_early),
    mutation("put two blocks in one row", &["P2"], t::share_a_row),
    mutation("list a row in use as free", &["P2"], t::list_a_used_row),
    mutation("keep what is due", &["P4"], t::keep_what_is_due),
    mutation("forget a batch", &["P4"], t::forget_a_batch),
    mutation("look at a batch too late", &["P4"], t::delay_a_batch),
    mutation("lose the list of a batch", &["P4"], t::lose_a_list),
    mutation("miscount a batch", &["P4"], t::miscount_a_batch),
    mutation("ignore releases", &["P4"], t::ignore_releases),
    mutation("leave a new grant out of the reply", &["P4"], t::leave_out_a_grant),
    mutation("leave out a verdict", &["P7"], t::leave_out_a_verdict),
    mutation("say a block twice", &["P7"], t::say_twice),
    mutation("say not_found of an open grant", &["P7"], t::deny_a_grant),
    mutation("say settled of an open grant", &["P7"], t::say_settled),
    mutation("say other counts than are written", &["P7"], t::say_other_counts),
    mutation("say another round", &["P7"], t::say_another_round),
    mutation("use a round's number again", &["P7"], t::reuse_the_round),
    mutation("serve the youngest first", &["P5"], t::serve_the_youngest),
    mutation("say too small a lack", &["P6"], t::lack_less),
    mutation("say no lack", &["P6"], t::lack_nothing),
    mutation("say a wrong reason", &["P5", "P6"], t::say_a_wrong_reason),
    mutation("hide that the key is contended", &["P6"], t::hide_contention),
    mutation("keep other reasons than were told", &["P6"], t::keep_other_reasons),
    mutation("lease one more than the budget", &["P1"], l::one_more_than_the_budget),
    mutation("lease to a client without support", &["P1"], l::lease_without_support),
    mutation("lease in a group with a ceiling", &["P1"], l::lease_in_a_limited_group),
    mutation("lease more than a lease may hold", &["P1"], l::lease_larger_than_allowed),
    mutation("make two leases of one", &["P1", "P5"], l::two_leases_at_once),
    mutation("free a retired lease early", &["P2"], l::free_a_retired_lease),
    mutation("forget a retired lease", &["P2"], l::forget_a_retired_lease),
    mutation("ignore that a lease was stopped", &["P3", "P4"], l::ignore_stopped),
    mutation("revive a lease", &["P3"], l::revive_a_lease),
    mutation("keep a silent lease", &["P1", "P2", "P4"], l::keep_a_silent_lease),
    mutation("keep a lease that may not be", &["P1", "P2"], l::keep_a_lease_that_may_not_be),
    mutation("keep a lease over budget", &["P1", "P2"], l::keep_a_lease_over_budget),
    mutation("look at leases too late", &["P4"], l::look_at_leases_too_late),
    mutation("miscount live leases", &["P3"], l::miscount_live_leases),
    mutation("lower a draw", &["P3"], l::lower_a_draw),
    mutation("say settled of an open lease", &["P7"], l::deny_a_lease),
    mutation("mistake an unknown lease", &["P7"], l::mistake_an_unknown_lease),
    mutation("hide a contended group", &["P6"], l::hide_a_contended_group),
    mutation("forget what the client of a sync lacks", &["P6"], c::forget_what_it_lacks),
    mutation("refuse who speaks", &["P2", "P4", "P6"], c::refuse_who_speaks),
    mutation("forget who took over", &["P2"], c::forget_who_took_over),
    mutation("lower a fence", &["P2"], c::lower_a_fence),
    mutation("keep what was written off", &["P4"], c::keep_what_was_written_off),
    mutation("leave out a declaration", &["P4"], c::leave_out_a_declaration),
    mutation("keep a lease live after a takeover", &["P2"], c::keep_a_lease_live),
    mutation("write off what is held", &["P2"], c::write_off_what_is_held),
    mutation("move the round", &["P1", "P4"], o::move_the_round),
    mutation("accept any seen", &["P4"], o::accept_any_seen),
    mutation("hand rows to the youngest", &["P5"], o::hand_rows_to_the_youngest),
    mutation("retire an older lease first", &["P1", "P2"], o::retire_an_older_lease),
];

/// Tries all of them; counts how often there was something to try.
pub(crate) fn try_all(
    case: &Case,
    plan: &Plan,
    tried: &mut BTreeMap<&'static str, u32>,
) -> Result<(), String> {
    for mutation in ALL {
        let Some(tampered) = (mutation.apply)(case, plan) else { continue };
        *tried.entry(mutation.name).or_default() += 1;
        let named = case.check(&tampered).err().map(|violation| violation.promise);
        if !named.is_some_and(|promise| mutation.breaks.contains(&promise)) {
            return Err(format!(
                "`{}` is answered by {:?}\n{tampered:#?}",
                mutation.name,
                case.check(&tampered)
            ));
        }
    }
    Ok(())
}
