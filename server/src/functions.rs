//! Functions of users that fail on a key, for the log: told when they begin to, and when they work again.
//!
//! Authoritative for nothing but what is logged: how demand is answered meanwhile is decided in the round.

use crate::store::FunctionCall;
use pgsemaphore_allocation::SemaphoreKey;
use std::collections::{BTreeMap, BTreeSet};

/// The client and the group that a function is asked about.
type About = (Option<String>, Option<String>);

/// About whom a function failed when it was last asked, by the policy's field that names it.
#[derive(Debug, Default)]
pub(crate) struct Failing(BTreeMap<&'static str, BTreeSet<About>>);

/// What to tell of the functions of a field.
#[derive(Debug, PartialEq, Eq)]
enum Turned<'a> {
    Bad(&'a FunctionCall, &'a str),
    Good(&'static str),
}

impl Failing {
    /// Takes in what a round asked. A line for each field at most, and only where something has changed.
    pub(crate) fn heed(&mut self, key: &SemaphoreKey, calls: &[FunctionCall]) {
        for turned in self.changes(calls) {
            match turned {
                Turned::Bad(FunctionCall { field, name, group, .. }, error) => {
                    tracing::warn!(%key, field, name, group, error, "a function of the policy fails");
                }
                Turned::Good(field) => tracing::info!(%key, field, "functions of the policy work again"),
            }
        }
    }

    fn changes<'a>(&mut self, calls: &'a [FunctionCall]) -> Vec<Turned<'a>> {
        let mut turned = Vec::new();
        for call in calls {
            let failing = self.0.entry(call.field).or_default();
            let about = (call.client.clone(), call.group.clone());
            match &call.failure {
                Some(error) => {
                    if failing.is_empty() {
                        turned.push(Turned::Bad(call, error));
                    }
                    failing.insert(about);
                }
                None => {
                    if failing.remove(&about) && failing.is_empty() {
                        turned.push(Turned::Good(call.field));
                    }
                }
            }
        }
        turned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(group: &str, failure: Option<&str>) -> FunctionCall {
        FunctionCall {
            field: "group_limit_function",
            name: "ceiling".to_owned(),
            client: None,
            group: Some(group.to_owned()),
            failure: failure.map(str::to_owned),
        }
    }

    #[test]
    fn what_fails_is_told_when_it_begins_and_when_all_of_it_works_again() {
        let mut failing = Failing::default();
        let [fine, bad, other] = [call("a", None), call("b", Some("x")), call("c", Some("y"))];
        assert_eq!(failing.changes(std::slice::from_ref(&fine)), []);
        assert_eq!(failing.changes(&[fine.clone(), bad.clone(), other.clone()]), [Turned::Bad(&bad, "x")]);
        assert_eq!(failing.changes(&[bad, other]), [], "it goes on");
        assert_eq!(failing.changes(&[call("b", None), fine]), [], "one still fails");
        assert_eq!(failing.changes(&[call("c", None)]), [Turned::Good("group_limit_function")]);
        assert_eq!(failing.changes(&[call("b", Some("z"))]).len(), 1, "it begins again");
    }
}
