//! Questions to the person at the terminal.

use std::io::{IsTerminal as _, Write as _};

use super::CliError;

/// Whether the person at the terminal answers yes; without a terminal nobody does.
pub(super) fn confirmed(question: &str) -> Result<bool, CliError> {
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    let mut terminal = std::io::stderr();
    let question = format!("{question} Type yes to go on: ");
    terminal.write_all(question.as_bytes()).and_then(|()| terminal.flush()).map_err(CliError::Output)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(CliError::Runtime)?;
    Ok(answer.trim() == "yes")
}
