//! Fields of events and spans as text for people: whatever callers put into them stays visible and on its line.
//!
//! This is part of the format of all text logs, so no place that logs can forget it.

use queue_wire::printable;
use std::fmt;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};

/// As [`DefaultFields`], printable.
#[derive(Debug, Default)]
pub(super) struct PrintableFields(DefaultFields);

impl<'writer> FormatFields<'writer> for PrintableFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut text = String::new();
        self.0.format_fields(Writer::new(&mut text), fields)?;
        writer.write_str(&printable(&text))
    }
}
