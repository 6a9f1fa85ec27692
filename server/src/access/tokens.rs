//! Tokens as they are written, one a line, and as they are compared.

use super::{Keys, Rights, Scope};
use crate::live::Unusable;
use percent_encoding::percent_decode_str;
use sha2::{Digest as _, Sha256};
use std::path::{Path, PathBuf};
use subtle::ConstantTimeEq as _;

/// Where tokens of a scope are written.
#[derive(Debug, Clone)]
pub struct Source {
    /// What its tokens are for.
    pub scope: Scope,
    /// Where they are.
    pub text: Text,
}

/// Lines of tokens.
#[derive(Clone)]
pub enum Text {
    /// In a file, which is read again when it changes.
    File(PathBuf),
    /// Here, from a variable of the environment.
    Variable {
        /// Its name.
        name: &'static str,
        /// What it holds.
        value: String,
    },
}

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.place())
    }
}

impl Text {
    pub(super) fn place(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Variable { name, .. } => (*name).to_owned(),
        }
    }
}

impl Text {
    /// What it says; `contents` are those of the files that were not looked at yet.
    pub(super) fn bytes<'a>(&'a self, contents: &mut impl Iterator<Item = &'a Vec<u8>>) -> &'a [u8] {
        match self {
            Self::File(_) => contents.next().map(Vec::as_slice).unwrap_or_default(),
            Self::Variable { value, .. } => value.as_bytes(),
        }
    }
}

impl Source {
    pub(super) fn file(&self) -> Option<&Path> {
        match &self.text {
            Text::File(path) => Some(path),
            Text::Variable { .. } => None,
        }
    }
}

/// Hashes of tokens, with what each is for. A token that is there twice has the rights of both places.
#[derive(Debug, Default)]
pub(super) struct Tokens(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    hash: [u8; 32],
    scope: Scope,
    keys: Keys,
}

impl Tokens {
    /// The tokens of all sources; `contents` are those of the sources that are files, in their order.
    pub(super) fn read(sources: &[Source], contents: &[Vec<u8>]) -> Result<Self, Unusable> {
        let mut contents = contents.iter();
        let mut tokens = Self::default();
        for Source { scope, text } in sources {
            let read = lines(*scope, text.bytes(&mut contents));
            let read = read.map_err(|why| Unusable::new(text.place(), why))?;
            tokens.0.extend(read);
        }
        Ok(tokens)
    }

    /// Takes as long for a token that is nearly right as for any other.
    pub(super) fn rights(&self, token: &[u8]) -> Option<Rights> {
        let hash = Sha256::digest(token);
        let mut rights = None;
        for entry in &self.0 {
            if bool::from(entry.hash.as_slice().ct_eq(hash.as_slice())) {
                rights.get_or_insert_with(Rights::default).add(entry.scope, &entry.keys);
            }
        }
        rights
    }
}

/// The first token of a text that was read already.
pub(super) fn first(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut words = text.lines().filter_map(|line| line.split_ascii_whitespace().next());
    words.find(|word| !word.starts_with('#'))
}

/// One token a line; behind a client's, after blanks, the patterns of the keys that it is for. Empty lines, and those
/// that begin with `#`, say nothing.
fn lines(scope: Scope, bytes: &[u8]) -> Result<Vec<Entry>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "tokens must be ASCII".to_owned())?;
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line.split_ascii_whitespace();
        let Some(token) = words.next().filter(|word| !word.starts_with('#')) else { continue };
        entries.push(entry(scope, token, words).map_err(|why| format!("line {number}: {why}"))?);
    }
    if entries.is_empty() {
        return Err("there is no token: write one a line".to_owned());
    }
    Ok(entries)
}

fn entry<'a>(scope: Scope, token: &str, words: impl Iterator<Item = &'a str>) -> Result<Entry, String> {
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a token must be printable ASCII".to_owned());
    }
    let patterns = words.map(pattern).collect::<Result<Vec<_>, _>>()?;
    if !patterns.is_empty() && scope != Scope::Client {
        return Err("only tokens of clients can be restricted to keys: write one token a line".to_owned());
    }
    let keys = if patterns.is_empty() { Keys::all() } else { Keys::matching(patterns) };
    Ok(Entry { hash: Sha256::digest(token).into(), scope, keys })
}

/// A pattern, written as in a URL, so that it can have blanks.
fn pattern(word: &str) -> Result<String, String> {
    let decoded = percent_decode_str(word).decode_utf8().map_err(|_| "a pattern must be UTF-8".to_owned())?;
    Ok(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::{Source, Text, Tokens};
    use crate::access::{Keys, Scope};

    fn tokens(texts: &[(Scope, &str)]) -> Result<Tokens, String> {
        let source = |&(scope, value): &(Scope, &str)| {
            let text = Text::Variable { name: "PLACE", value: value.to_owned() };
            Source { scope, text }
        };
        let sources: Vec<_> = texts.iter().map(source).collect();
        Tokens::read(&sources, &[]).map_err(|error| error.to_string())
    }

    #[test]
    fn one_token_a_line_with_the_keys_it_is_for() {
        let text = "# the old one\nold\n\nnew\r\nlimited a:* b%20c  \n";
        let tokens = tokens(&[(Scope::Client, text), (Scope::Reader, "old\n")]).expect("tokens");
        let rights = |token: &str| tokens.rights(token.as_bytes());
        let old = rights("old").expect("valid");
        assert_eq!(
            (old.keys(Scope::Client), old.keys(Scope::Reader)),
            (Some(Keys::all()), Some(Keys::all()))
        );
        assert_eq!(old.keys(Scope::Admin), None);
        let new = rights("new").expect("valid");
        assert_eq!((new.keys(Scope::Client), new.keys(Scope::Reader)), (Some(Keys::all()), None));
        let keys = rights("limited").expect("valid").keys(Scope::Client).expect("a client");
        assert!(keys.contain("a:1") && keys.contain("b c") && !keys.contain("b"));
        for wrong in ["", "ol", "olds", "# the old one", "#", "limited a:*", "new\r"] {
            assert_eq!(rights(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn an_admin_may_do_everything() {
        let tokens = tokens(&[(Scope::Admin, "root")]).expect("tokens");
        let rights = tokens.rights(b"root").expect("valid");
        for scope in [Scope::Client, Scope::Reader, Scope::Admin] {
            assert_eq!(rights.keys(scope), Some(Keys::all()));
        }
    }

    #[test]
    fn what_is_no_token_is_named_without_telling_it() {
        for (scope, text, why) in [
            (Scope::Client, "", "no token"),
            (Scope::Client, " \n\n# secret\n", "no token"),
            (Scope::Client, "a\nsecr\u{e9}t", "line 2"),
            (Scope::Admin, "secret a:*", "restricted"),
            (Scope::Client, "secret %FF", "UTF-8"),
        ] {
            let error = tokens(&[(scope, text)]).expect_err("no tokens");
            assert!(error.starts_with("PLACE: ") && error.contains(why), "{error}");
            assert!(!error.contains("secr"), "{error}");
        }
    }
}
