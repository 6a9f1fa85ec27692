//! Which start of the process this is, for all keys together.
//!
//! Authoritative for the generation that calls are made under, and for whether a process that a holder shut out may go
//! on: once, under the generation that the holder named, and only before any call was answered 200. After that it may
//! hold something, and a higher generation would declare its own work dead.

use queue_wire::SAFE_INTEGER_MAX;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Generation(Mutex<Standing>);

#[derive(Debug)]
struct Standing {
    current: u64,
    admitted: bool,
    raised: bool,
}

impl Generation {
    pub(crate) fn new(first: u64) -> Self {
        Self(Mutex::new(Standing { current: first, admitted: false, raised: false }))
    }

    /// What calls say from now on.
    pub(crate) fn current(&self) -> u64 {
        self.standing().current
    }

    /// A call that was made under `of` was answered 200. False if the generation has risen since: then the answer must
    /// not be used, since what it brought is settled or retired.
    pub(crate) fn admit(&self, of: u64) -> bool {
        let mut standing = self.standing();
        let current = of == standing.current;
        standing.admitted |= current;
        current
    }

    /// A call that was made under `of` was answered that `named` is the lowest generation admitted. True if it may be
    /// made again, under the current generation.
    pub(crate) fn shut_out(&self, of: u64, named: Option<u64>) -> bool {
        let mut standing = self.standing();
        if of < standing.current {
            return true;
        }
        let Some(named) = named.filter(|named| *named > of && *named <= SAFE_INTEGER_MAX) else {
            return false;
        };
        if standing.admitted || standing.raised {
            return false;
        }
        (standing.current, standing.raised) = (named, true);
        true
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Generation;

    #[test]
    fn before_any_200_the_generation_that_a_holder_names_is_taken_once() {
        let generation = Generation::new(5);
        assert!(generation.shut_out(5, Some(9)));
        assert!(generation.shut_out(5, Some(12)), "a call of before is made again");
        assert_eq!(generation.current(), 9);
        assert!(!generation.admit(5), "an answer of before says nothing");
        assert!(!generation.shut_out(9, Some(12)), "once");
        assert!(generation.admit(9));
    }

    #[test]
    fn after_a_200_a_process_that_is_shut_out_stays_out() {
        let generation = Generation::new(5);
        assert!(generation.admit(5));
        assert!(!generation.shut_out(5, Some(6)));
        assert_eq!(generation.current(), 5);
    }

    #[test]
    fn a_refusal_that_names_no_higher_generation_is_final() {
        let generation = Generation::new(5);
        assert!(!generation.shut_out(5, None) && !generation.shut_out(5, Some(5)));
    }
}
