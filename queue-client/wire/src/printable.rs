use std::borrow::Cow;

/// Text of somebody else, as a person may read it in a line of a log, a table or an error: on one line, and every
/// character visible.
///
/// Keys, names, reasons and error texts come from callers. With a newline in them they could forge a line, with ESC clear
/// a screen, with U+202E turn the rest of the line around. So control characters, characters without a shape, and blanks
/// other than the space are written as escapes of Rust. A backslash stays as it is: this is for eyes, programs read JSON.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_printable) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_printable(c) {
            shown.push(c);
        } else {
            shown.extend(c.escape_default());
        }
    }
    Cow::Owned(shown)
}

fn is_printable(c: char) -> bool {
    c == ' ' || !(c.is_control() || c.is_whitespace() || is_shapeless(c))
}

/// Characters of Unicode's category Cf that are not seen (among them all that change the direction of text), and letters
/// that look like a blank.
fn is_shapeless(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::printable;
    use std::borrow::Cow;

    /// O-06
    #[test]
    fn what_could_forge_a_line_is_escaped() {
        for (text, shown) in [
            ("a\nb\r\t", r"a\nb\r\t"),
            ("\u{1b}[2J\u{7}\u{8}\u{7f}\u{0}", r"\u{1b}[2J\u{7}\u{8}\u{7f}\u{0}"),
            ("\u{85}\u{9b}2J", r"\u{85}\u{9b}2J"),
            ("\u{202e}evil\u{2066}\u{61c}", r"\u{202e}evil\u{2066}\u{61c}"),
            ("\u{2028}\u{2029}\u{a0}\u{3000}", r"\u{2028}\u{2029}\u{a0}\u{3000}"),
            ("a\u{200b}\u{feff}\u{e0041}", r"a\u{200b}\u{feff}\u{e0041}"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    #[test]
    fn what_people_write_stays_as_it_is() {
        for text in ["", "account:42", "it's \"quoted\" \\n", "Zürich 東京 नमस्ते עברית", "e\u{301} 👍"]
        {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }
}
