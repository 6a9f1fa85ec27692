//! Rendezvous hashing: each key has the holders in an order of its own, by hashes of key and holder together.
//!
//! Holders decide it each for itself, so all versions that run side by side must come to the same order: the hash is
//! part of what they share, like the schema. Pure.

use sha2::{Digest as _, Sha256};

/// The first of `holders` in the order of `key`; `name` says what a holder is called. When one leaves, only its own keys
/// move, and when one joins, keys move to it alone.
pub(crate) fn first<'a, T>(
    key: &str,
    holders: impl IntoIterator<Item = &'a T>,
    name: impl Fn(&T) -> &str,
) -> Option<&'a T> {
    holders.into_iter().max_by(|one, other| {
        let rank = |holder: &T| weight(key, name(holder));
        rank(one).cmp(&rank(other)).then_with(|| name(one).cmp(name(other)))
    })
}

/// No name of a holder has a NUL, so no two pairs are the same bytes.
fn weight(key: &str, holder: &str) -> u64 {
    let hash = Sha256::new().chain_update(holder).chain_update([0]).chain_update(key).finalize();
    hash.iter().take(8).fold(0, |weight, byte| weight << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::{first, weight};
    use std::collections::HashMap;

    fn home<'a>(key: &str, holders: &[&'a str]) -> &'a str {
        first(key, holders, |name| name).copied().expect("a holder")
    }

    fn keys() -> impl Iterator<Item = String> {
        (0..20_000).map(|number| format!("account:{number}"))
    }

    #[test]
    fn the_order_is_the_same_in_every_version() {
        assert_eq!(weight("account:42", "0123456789abcdef"), WEIGHT);
    }

    #[test]
    fn every_holder_is_home_to_as_many_keys() {
        let holders = ["a", "b", "c", "d", "e"];
        let mut homes = HashMap::<&str, u32>::new();
        keys().for_each(|key| *homes.entry(home(&key, &holders)).or_default() += 1);
        for holder in holders {
            assert!((3_700..4_300).contains(&homes[holder]), "{holder}: {homes:?}");
        }
    }

    #[test]
    fn only_keys_of_who_leaves_or_joins_move() {
        let (all, without) = (["a", "b", "c", "d"], ["a", "b", "d"]);
        let mut moved = 0;
        for key in keys() {
            let (before, after) = (home(&key, &all), home(&key, &without));
            assert!(before == after || before == "c", "{key}: from {before} to {after}");
            moved += u32::from(before != after);
        }
        assert!((4_600..5_400).contains(&moved), "{moved}");
    }

    #[test]
    fn the_order_of_the_list_does_not_matter() {
        for key in keys().take(100) {
            assert_eq!(home(&key, &["a", "b", "c"]), home(&key, &["c", "b", "a"]));
        }
        assert_eq!(first("k", &[] as &[&str], |name| name), None);
    }

    const WEIGHT: u64 = 0xb8ae_d0e2_5171_a342;
}
