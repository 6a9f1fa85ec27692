//! Which holder is a key's home, as this holder sees it.
//!
//! Authoritative for whom a request is passed on to. Not authoritative for anything that counts: two holders that see
//! it differently run two rounds, and the key's row decides between them. The live holders are read with each
//! heartbeat, by the database's clock. A holder whose own heartbeat is stale is alone: it may have missed anything.

use crate::address;
use crate::rendezvous;
use pgsemaphore_allocation::SemaphoreKey;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// What the latest heartbeat read is believed for this long; others take a holder for gone after the same time.
const BELIEVED: Duration = Duration::from_secs(3);
/// A home that did not answer is passed over for this long. One that is gone has missed its heartbeats by then.
const PASSED_OVER: Duration = Duration::from_secs(5);

/// A holder that is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) url: String,
    /// The database that both use, as the heartbeat names it.
    pub(crate) database: String,
    /// Whether it may be a home: it did not miss heartbeats lately.
    pub(crate) steady: bool,
}

/// The live holders, and which of them are keys' homes.
pub(crate) struct Homes {
    me: String,
    view: watch::Sender<View>,
    /// Which homes did not answer, and how long each is passed over.
    passed_over: watch::Sender<HashMap<String, Instant>>,
}

#[derive(Default)]
struct View {
    /// When it was asked for.
    at: Option<Instant>,
    live: Vec<Arc<Peer>>,
}

impl Homes {
    /// What the holder of this name sees: nobody yet.
    pub(crate) fn new(me: impl Into<String>) -> Self {
        Self { me: me.into(), view: watch::Sender::default(), passed_over: watch::Sender::default() }
    }

    /// Notes who is alive, as a heartbeat read it that began at `at`.
    pub(crate) fn learn(&self, live: Vec<Peer>, at: Instant) {
        let live: Vec<_> = live.into_iter().map(Arc::new).collect();
        let before = self.view.send_replace(View { at: Some(at), live: live.clone() }).live;
        let lacks = |peers: &[Arc<Peer>], name: &str| peers.iter().all(|peer| peer.name != name);
        for peer in live.iter().filter(|peer| peer.name != self.me && lacks(&before, &peer.name)) {
            match address::check(&peer.url) {
                Ok(()) => tracing::info!(holder = peer.name, url = peer.url, "another holder runs"),
                Err(why) => tracing::warn!(
                    holder = peer.name,
                    url = peer.url,
                    "nothing is passed on to a holder: its --advertise-url {why}"
                ),
            }
        }
        for peer in before.iter().filter(|peer| lacks(&live, &peer.name)) {
            tracing::info!(holder = peer.name, url = peer.url, "another holder is gone");
        }
    }

    /// The home of a key; `None` if that is this holder, or nobody else is known for sure.
    pub(crate) fn of(&self, key: &SemaphoreKey, now: Instant) -> Option<Arc<Peer>> {
        let view = self.view.borrow();
        if view.at.is_none_or(|at| now.saturating_duration_since(at) >= BELIEVED) {
            return None;
        }
        let passed_over = self.passed_over.borrow();
        let may_be_home = |peer: &&Arc<Peer>| {
            let is_over = passed_over.get(&peer.name).is_none_or(|until| *until <= now);
            peer.steady && is_over && address::check(&peer.url).is_ok()
        };
        let homes = view.live.iter().filter(may_be_home);
        rendezvous::first(key.as_str(), homes, |peer| &peer.name).filter(|home| home.name != self.me).cloned()
    }

    /// Whether a request that was passed on in this database means this holder. The database of its latest heartbeat
    /// counts: one that was restored from a copy of the other knows its name, too.
    pub(crate) fn is_meant(&self, holder: &str, database: &str) -> bool {
        let view = self.view.borrow();
        holder == self.me && view.live.iter().any(|peer| peer.name == self.me && peer.database == database)
    }

    /// Passes a home over for a while, which did not answer; others are homes of its keys meanwhile, and all calls that wait
    /// at it are told. Whether that is new.
    pub(crate) fn pass_over(&self, home: &Peer, now: Instant) -> bool {
        let mut is_new = false;
        self.passed_over.send_modify(|passed_over| {
            passed_over.retain(|_, until| now < *until);
            is_new = passed_over.insert(home.name.clone(), now + PASSED_OVER).is_none();
        });
        is_new
    }

    /// Ready when nothing is to be hoped for from a home: it left, missed three heartbeats, or did not answer a call that
    /// was made at `now` or later. So one call that finds a frozen home frees all others, whatever each may wait.
    pub(crate) async fn given_up(&self, peer: &Peer, now: Instant) {
        let (mut views, mut passed_over) = (self.view.subscribe(), self.passed_over.subscribe());
        let is_over = |until: &Instant| *until > now;
        let waits = tokio::select! {
            gone = views.wait_for(|view| view.live.iter().all(|other| other.name != peer.name)) => gone.is_ok(),
            silent = passed_over.wait_for(|all| all.get(&peer.name).is_some_and(is_over)) => silent.is_ok(),
        };
        debug_assert!(waits, "the senders are borrowed");
    }
}

#[cfg(test)]
mod tests {
    use super::{BELIEVED, Homes, PASSED_OVER, Peer};
    use crate::clock;
    use pgsemaphore_allocation::SemaphoreKey;
    use std::collections::BTreeSet;
    use std::time::Instant;

    fn peer(name: &str, steady: bool) -> Peer {
        Peer { name: name.to_owned(), url: format!("http://{name}"), database: "1/2/3".to_owned(), steady }
    }

    /// The homes of many keys, this holder as "here".
    fn homes(homes: &Homes, now: Instant) -> BTreeSet<String> {
        let keys = (0..100).map(|number| SemaphoreKey::new(format!("k:{number}")));
        keys.map(|key| homes.of(&key, now).map_or("here".to_owned(), |home| home.name.clone())).collect()
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_holder_that_knows_nothing_or_nothing_new_is_alone() {
        let (seen, now) = (Homes::new("a"), clock::now());
        assert_eq!(homes(&seen, now), set(&["here"]));
        seen.learn(vec![peer("a", true), peer("b", true)], now);
        assert_eq!(homes(&seen, now), set(&["here", "b"]));
        assert_eq!(homes(&seen, now + BELIEVED), set(&["here"]));
    }

    #[test]
    fn who_missed_heartbeats_lately_is_no_home() {
        let (seen, now) = (Homes::new("a"), clock::now());
        seen.learn(vec![peer("a", false), peer("b", true), peer("c", false)], now);
        assert_eq!(homes(&seen, now), set(&["b"]));
        seen.learn(vec![peer("a", false), peer("b", false)], now);
        assert_eq!(homes(&seen, now), set(&["here"]));
    }

    /// O-09: the row of another holder may say anything.
    #[test]
    fn a_holder_at_an_address_that_is_none_is_no_home() {
        let (seen, now) = (Homes::new("a"), clock::now());
        let strange = Peer { url: "http://u@c:1".to_owned(), ..peer("c", true) };
        seen.learn(vec![peer("a", true), peer("b", true), strange], now);
        assert_eq!(homes(&seen, now), set(&["here", "b"]));
    }

    /// O-07
    #[test]
    fn a_request_means_this_holder_in_its_own_database_only() {
        let seen = Homes::new("a");
        assert!(!seen.is_meant("a", "1/2/3"), "it does not know its database yet");
        seen.learn(vec![peer("a", true), peer("b", true)], clock::now());
        assert!(seen.is_meant("a", "1/2/3"));
        assert!(!seen.is_meant("a", "1/2/4"));
        assert!(!seen.is_meant("b", "1/2/3"));
    }

    #[test]
    fn who_did_not_answer_is_passed_over_for_a_while() {
        let (seen, now) = (Homes::new("a"), clock::now());
        let live = || vec![peer("a", true), peer("b", true), peer("c", true)];
        seen.learn(live(), now);
        assert!(seen.pass_over(&peer("b", true), now));
        assert!(!seen.pass_over(&peer("b", true), now), "it is passed over already");
        assert_eq!(homes(&seen, now), set(&["here", "c"]));
        let later = now + PASSED_OVER;
        seen.learn(live(), later);
        assert_eq!(homes(&seen, later), set(&["here", "b", "c"]));
        assert!(seen.pass_over(&peer("b", true), later));
    }

    #[tokio::test]
    async fn a_holder_that_leaves_is_given_up() {
        let (seen, now) = (Homes::new("a"), clock::now());
        let b = peer("b", true);
        seen.learn(vec![peer("a", true), b.clone()], now);
        let mut gone = Box::pin(seen.given_up(&b, now));
        assert!(futures_util::poll!(&mut gone).is_pending());
        seen.learn(vec![peer("a", true), peer("b", false)], now);
        assert!(futures_util::poll!(&mut gone).is_pending(), "it is alive, only no home");
        seen.learn(vec![peer("a", true)], now);
        gone.await;
    }

    #[tokio::test]
    async fn a_home_that_does_not_answer_one_call_is_given_up_by_all() {
        let (seen, now) = (Homes::new("a"), clock::now());
        let (b, c) = (peer("b", true), peer("c", true));
        seen.learn(vec![peer("a", true), b.clone(), c.clone()], now);
        let (mut at_b, mut at_c) = (Box::pin(seen.given_up(&b, now)), Box::pin(seen.given_up(&c, now)));
        assert!(futures_util::poll!(&mut at_b).is_pending());
        assert!(futures_util::poll!(&mut at_c).is_pending());
        seen.pass_over(&b, now);
        at_b.await;
        assert!(futures_util::poll!(&mut at_c).is_pending());
        let later = now + PASSED_OVER;
        assert!(futures_util::poll!(Box::pin(seen.given_up(&b, later))).is_pending(), "it is asked again");
    }
}
