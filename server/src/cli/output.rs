//! Standard output: pages of lines and tables for people, and JSON for programs.
//!
//! Keys, groups, clients, reasons and functions are texts of others. A [`Page`] is the only thing that is printed for
//! people, and everything that enters one becomes printable: no command can forget it.

use std::fmt;
use std::io::{ErrorKind, IsTerminal as _, Write as _};

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use queue_wire::printable;

use super::CliError;

const CLEAR_SCREEN: &str = "\x1b[2J\x1b[H";

/// What a command tells people.
#[derive(Debug, Default)]
pub(super) struct Page(String);

impl Page {
    /// One line.
    pub(super) fn line(&mut self, line: &str) -> &mut Self {
        self.0.push_str(&printable(line));
        self.0.push('\n');
        self
    }

    /// All rows of a table.
    pub(super) fn table(&mut self, table: &Rows) -> &mut Self {
        self.0.push_str(&format!("{table}\n"));
        self
    }
}

/// Writes a page.
pub(super) fn print(page: &Page) -> Result<(), CliError> {
    write(&page.0)
}

/// Writes a page of one line.
pub(super) fn print_line(line: &str) -> Result<(), CliError> {
    print(Page::default().line(line))
}

/// Writes a value as indented JSON.
pub(super) fn print_json(value: &impl serde::Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| CliError::Output(error.into()))?;
    write(&format!("{text}\n"))
}

/// Clears the screen, if standard output is one.
pub(super) fn clear_screen() -> Result<(), CliError> {
    if std::io::stdout().is_terminal() { write(CLEAR_SCREEN) } else { Ok(()) }
}

/// A reader that has gone (`| head`) is no failure.
fn write(text: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(CliError::Output(error)),
        _ => Ok(()),
    }
}

/// A table without frames, which can be cut and grepped.
#[derive(Debug)]
pub(crate) struct Rows(Table);

/// A table; columns whose title starts with `>` are aligned to the right.
pub(crate) fn table(titles: &[&str]) -> Rows {
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
    Rows(table)
}

impl Rows {
    /// Adds a row.
    pub(crate) fn add_row<const COLUMNS: usize>(&mut self, cells: [String; COLUMNS]) {
        self.0.add_row(cells.map(|cell| printable_cell(&cell)));
    }

    /// Whether it has no rows.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Columns are parted by two spaces: a text has none that would look like the next column.
fn printable_cell(text: &str) -> String {
    let shown = printable(text);
    let inner = shown.trim_matches(' ');
    if inner.len() == shown.len() && !shown.contains("  ") {
        return shown.into_owned();
    }
    shown.replace(' ', "\\u{20}")
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

#[cfg(test)]
mod tests {
    use super::{Page, printable_cell, table};

    /// O-06
    #[test]
    fn a_text_can_forge_neither_a_line_nor_a_row_nor_a_column() {
        let mut rows = table(&["KEY", ">LIMIT"]);
        rows.add_row(["a\nb  7\u{1b}[2J".to_owned(), "1".to_owned()]);
        let mut page = Page::default();
        page.line("no\nline").table(&rows);
        let lines: Vec<&str> = page.0.lines().map(str::trim_end).collect();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert_eq!(lines[0], r"no\nline");
        assert!(lines[2].starts_with(r"a\nb\u{20}\u{20}7\u{1b}[2J  "), "{lines:?}");
        assert_eq!(printable_cell("nightly jobs"), "nightly jobs");
        assert_eq!(printable_cell(" x"), r"\u{20}x");
    }
}
