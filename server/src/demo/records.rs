//! What a worker writes down about each item it runs: one line when it starts, one when it stops, in a file of its own.
//!
//! Times are of CLOCK_MONOTONIC, one clock for all processes of a machine. A start is written while the permit is held
//! already and a stop while it is held still: what overlaps here overlapped in permits.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// In this order: at the same time a stop sorts before a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Event {
    Stop,
    Start,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Nanoseconds of the machine's monotonic clock.
    pub(super) at: u64,
    pub(super) event: Event,
    pub(super) key: String,
    pub(super) group: String,
    pub(super) client: String,
    pub(super) item: i64,
    /// Permits were short then.
    pub(super) in_rush: bool,
}

/// Now, by the machine's monotonic clock, in nanoseconds.
pub(super) fn now() -> std::io::Result<u64> {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    let nanos =
        time.tv_sec().checked_mul(1_000_000_000).and_then(|seconds| seconds.checked_add(time.tv_nsec()));
    nanos
        .and_then(|nanos| u64::try_from(nanos).ok())
        .ok_or_else(|| std::io::Error::other("the clock is out of range"))
}

/// Appends one line, in one write.
pub(super) fn append(mut file: &File, record: &Record) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    file.write_all(&line)
}

pub(super) fn read(path: &Path) -> std::io::Result<Vec<Record>> {
    let lines = BufReader::new(File::open(path)?).lines();
    lines.map(|line| Ok(serde_json::from_str(&line?)?)).collect()
}
