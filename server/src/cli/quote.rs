//! Texts of others in what people paste: commands for a shell, and literals of SQL.

use std::fmt::Write as _;

use queue_wire::printable;

/// A word as a shell reads it. What can't be seen is written as octal bytes in `$'...'`, which bash, zsh, ksh and POSIX
/// (2024) read.
pub(super) fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,=".contains(c);
    if text.starts_with(|c: char| c.is_ascii_alphanumeric() || "-_./:@".contains(c))
        && text.chars().all(plain)
    {
        return text.to_owned();
    }
    if printable(text) == text {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    let mut word = String::from("$'");
    for byte in text.bytes() {
        match byte {
            b'\'' | b'\\' => word.extend(['\\', byte.into()]),
            b' '..=b'~' => word.push(byte.into()),
            _ => drop(write!(word, "\\{byte:03o}")),
        }
    }
    word + "'"
}

/// Words behind all options. One that begins with `-` would be read as an option.
pub(super) fn arguments(words: &[&str]) -> String {
    let separator = words.iter().any(|word| word.starts_with('-')).then(|| "--".to_owned());
    let words = separator.into_iter().chain(words.iter().map(|word| shell_word(word)));
    words.collect::<Vec<_>>().join(" ")
}

/// A text as a literal of SQL, whatever `standard_conforming_strings` is.
pub(super) fn sql_literal(text: &str) -> String {
    if !text.contains('\\') && printable(text) == text {
        return format!("'{}'", text.replace('\'', "''"));
    }
    let mut literal = String::from("E'");
    for c in text.chars() {
        match c {
            '\'' => literal.push_str("''"),
            '\\' => literal.push_str("\\\\"),
            c if printable(c.encode_utf8(&mut [0; 4])) == c.to_string() => literal.push(c),
            c => drop(write!(literal, "\\U{:08X}", u32::from(c))),
        }
    }
    literal + "'"
}

#[cfg(test)]
mod tests {
    use super::{arguments, shell_word, sql_literal};
    use std::process::Command;

    #[test]
    fn a_word_is_quoted_where_it_must_be() {
        assert_eq!(shell_word("account:42"), "account:42");
        assert_eq!(shell_word("account:*"), "'account:*'");
        assert_eq!(shell_word(""), "''");
        assert_eq!(shell_word("=ls"), "'=ls'");
        assert_eq!(shell_word("it's; $x"), r"'it'\''s; $x'");
        assert_eq!(shell_word("a\nb'c\\"), r"$'a\012b\'c\\'");
        assert_eq!(shell_word("\u{202e}7"), r"$'\342\200\2567'");
    }

    /// O-06: commands are there to be pasted.
    #[test]
    fn a_shell_reads_what_was_meant() {
        for text in [
            "",
            "-rf",
            "$(reboot)",
            "`reboot`",
            "a'b",
            "!!",
            "a\\nb",
            "~root",
            "#",
            "&& x",
            "a\nb",
            "\u{1b}[2J",
            "\u{202e}1",
            "é\u{200b}7",
            "*?[a]{b,c}",
            "=ls",
            "a\"b\u{7}",
        ] {
            let script = format!("printf %s {}", shell_word(text));
            let output = Command::new("bash").args(["-c", &script]).output().expect("bash runs");
            assert_eq!(String::from_utf8(output.stdout).as_deref(), Ok(text), "{script}");
        }
    }

    #[test]
    fn a_word_that_looks_like_an_option_stands_behind_all_options() {
        assert_eq!(arguments(&["k", "a b"]), "k 'a b'");
        assert_eq!(arguments(&["k", "--all"]), "-- k --all");
    }

    #[test]
    fn sql_reads_what_was_meant() {
        assert_eq!(sql_literal("it's"), "'it''s'");
        assert_eq!(sql_literal("a\\'\n\u{202e}"), r"E'a\\''\U0000000A\U0000202E'");
    }
}
