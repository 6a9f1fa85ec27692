//! The smallest parts of a script: words, durations and rounds.

use pgsemaphore_allocation::Micros;

/// Reads a line's words one after another.
#[derive(Debug, Clone)]
pub(super) struct Words<'a> {
    text: &'a str,
    left: std::iter::Peekable<std::str::SplitWhitespace<'a>>,
}

/// What is wrong with a line.
pub(super) type Reading<T> = Result<T, String>;

impl<'a> Words<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, left: text.split_whitespace().peekable() }
    }

    pub(super) fn next(&mut self) -> Reading<&'a str> {
        self.left.next().ok_or_else(|| format!("`{}` ends too early", self.text.trim()))
    }

    /// Takes the word if it is the next one.
    pub(super) fn take(&mut self, word: &str) -> bool {
        self.left.next_if_eq(&word).is_some()
    }

    pub(super) fn expect(&mut self, word: &str) -> Reading<()> {
        let found = self.next()?;
        if found == word { Ok(()) } else { Err(format!("`{word}` expected, `{found}` found")) }
    }

    pub(super) fn number(&mut self) -> Reading<i64> {
        number(self.next()?)
    }

    pub(super) fn duration(&mut self) -> Reading<Micros> {
        duration(self.next()?)
    }

    pub(super) fn end(mut self) -> Reading<()> {
        match self.left.next() {
            None => Ok(()),
            Some(word) => Err(format!("`{word}` is more than a line like `{}` says", self.text.trim())),
        }
    }
}

pub(super) fn number(word: &str) -> Reading<i64> {
    word.parse().map_err(|_| format!("`{word}` is not a number"))
}

/// `5ms`, `2s`, `30min`, `1h`.
pub(super) fn duration(word: &str) -> Reading<Micros> {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &word[digits.len()..] {
        "ms" => 1_000,
        "s" => 1_000_000,
        "min" => 60_000_000,
        "h" => 3_600_000_000,
        _ => return Err(format!("`{word}` is not a duration such as 5ms, 2s, 30min or 1h")),
    };
    Ok(number(digits)? * unit)
}

/// `clock`, `r1`, `r1 + 1`, `clock + 1h`, `nothing`: a round and what is added to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RoundName {
    pub(super) base: String,
    pub(super) plus: i64,
}

impl RoundName {
    pub(super) fn read(words: &mut Words) -> Reading<Self> {
        let base = words.next()?.to_owned();
        let plus = match words.take("+") {
            false => 0,
            true => {
                let word = words.next()?;
                number(word).or_else(|_| duration(word))?
            }
        };
        Ok(Self { base, plus })
    }
}
