//! Standard output, and tables on it.

use std::io::{ErrorKind, Write as _};

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

use super::CliError;

/// Writes to standard output. A reader that has gone (`| head`) is no failure.
pub(super) fn print(text: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(CliError::Output(error)),
        _ => Ok(()),
    }
}

/// Writes a value as indented JSON.
pub(super) fn print_json(value: &impl serde::Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| CliError::Output(error.into()))?;
    print(&format!("{text}\n"))
}

/// A table without frames, which can be cut and grepped; columns whose title starts with `>` are aligned to the right.
pub(crate) fn table(titles: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(titles.iter().map(|title| Cell::new(title.trim_start_matches('>'))));
    for (index, title) in titles.iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, 2));
            if title.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table
}

/// A value, or a dash where there is none.
pub(super) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// How a group is shown: the empty group has a name, too.
pub(super) fn group_name(group: &str) -> &str {
    if group.is_empty() { "(empty)" } else { group }
}

/// A duration of milliseconds, in the largest unit that fits.
pub(super) fn ago(millis: i64) -> String {
    const UNITS: [(i64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];
    let unit = UNITS.iter().find(|(size, _)| millis >= *size);
    unit.map_or_else(|| format!("{millis} ms"), |(size, name)| format!("{} {name}", millis / size))
}

/// A word as a shell reads it.
pub(super) fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::shell_word;

    #[test]
    fn a_shell_reads_what_was_meant() {
        assert_eq!(shell_word("account:42"), "account:42");
        assert_eq!(shell_word("account:*"), "'account:*'");
        assert_eq!(shell_word(""), "''");
        assert_eq!(shell_word("it's; $x"), r"'it'\''s; $x'");
    }
}
