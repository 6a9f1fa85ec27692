//! Logs on standard error, as text or as JSON, a line each.

use super::Sink;
use super::printable::PrintableFields;
use clap::{Args, ValueEnum};
use std::io::IsTerminal as _;
use tracing_subscriber::{EnvFilter, Layer, fmt};

/// What is logged, and how.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// What is logged, like debug or pgsemaphore=debug,warn [else: RUST_LOG; default: info of `serve`, else warn]
    #[arg(long, global = true, env = "PGSEMAPHORE_LOG", value_name = "FILTER", value_parser = filter)]
    log: Option<String>,

    /// How it is logged: one line each, for people or for programs
    #[arg(
        long,
        global = true,
        env = "PGSEMAPHORE_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text"
    )]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl LogArgs {
    /// Writes to standard error.
    pub(super) fn layer(&self, serves: bool) -> Sink {
        let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
        let filter = EnvFilter::new(self.filter(serves));
        match self.log_format {
            LogFormat::Text => lines.fmt_fields(PrintableFields::default()).with_filter(filter).boxed(),
            LogFormat::Json => lines.json().flatten_event(true).with_filter(filter).boxed(),
        }
    }

    /// Directives of what is logged. The pool would say of each connection that it could not open what `trouble.rs` says
    /// once a second.
    pub(super) fn filter(&self, serves: bool) -> String {
        let default = if serves { "info" } else { "warn" };
        let said =
            self.log.clone().or_else(|| std::env::var("RUST_LOG").ok().filter(|said| !said.is_empty()));
        said.unwrap_or_else(|| format!("{default},sqlx=error,sqlx_core::pool=off"))
    }
}

fn filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}
