/// Keys that a token is for, by patterns as in policies: an exact key, or a prefix that ends in `*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keys(Vec<String>);

impl Keys {
    /// Every key.
    pub fn all() -> Self {
        Self(vec!["*".to_owned()])
    }

    /// The keys that one of these patterns matches.
    pub fn matching(patterns: Vec<String>) -> Self {
        Self(patterns)
    }

    pub(super) fn extend(&mut self, more: &Self) {
        self.0.extend_from_slice(&more.0);
    }

    /// Whether `key` is one of them.
    pub fn contain(&self, key: &str) -> bool {
        self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => key.starts_with(prefix),
            None => key == pattern,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Keys;

    #[test]
    fn patterns_are_exact_or_prefixes() {
        let keys = Keys::matching(vec!["a:*".to_owned(), "b".to_owned()]);
        for key in ["a:", "a:1", "b"] {
            assert!(keys.contain(key), "{key}");
        }
        for key in ["a", "b:", "ba", ""] {
            assert!(!keys.contain(key), "{key}");
        }
        assert!(Keys::all().contain("") && Keys::all().contain("x"));
    }
}
