//! What is true of a world whatever happens in it, told from the rows before and after each transaction.

use pgsemaphore_allocation::{BlockId, Group, Permits, State, Work};
use pgsemaphore_sim::Rows;
use std::collections::BTreeMap;

/// What the world remembers of every grant there ever was.
#[derive(Debug, Default)]
pub(crate) struct Ghost {
    grants: BTreeMap<BlockId, Remembered>,
}

#[derive(Debug, Clone)]
struct Remembered {
    permits: Permits,
    counted: Permits,
    used: Permits,
    released: Permits,
    gone: bool,
}

impl Ghost {
    pub(crate) fn look(
        &mut self,
        work: Work,
        state: &State,
        before: &Rows,
        after: &Rows,
    ) -> Result<(), String> {
        ceiling_holds(state, before, after)?;
        if after.semaphore.round < before.semaphore.round {
            return Err(format!("round {} after {}", after.semaphore.round, before.semaphore.round));
        }
        self.names_are_used_once(work, before, after)?;
        self.marks_move_forward(after)
    }

    fn names_are_used_once(&mut self, work: Work, before: &Rows, after: &Rows) -> Result<(), String> {
        for block in after.blocks.values() {
            let new = before.blocks.get(&block.id.slot).is_none_or(|old| old.id != block.id);
            if new && (self.grants.contains_key(&block.id) || work != Work::Round) {
                return Err(format!("{work:?} makes {block:?}"));
            }
            let permits = block.permits;
            self.grants.entry(block.id).or_insert(Remembered {
                permits,
                counted: permits,
                used: 0,
                released: 0,
                gone: false,
            });
        }
        Ok(())
    }

    /// Of each grant: marks and freed permits never go back, and no more comes back than was given.
    fn marks_move_forward(&mut self, after: &Rows) -> Result<(), String> {
        for (id, grant) in &mut self.grants {
            let Some(block) = after.blocks.get(&id.slot).filter(|block| block.id == *id) else {
                grant.gone = true;
                grant.counted = 0;
                continue;
            };
            let counted = block.permits - block.released;
            let forward = block.used >= grant.used
                && block.released >= grant.released
                && (0..=grant.counted).contains(&counted)
                && grant.permits - counted <= grant.permits;
            if !forward || grant.gone {
                return Err(format!("{grant:?} became {block:?}"));
            }
            (grant.counted, grant.used, grant.released) = (counted, block.used, block.released);
        }
        Ok(())
    }
}

/// Usage that rose is not above the ceiling.
fn ceiling_holds(state: &State, before: &Rows, after: &Rows) -> Result<(), String> {
    let total = |rows: &Rows| rows.semaphore.grants + rows.semaphore.leases;
    let limit = state.policy.as_ref().and_then(|policy| policy.limit).unwrap_or(0);
    if total(after) > total(before).max(limit) {
        return Err(format!("usage {} is above the limit {limit}", total(after)));
    }
    let of = |rows: &Rows, group: &Group| rows.groups.get(group).map_or(0, |usage| usage.0 + usage.1);
    for (group, usage) in &state.groups {
        let ceiling = usage.limit.unwrap_or(Permits::MAX);
        if of(after, group) > of(before, group).max(ceiling) {
            return Err(format!("usage {} of {group:?} is above {ceiling}", of(after, group)));
        }
    }
    Ok(())
}
