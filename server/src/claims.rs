//! Whom a round has just given permits: they come back at once to claim them, and share a transaction if it waits for them.

use pgsemaphore_allocation::ClientId;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long the key's next transaction waits for claims at most; about as long as a transaction takes.
const WAIT: Duration = Duration::from_millis(2);

/// Claims that are about to come.
#[derive(Default)]
pub(crate) struct Claims {
    awaited: BTreeSet<ClientId>,
    until: Option<Instant>,
}

impl Claims {
    /// A round has given permits to `claimants`.
    pub(crate) fn expect(&mut self, claimants: BTreeSet<ClientId>, now: Instant) {
        self.awaited = claimants;
        self.until = Some(now + WAIT);
    }

    /// A client has called.
    pub(crate) fn heard(&mut self, client: &ClientId) {
        self.awaited.remove(client);
    }

    /// Until when to wait for those that have not come; nothing if all have, or it was long enough.
    pub(crate) fn awaited_until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| !self.awaited.is_empty() && now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::{Claims, WAIT};
    use crate::clock;
    use pgsemaphore_allocation::ClientId;

    #[test]
    fn claims_are_awaited_until_all_are_there_and_not_for_long() {
        let now = clock::now();
        let [first, second] = ["first", "second"].map(ClientId::new);
        let mut claims = Claims::default();
        assert_eq!(claims.awaited_until(now), None);
        claims.expect([first.clone(), second.clone()].into(), now);
        claims.heard(&first);
        assert_eq!(claims.awaited_until(now), Some(now + WAIT));
        assert_eq!(claims.awaited_until(now + WAIT), None);
        claims.heard(&second);
        assert_eq!(claims.awaited_until(now), None);
    }
}
