//! What a holder finds out about its database on its own account: what metrics say of all of it, and whether counters are
//! what the blocks say. It tells, and repairs nothing.
//!
//! Every look is a short transaction that only reads. Where they take long, they become rarer and smaller.

use crate::clock;
use crate::holder::Shared;
use crate::housekeeping::pause;
use crate::store::{Drift, SemaphoreUsage, StoreError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Of a holder's time, looks take at most one part of so many.
const PARTS: u32 = 20;
/// Looks come no closer than this.
const EVERY_MIN: Duration = Duration::from_millis(100);
/// How many keys one look counts again, at the most.
const KEYS_MAX: i64 = 1000;
/// A look that was faster than this may take more keys the next time.
const FAST: Duration = Duration::from_millis(50);
/// So many keys with drift are remembered, and so many of them looked at again each time.
const KNOWN_MAX: usize = 1000;
const AGAIN_MAX: usize = 20;

/// Looks every so often until the holder stops. Keys of `listed` get metrics of their own.
pub(crate) async fn watch(shared: Arc<Shared>, every: Duration, listed: Vec<String>) {
    let mut audit = Audit::default();
    loop {
        let began = clock::now();
        take_census(&shared, &listed).await;
        audit.go_on(&shared).await;
        if pause(&shared, every.max(EVERY_MIN).max(began.elapsed() * PARTS)).await {
            return;
        }
    }
}

async fn take_census(shared: &Shared, listed: &[String]) {
    let metrics = shared.store.metrics();
    match shared.store.census(listed).await {
        Ok((census, keys)) => {
            metrics.unheard_permits.set([], census.unheard_permits);
            metrics.live_holders.set([], census.live_holders);
            show_keys(shared, listed, &keys);
        }
        Err(error) => tracing::debug!(%error, "the database could not be looked at for metrics"),
    }
}

/// What was read of the listed keys at one moment. Those that have no row use nothing.
fn show_keys(shared: &Shared, listed: &[String], keys: &[SemaphoreUsage]) {
    let metrics = shared.store.metrics();
    let of = |key: &String| keys.iter().find(|usage| usage.key == *key);
    let limits = keys.iter().filter_map(|usage| Some(([usage.key.clone().into()], usage.limit?.into())));
    metrics.key_limit.set_all(limits);
    let permits = listed.iter().flat_map(|key| {
        let (grants, leases) = of(key).map_or((0, 0), |usage| (usage.grants, usage.leases));
        [([key.clone().into(), "grants".into()], grants), ([key.clone().into(), "leases".into()], leases)]
    });
    metrics.key_permits.set_all(permits);
    let contended = |key: &String| of(key).is_some_and(|usage| usage.contended);
    let contended = listed.iter().map(|key| ([key.clone().into()], contended(key).into()));
    metrics.key_contended.set_all(contended);
}

/// Goes through all keys, a page at a time, again and again.
struct Audit {
    /// The latest key that was counted.
    after: String,
    page: i64,
    /// How many counters differ, by key.
    known: BTreeMap<String, i64>,
    /// The latest of them that was looked at again.
    again_after: String,
}

impl Default for Audit {
    fn default() -> Self {
        Self { after: String::new(), page: 100, known: BTreeMap::new(), again_after: String::new() }
    }
}

impl Audit {
    async fn go_on(&mut self, shared: &Shared) {
        let looked = match self.look_again(shared).await {
            Ok(()) => self.look_at_next(shared).await,
            failed => failed,
        };
        if let Err(error) = looked {
            tracing::debug!(%error, "counters could not be counted again");
        }
        let drift = self.known.values().sum();
        shared.store.metrics().drift_counters.set([], drift);
    }

    /// Whether keys that had drift still have some.
    async fn look_again(&mut self, shared: &Shared) -> Result<(), StoreError> {
        let rest = self.known.range::<str, _>((
            std::ops::Bound::Excluded(self.again_after.as_str()),
            std::ops::Bound::Unbounded,
        ));
        let keys: Vec<String> = rest.map(|(key, _)| key.clone()).take(AGAIN_MAX).collect();
        self.again_after = if keys.len() == AGAIN_MAX { keys[AGAIN_MAX - 1].clone() } else { String::new() };
        for key in keys {
            let drift = shared.store.glance_at(&key).await?;
            self.note(&key, &drift);
        }
        Ok(())
    }

    async fn look_at_next(&mut self, shared: &Shared) -> Result<(), StoreError> {
        let began = clock::now();
        let audited = match shared.store.glance_at_keys(&self.after, self.page).await {
            Err(error) if error.is_timeout() => return self.took_too_long(shared).await,
            audited => audited?,
        };
        shared.store.metrics().audited_keys.add([], u64::try_from(audited.keys.len()).unwrap_or(0));
        for key in &audited.keys {
            let drift: Vec<_> = audited.drift.iter().filter(|drift| drift.key == *key).cloned().collect();
            self.note(key, &drift);
        }
        self.after = audited.keys.last().cloned().unwrap_or_default();
        if began.elapsed() < FAST {
            self.page = (self.page * 2).min(KEYS_MAX);
        }
        Ok(())
    }

    /// Takes fewer keys the next time; a key that is too large by itself is left out.
    async fn took_too_long(&mut self, shared: &Shared) -> Result<(), StoreError> {
        if self.page > 1 {
            self.page /= 2;
            return Ok(());
        }
        let next = shared.store.keys_after(&self.after, 1).await?;
        tracing::debug!(key = next.first(), "a key is too large to be counted again in a second");
        self.after = next.into_iter().next().unwrap_or_default();
        Ok(())
    }

    fn note(&mut self, key: &str, drift: &[Drift]) {
        let counters = i64::try_from(drift.len()).unwrap_or(i64::MAX);
        if counters == 0 {
            if self.known.remove(key).is_some() {
                tracing::info!(key, "its counters are right again");
            }
            return;
        }
        let is_new = !self.known.contains_key(key);
        if is_new && self.known.len() < KNOWN_MAX {
            for Drift { grp, counter, stored, actual, .. } in drift {
                tracing::error!(
                    key,
                    group = grp,
                    counter,
                    stored,
                    actual,
                    "a counter differs from the blocks that it counts: see `pgsemaphore audit`"
                );
            }
        }
        if !is_new || self.known.len() < KNOWN_MAX {
            self.known.insert(key.to_owned(), counters);
        }
    }
}
