//! What happened, line by line, for people. Nothing is written unless somebody will read it.

/// The lines so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace {
    lines: Option<Vec<String>>,
    step: u64,
}

impl Trace {
    pub(crate) fn new(wanted: bool) -> Self {
        Self { lines: wanted.then(Vec::new), step: 0 }
    }

    pub(crate) fn at(&mut self, step: u64) {
        self.step = step;
    }

    pub(crate) fn say(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>6}  {}", self.step, line()));
        }
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
