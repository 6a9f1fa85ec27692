//! Usage, marks and ceilings of the groups of demand, of blocks, and of what was blocked before.

use super::Reader;
use crate::store::StoreError;
use crate::store::rows::db_time;
use pgsemaphore_allocation::{Group, GroupUsage};
use sqlx::FromRow;
use std::collections::BTreeSet;
use time::OffsetDateTime;

#[derive(FromRow)]
pub(super) struct GroupRow {
    grp: String,
    grants: Option<i64>,
    leases: Option<i64>,
    live_leases: Option<i64>,
    contended_until: Option<OffsetDateTime>,
    permit_limit: Option<i32>,
}

impl Reader<'_> {
    /// Groups of blocks and of what was blocked that were not read yet.
    pub(super) async fn read_groups(&mut self) -> Result<(), StoreError> {
        let held = self.state.blocks.values().map(|block| &block.group);
        let was_blocked = self.state.clients.values().flat_map(|client| &client.blocked);
        let named = held.chain(was_blocked.map(|entry| &entry.lacking.group));
        let unread = |group: &&Group| {
            !self.state.groups.contains_key(*group) && !self.missing.groups.contains(group.as_str())
        };
        let names: BTreeSet<&Group> = named.filter(unread).collect();
        if names.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = names.into_iter().map(Group::as_str).collect();
        let query = sqlx::query_as(include_str!("../../../queries/read_groups.sql")).bind(self.key.as_str());
        let query = query.bind(names).bind(self.pattern);
        let rows: Vec<GroupRow> = query.fetch_all(&mut *self.attempt.tx).await?;
        rows.into_iter().for_each(|row| self.keep_group(row));
        Ok(())
    }

    /// A group without a row gets one before the round.
    pub(super) fn keep_group(&mut self, row: GroupRow) {
        let (Some(grants), Some(leases), Some(live_leases)) = (row.grants, row.leases, row.live_leases)
        else {
            self.missing.groups.insert(row.grp);
            return;
        };
        let limit = row.permit_limit.map(i64::from);
        let contended_until = row.contended_until.map(db_time);
        let usage = GroupUsage { grants, leases, live_leases, limit, unresolved: false, contended_until };
        self.state.groups.insert(Group::new(row.grp), usage);
    }
}
