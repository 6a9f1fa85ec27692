//! Which of several addresses a call goes to, by what became of the calls before it: a pure state machine.
//!
//! Authoritative for the health of addresses, which all keys of a client share. Not authoritative for when something is
//! said again: the ledger decides that, and a call that it makes while an earlier one is open is what tells this module
//! that an address hangs.
//!
//! All holders share one database, so any of them answers any call. The address that answered last is asked first. An
//! address is *in trouble* from a call that failed, or that was not answered before the same was said again, until it
//! answers anything: a call that was open all the while, or a cheap call in the background ([`Addresses::to_probe`]). An
//! address that has answered nothing for a while is asked so too, however often its calls were given up for later ones.
//! Addresses in trouble are asked last, the one first that has been in trouble for longest. A call never goes where an
//! earlier call about the same is still open, if there is another address.

use std::collections::BTreeMap;

/// An address that is in trouble, or silent for so long, is asked whether it lives this often, while calls are made.
pub const PROBE_EVERY_MS: u64 = 2_000;

/// A call that was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    /// Names the call in [`Addresses::end`].
    pub call: u64,
    /// The address, by its place.
    pub at: usize,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The address answered.
    Answered,
    /// It did not, or asked to be left alone.
    Failed,
    /// Nobody waits for its answer any longer.
    GivenUp,
}

/// See the [module](self). Times are milliseconds of any one monotonic clock.
#[derive(Debug, Clone)]
pub struct Addresses {
    all: Vec<Address>,
    first: usize,
    open: BTreeMap<u64, Open>,
    /// The open calls by what they are about.
    about: BTreeMap<String, Vec<u64>>,
    last: u64,
}

#[derive(Debug, Clone, Default)]
struct Address {
    /// Since when it is in trouble.
    trouble: Option<u64>,
    answered_at: Option<u64>,
    /// When the first call was sent to it since.
    asked_at: Option<u64>,
    probed_at: Option<u64>,
}

#[derive(Debug, Clone)]
struct Open {
    at: usize,
    since: u64,
    about: Option<String>,
}

impl Addresses {
    /// So many addresses, of which nothing is known. There must be at least one.
    pub fn new(count: usize) -> Self {
        let all = vec![Address::default(); count.max(1)];
        Self { all, first: 0, open: BTreeMap::new(), about: BTreeMap::new(), last: 0 }
    }

    /// A call begins, and goes to this address. `about`: it says what an earlier call about the same said, if that is
    /// still open, and was not answered in time. `tried`: the message has failed there just now.
    pub fn begin(&mut self, about: Option<&str>, tried: &[usize], now_ms: u64) -> Begun {
        self.notice_silence(about, now_ms);
        let rank = |at: &usize| (tried.contains(at), self.rank(*at, about));
        let at = (0..self.all.len()).min_by_key(rank).unwrap_or(0);
        self.last += 1;
        let about = about.map(str::to_owned);
        if let Some(about) = &about {
            self.about.entry(about.clone()).or_default().push(self.last);
        }
        self.open.insert(self.last, Open { at, since: now_ms, about });
        self.all[at].asked_at.get_or_insert(now_ms);
        Begun { call: self.last, at }
    }

    /// A call has ended.
    pub fn end(&mut self, call: u64, ended: Ended, now_ms: u64) {
        let Some(Open { at, about, .. }) = self.open.remove(&call) else { return };
        if let Some(about) = about
            && let Some(calls) = self.about.get_mut(&about)
        {
            calls.retain(|other| *other != call);
            if calls.is_empty() {
                self.about.remove(&about);
            }
        }
        match ended {
            Ended::Answered => self.lives(at, now_ms),
            Ended::Failed => self.is_in_trouble(at, now_ms),
            Ended::GivenUp => {}
        }
    }

    /// An address to ask whether it lives. Say what came of it by [`lives`](Self::lives) or [`is_silent`](Self::is_silent).
    pub fn to_probe(&mut self, now_ms: u64) -> Option<usize> {
        let due = |address: &Address| {
            let since = address.trouble.or(address.asked_at)?;
            let last = since.max(address.probed_at.unwrap_or(0));
            (last.saturating_add(PROBE_EVERY_MS) <= now_ms).then_some(last)
        };
        let at = (0..self.all.len()).filter(|at| due(&self.all[*at]).is_some());
        let at = at.min_by_key(|at| due(&self.all[*at]))?;
        self.all[at].probed_at = Some(now_ms);
        Some(at)
    }

    /// An address has answered.
    pub fn lives(&mut self, at: usize, now_ms: u64) {
        let probed_at = self.all[at].probed_at;
        self.all[at] = Address { answered_at: Some(now_ms), probed_at, ..Address::default() };
        if self.all[self.first].trouble.is_some() {
            self.first = at;
        }
    }

    /// An address did not say that it lives.
    pub fn is_silent(&mut self, at: usize, now_ms: u64) {
        self.all[at].trouble.get_or_insert(now_ms);
    }

    /// Whether an address is in trouble.
    pub fn is_troubled(&self, at: usize) -> bool {
        self.all[at].trouble.is_some()
    }

    fn is_in_trouble(&mut self, at: usize, now_ms: u64) {
        self.all[at].trouble = Some(now_ms);
    }

    /// Addresses where a call about the same is open, and that have answered nothing since it was sent.
    fn notice_silence(&mut self, about: Option<&str>, now_ms: u64) {
        let silent = |open: &&Open| {
            let answered_at = self.all[open.at].answered_at;
            open.since < now_ms && answered_at.is_none_or(|answered_at| answered_at < open.since)
        };
        let silent: Vec<usize> = self.about(about).filter(silent).map(|open| open.at).collect();
        for at in silent {
            self.all[at].trouble.get_or_insert(now_ms);
        }
    }

    fn about(&self, about: Option<&str>) -> impl Iterator<Item = &Open> {
        let calls = about.and_then(|about| self.about.get(about)).into_iter().flatten();
        calls.filter_map(|call| self.open.get(call))
    }

    /// The lowest is asked.
    fn rank(&self, at: usize, about: Option<&str>) -> (usize, Option<u64>, usize) {
        let open_here = self.about(about).filter(|open| open.at == at).count();
        let distance = (at + self.all.len() - self.first) % self.all.len();
        (open_here, self.all[at].trouble, distance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_answered_last_is_asked_first() {
        let mut addresses = Addresses::new(3);
        let first = addresses.begin(None, &[], 0);
        addresses.end(first.call, Ended::Failed, 1);
        let second = addresses.begin(None, &[], 1);
        assert_eq!((first.at, second.at), (0, 1));
        addresses.end(second.call, Ended::Answered, 2);
        assert_eq!(addresses.begin(None, &[], 3).at, 1);
        addresses.lives(0, 4);
        assert_eq!(
            addresses.begin(None, &[], 5).at,
            1,
            "the first one has recovered, and nothing is wrong with this one"
        );
    }

    /// O-10: a repetition never meets the call that hangs, and other keys learn from it.
    #[test]
    fn what_is_said_again_goes_elsewhere_and_all_keys_know_why() {
        let mut addresses = Addresses::new(2);
        let hangs = addresses.begin(Some("k"), &[], 0);
        assert_eq!(addresses.begin(Some("other"), &[], 0).at, 0, "nothing is known yet");
        assert_eq!((hangs.at, addresses.begin(Some("k"), &[], 400).at), (0, 1));
        assert_eq!(addresses.begin(Some("another"), &[], 400).at, 1);
        addresses.end(hangs.call, Ended::Answered, 900);
        assert!(!addresses.is_troubled(0), "a late answer is one");
    }

    /// O-12: what works for others is not given up for one key.
    #[test]
    fn an_address_that_answers_others_is_not_in_trouble() {
        let mut addresses = Addresses::new(2);
        addresses.begin(Some("k"), &[], 0);
        let other = addresses.begin(Some("other"), &[], 1);
        addresses.end(other.call, Ended::Answered, 2);
        assert_eq!(addresses.begin(Some("k"), &[], 400).at, 1);
        assert!(!addresses.is_troubled(0));
    }

    #[test]
    fn an_address_in_trouble_is_asked_in_the_background_and_at_last() {
        let mut addresses = Addresses::new(2);
        for at in [0, 1] {
            let call = addresses.begin(None, &[], 10 * at);
            addresses.end(call.call, Ended::Failed, 10 * at);
        }
        assert_eq!(addresses.begin(None, &[], 20).at, 0, "in trouble for longer");
        assert_eq!(addresses.to_probe(20), None);
        assert_eq!(addresses.to_probe(PROBE_EVERY_MS + 10), Some(0));
        assert_eq!(addresses.to_probe(PROBE_EVERY_MS + 10), Some(1));
        assert_eq!(addresses.to_probe(PROBE_EVERY_MS + 10), None, "each once");
        addresses.lives(1, PROBE_EVERY_MS + 20);
        assert_eq!(addresses.begin(None, &[], PROBE_EVERY_MS + 30).at, 1);
    }

    /// O-12: requests that supersede each other at a silent address do not hide its silence.
    #[test]
    fn an_address_where_calls_are_only_given_up_is_asked_whether_it_lives() {
        let mut addresses = Addresses::new(2);
        for now in 0..PROBE_EVERY_MS {
            assert_eq!(addresses.to_probe(now), None);
            let call = addresses.begin(None, &[], now);
            assert_eq!(call.at, 0);
            addresses.end(call.call, Ended::GivenUp, now);
        }
        assert_eq!(addresses.to_probe(PROBE_EVERY_MS), Some(0));
        addresses.is_silent(0, PROBE_EVERY_MS + 3_000);
        assert_eq!(addresses.begin(None, &[], PROBE_EVERY_MS + 3_001).at, 1);
    }
}
