//! Clients of the calls and of the blocks, and until when the others' demand counts as blocked.

use super::Reader;
use crate::store::StoreError;
use crate::store::rows::{ClientRow, db_time, timestamp};
use pgsemaphore_allocation::{
    BLOCKED_LIFETIME, BLOCKED_REWRITTEN_AFTER, Client, ClientId, Contended, DbTime, Group, Reason, Silence,
    State, Work, silent_since,
};
use std::collections::BTreeSet;
use time::OffsetDateTime;

impl Reader<'_> {
    /// Clients that hold something and were silent for long, where that has to be looked at.
    pub(super) async fn read_silence(&mut self, work: Work) -> Result<(), StoreError> {
        let State { now, semaphore, policy, .. } = &self.state;
        let Some(since) = silent_since(work, *now, semaphore, policy.as_ref()) else { return Ok(()) };
        let query = sqlx::query_as(include_str!("../../../queries/read_silence.sql"));
        let query = query.bind(self.key.as_str()).bind(timestamp(since));
        let row: (Vec<String>, Option<OffsetDateTime>, Option<OffsetDateTime>) =
            query.fetch_one(&mut *self.attempt.tx).await?;
        let clients: BTreeSet<_> = row.0.into_iter().map(ClientId::new).collect();
        let unread = clients.iter().filter(|id| !self.state.clients.contains_key(*id)).cloned().collect();
        self.read_clients(&unread).await?;
        let (next_heard, serving_since) = (row.1.map(db_time), row.2.map(db_time));
        self.state.silence = Some(Silence { clients, next_heard, serving_since });
        Ok(())
    }

    /// Owners of blocks that are due or may be retired: they have to hear of it.
    pub(super) async fn read_owners(&mut self) -> Result<(), StoreError> {
        let owners = self.state.blocks.values().map(|block| &block.client);
        let unread = owners.filter(|id| !self.state.clients.contains_key(*id)).cloned().collect();
        self.read_clients(&unread).await
    }

    async fn read_clients(&mut self, ids: &BTreeSet<ClientId>) -> Result<(), StoreError> {
        if ids.is_empty() {
            return Ok(());
        }
        let ids: Vec<&str> = ids.iter().map(ClientId::as_str).collect();
        let query = sqlx::query_as(include_str!("../../../queries/read_clients.sql")).bind(self.key.as_str());
        let rows: Vec<ClientRow> = query.bind(ids).fetch_all(&mut *self.attempt.tx).await?;
        rows.into_iter().try_for_each(|row| self.keep_client(row))
    }

    pub(super) fn keep_client(&mut self, row: ClientRow) -> Result<(), StoreError> {
        self.state.clients.insert(ClientId::new(row.client_id.as_str()), row.client()?);
        Ok(())
    }

    /// Until when clients count as blocked that neither speak nor are silent. The rows of the key and its groups have the
    /// latest moment of all clients; the others are looked at only where that may be one of ours.
    pub(super) async fn read_contended(&mut self) -> Result<(), StoreError> {
        let state = &mut self.state;
        let counts = |until: &DbTime| *until > state.now;
        let groups =
            state.groups.iter().filter_map(|(group, usage)| Some((group.clone(), usage.contended_until?)));
        let marks = Contended {
            key: state.semaphore.contended_until.filter(counts),
            groups: groups.filter(|(_, until)| counts(until)).collect(),
        };
        let silent = state.silence.iter().flat_map(|silence| &silence.clients);
        let ids: BTreeSet<&ClientId> = self.calls.iter().map(|call| &call.client).chain(silent).collect();
        let ours = ids.iter().filter_map(|id| state.clients.get(*id));
        let ours = ours.filter(|client| is_blocked(client)).filter_map(|client| client.blocked_at).max();
        let latest = marks.groups.values().copied().chain(marks.key).min();
        if ours
            .zip(latest)
            .is_none_or(|(ours, latest)| ours + BLOCKED_LIFETIME + BLOCKED_REWRITTEN_AFTER < latest)
        {
            state.contended_elsewhere = marks;
            return Ok(());
        }
        let ids: Vec<&str> = ids.into_iter().map(ClientId::as_str).collect();
        let query = sqlx::query_as(include_str!("../../../queries/read_contended_elsewhere.sql"));
        let query = query.bind(self.key.as_str()).bind(ids);
        let rows: Vec<(Option<String>, OffsetDateTime)> = query.fetch_all(&mut *self.attempt.tx).await?;
        for (group, at) in rows {
            let until = db_time(at) + BLOCKED_LIFETIME;
            match group {
                None => state.contended_elsewhere.key = Some(until),
                Some(group) => _ = state.contended_elsewhere.groups.insert(Group::new(group), until),
            }
        }
        Ok(())
    }
}

/// Whether the client's demand is blocked by a limit that others share.
fn is_blocked(client: &Client) -> bool {
    let shared = |reason: Reason| matches!(reason, Reason::Limit | Reason::GroupLimit);
    client.blocked.iter().any(|entry| shared(entry.lacking.reason))
}
