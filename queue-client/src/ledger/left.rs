//! How much of what is not over, for people: it decides nothing.

use super::{Ledger, grant::Grant, lease::Lease};

impl Ledger {
    /// Who waits in `group`: how many, and since when the first does.
    pub fn waiting(&self, group: &str) -> Option<(u64, u64)> {
        let waiters = &self.queues.get(group)?.waiters;
        let (_, since) = waiters.first_key_value()?;
        Some((waiters.len() as u64, *since))
    }

    /// The groups in which somebody waits.
    pub fn waiting_groups(&self) -> impl Iterator<Item = &str> {
        let waiting = self.queues.iter().filter(|(_, queue)| !queue.waiters.is_empty());
        waiting.map(|(group, _)| group.as_str())
    }

    /// Permits that nobody uses here, of which the holder has not yet confirmed that it has them back.
    pub fn unconfirmed(&self) -> u64 {
        let grants = self.grants.values().map(Grant::unconfirmed);
        grants.chain(self.leases.values().map(Lease::unconfirmed)).sum()
    }
}
