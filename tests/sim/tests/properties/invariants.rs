//! What is true of a world whatever happens in it, told from the rows before and after each transaction.

use crate::leases;
use crate::world::Case;
use pgsemaphore_allocation::{
    Block, BlockId, Extra, Group, Kind, Permits, Policy, Provisioning, Semaphore, Work,
};
use pgsemaphore_sim::Rows;
use std::collections::{BTreeMap, BTreeSet};

/// What the world remembers of every block there ever was.
#[derive(Debug, Default)]
pub(crate) struct Ghost {
    blocks: BTreeMap<BlockId, Remembered>,
}

#[derive(Debug, Clone)]
struct Remembered {
    permits: Permits,
    counted: Permits,
    used: Permits,
    released: Permits,
    over: bool,
    gone: bool,
}

impl Ghost {
    pub(crate) fn look(&mut self, case: &Case, before: &Rows, after: &Rows) -> Result<(), String> {
        ceiling_holds(case, before, after)?;
        leases::hold(case, before, after)?;
        if after.semaphore.round < before.semaphore.round {
            return Err(format!("round {} after {}", after.semaphore.round, before.semaphore.round));
        }
        self.names_are_used_once(case.work, before, after)?;
        self.marks_move_forward(after)
    }

    fn names_are_used_once(&mut self, work: Work, before: &Rows, after: &Rows) -> Result<(), String> {
        for block in after.blocks.values() {
            let new = before.blocks.get(&block.id.slot).is_none_or(|old| old.id != block.id);
            if new && (self.blocks.contains_key(&block.id) || work != Work::Round) {
                return Err(format!("{work:?} makes {block:?}"));
            }
            let permits = block.permits;
            self.blocks.entry(block.id).or_insert(Remembered {
                permits,
                counted: permits,
                used: 0,
                released: 0,
                over: false,
                gone: false,
            });
        }
        Ok(())
    }

    /// Of each block: marks and freed permits never go back, no more comes back than was given, and one that expired
    /// or was retired stays so. Only of a stopped lease does more count again: what it had drawn and not said.
    fn marks_move_forward(&mut self, after: &Rows) -> Result<(), String> {
        for (id, known) in &mut self.blocks {
            let Some(block) = after.blocks.get(&id.slot).filter(|block| block.id == *id) else {
                known.gone = true;
                known.counted = 0;
                continue;
            };
            let late = if block.stopped { (block.used - known.used).max(0) } else { 0 };
            let over = block.status != pgsemaphore_allocation::Status::Active;
            let forward = block.used >= known.used
                && block.released >= known.released
                && block.used <= known.permits
                && (block.used - block.released..=known.counted + late).contains(&block.counted())
                && over >= known.over;
            if !forward || known.gone {
                return Err(format!("{known:?} became {block:?}"));
            }
            let permits = known.permits;
            let (used, released, counted) = (block.used, block.released, block.counted());
            *known = Remembered { permits, counted, used, released, over, gone: false };
        }
        Ok(())
    }
}

/// Blocks that were not there before.
pub(crate) fn made<'a>(before: &'a Rows, after: &'a Rows) -> impl Iterator<Item = &'a Block> {
    let known = |block: &Block| before.blocks.get(&block.id.slot).is_some_and(|old| old.id == block.id);
    after.blocks.values().filter(move |block| !known(block))
}

/// What a mode leaves for blocks of a kind, by promise P1; negative after a lowering.
pub(crate) fn left(policy: &Policy, limit: Permits, usage: &Semaphore, kind: Kind) -> Permits {
    let total = limit - usage.grants - usage.leases;
    match (policy.provisioning, kind) {
        (Provisioning::None, Kind::Lease) => 0,
        (Provisioning::None | Provisioning::Strict, _) => total,
        (Provisioning::Under { reserve }, kind) => {
            let reserved = if limit == 0 { 0 } else { reserve.min(limit - 1) };
            let own = match kind {
                Kind::Grant => limit - reserved - usage.grants,
                Kind::Lease => reserved - usage.leases,
            };
            own.min(total)
        }
        (Provisioning::Over { .. }, Kind::Grant) => limit - usage.grants,
        (Provisioning::Over { .. }, Kind::Lease) if limit == 0 => -usage.leases,
        (Provisioning::Over { extra: Extra::Permits(extra) }, Kind::Lease) => extra - usage.leases,
        (Provisioning::Over { extra: Extra::Millionths(ratio) }, Kind::Lease) => {
            (limit * ratio).div_euclid(1_000_000) - usage.leases
        }
    }
}

/// What was admitted is within the ceilings, of its mode and of its group.
fn ceiling_holds(case: &Case, before: &Rows, after: &Rows) -> Result<(), String> {
    let groups: BTreeSet<&Group> = made(before, after).map(|block| &block.group).collect();
    for kind in made(before, after).map(|block| block.kind).collect::<BTreeSet<_>>() {
        let policy = case.state.policy.as_ref().ok_or("made without a policy")?;
        let limit = policy.limit.ok_or("made without a limit")?;
        if left(policy, limit, &after.semaphore, kind) < 0 {
            return Err(format!("{kind:?} made above the limit {limit}: {:?}", after.semaphore));
        }
    }
    for group in groups {
        let usage = &after.groups[group];
        let ceiling = case.state.groups[group].limit.unwrap_or(Permits::MAX);
        if usage.grants + usage.leases > ceiling {
            return Err(format!("{usage:?} of {group:?} is above {ceiling}"));
        }
    }
    Ok(())
}
