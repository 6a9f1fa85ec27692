//! Rows for the blocks that a round may make.

use super::Reader;
use crate::store::StoreError;
use crate::store::rows::corrupt;
use pgsemaphore_allocation::Provisioning;

/// Free rows that are looked for at least, when the list of them has run out.
const REFILL: usize = 256;
/// Rows that are made at once, at least, and at most beyond what the round needs.
const GROW: (i32, i32) = (16, 4096);

impl Reader<'_> {
    /// Finds rows for a grant and a lease per demand, and for their batch.
    pub(super) async fn find_room(&mut self, batch_cap: i32) -> Result<(), StoreError> {
        let demands =
            self.calls.iter().flat_map(|call| &call.demand).filter(|demand| demand.count > 0).count();
        let leases =
            self.state.policy.as_ref().is_some_and(|policy| policy.provisioning != Provisioning::None);
        let wanted = if leases { demands * 2 } else { demands };
        if wanted > self.state.semaphore.available_slots() && self.state.semaphore.unlisted_slots > 0 {
            self.refill(wanted).await?;
        }
        let semaphore = &self.state.semaphore;
        if wanted > semaphore.available_slots() {
            let short = i32::try_from(wanted - semaphore.available_slots()).map_err(|_| corrupt("count"))?;
            let more = short.max(semaphore.slot_cap / 2).clamp(GROW.0, GROW.1.max(short));
            self.missing.slot_cap = semaphore.slot_cap + more;
        }
        let batches = i32::try_from(semaphore.batches.len()).map_err(|_| corrupt("count"))?;
        if wanted > 0 && batch_cap <= batches {
            self.missing.batch_cap = batches + 4;
        }
        Ok(())
    }

    /// Lists free rows that the key's row does not list.
    async fn refill(&mut self, wanted: usize) -> Result<(), StoreError> {
        let semaphore = &mut self.state.semaphore;
        let query = sqlx::query_scalar(include_str!("../../../queries/read_free_slots.sql"));
        let query = query.bind(self.key.as_str()).bind(semaphore.next_slot).bind(&semaphore.free_slots);
        let many = i64::try_from(wanted.max(REFILL)).map_err(|_| corrupt("count"))?;
        let found: Vec<i32> = query.bind(many).fetch_all(&mut *self.attempt.tx).await?;
        semaphore.unlisted_slots -= i32::try_from(found.len()).map_err(|_| corrupt("count"))?;
        semaphore.free_slots.extend(found);
        Ok(())
    }
}
