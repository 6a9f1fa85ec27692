//! Clients that are heard because a call of theirs is open.

use super::rows::round_to;
use super::{Store, StoreError};
use crate::open_calls::Voice;
use pgsemaphore_allocation::SemaphoreKey;
use std::time::Duration;

impl Store {
    /// Notes that the clients of open calls are heard now. Gives the keys that have a row, with how late that may be
    /// noted.
    pub(crate) async fn hear(
        &self,
        calls: &[(SemaphoreKey, Voice)],
    ) -> Result<Vec<(SemaphoreKey, Duration)>, StoreError> {
        let voices = || calls.iter().map(|(_, voice)| voice);
        let query = sqlx::query_as(include_str!("../../queries/hear_open_calls.sql"))
            .bind(calls.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>())
            .bind(voices().map(|voice| voice.client.as_str()).collect::<Vec<_>>())
            .bind(voices().map(|voice| round_to(voice.from.generation)).collect::<Vec<_>>())
            .bind(voices().map(|voice| voice.from.process.as_deref()).collect::<Vec<_>>());
        let rows: Vec<(String, i64)> = query.fetch_all(self.vital()).await?;
        let resolution = |millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0));
        Ok(rows.into_iter().map(|(key, millis)| (SemaphoreKey::new(key), resolution(millis))).collect())
    }
}
