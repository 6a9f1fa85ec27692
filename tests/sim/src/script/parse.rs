//! From the text of a script to its steps.

use super::Mismatch;
use super::setting::Setting;
use super::words::{Reading, RoundName, Words};
use pgsemaphore_allocation::{Micros, Permits, Work};

/// One line of a script, or several that belong together.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) is: Is,
}

#[derive(Debug, Clone)]
pub(super) enum Is {
    Set(Setting),
    NoPolicy,
    Serving(Option<Micros>),
    Copy,
    Restore,
    Damaged { round: u64 },
    Begin { at: Micros, work: Work, round: Option<String> },
    Says(String, Vec<Saying>),
    Hears { client: String, lost: bool, phrases: Vec<String> },
    Usage { key: Used, groups: Vec<(String, Used)> },
    State { client: String, same: bool },
    Blocked(Vec<String>),
    Audit(Vec<String>),
    Order(Vec<String>),
    Due(Option<Micros>),
    Numbered(String, RoundName),
}

/// Permits counted: all together, or grants and leases.
#[derive(Debug, Clone, Copy)]
pub(super) enum Used {
    All(Permits),
    Each(Permits, Permits),
}

/// One part of what a client says.
#[derive(Debug, Clone)]
pub(super) enum Saying {
    Nothing,
    Wants { count: Permits, group: String, age: Micros },
    TakesLeases,
    Generation(u64),
    Process(String),
    Resumes,
    All,
    Syncs,
    Report(Report),
    Seen(RoundName),
    Waited(Micros),
}

/// Counts of a grant or a lease; without `claimed` and `drawn` its name tells which.
#[derive(Debug, Clone)]
pub(super) struct Report {
    pub(super) id: String,
    pub(super) lease: Option<bool>,
    pub(super) used: Permits,
    pub(super) released: Permits,
    pub(super) stopped: bool,
}

pub(super) fn script(text: &str) -> Result<Vec<Line>, Mismatch> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (at, text) in text.lines().enumerate() {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let (number, mut whole) = open.take().unwrap_or((at + 1, String::new()));
        whole.push_str(text);
        if text.ends_with(';') {
            open = Some((number, whole + " "));
            continue;
        }
        let is = line(&whole).map_err(|detail| Mismatch { line: number, detail })?;
        lines.push(Line { number, is });
    }
    match open {
        None => Ok(lines),
        Some((line, _)) => Err(Mismatch { line, detail: "the script ends after `;`".to_owned() }),
    }
}

fn line(text: &str) -> Reading<Is> {
    let mut words = Words::new(text);
    let first = words.next()?;
    if let Some(setting) = Setting::read(first, &mut words)? {
        words.end()?;
        return Ok(Is::Set(setting));
    }
    let is = match first {
        "no" => {
            words.expect("policy")?;
            Is::NoPolicy
        }
        "serving" => {
            words.expect("since")?;
            Is::Serving(if words.take("never") { None } else { Some(words.duration()?) })
        }
        "damaged" => {
            words.expect("round")?;
            Is::Damaged { round: words.number()?.try_into().map_err(|_| "a round is positive")? }
        }
        "copy" => Is::Copy,
        "restore" => Is::Restore,
        "at" => begin(&mut words)?,
        "usage" => return usage(rest(text, first)),
        "blocked" => return Ok(Is::Blocked(phrases(rest(text, first)))),
        "audit" => return Ok(Is::Audit(phrases(rest(text, first)))),
        "order" => {
            let names = rest(text, first).split(',').map(|name| name.trim().to_owned());
            return Ok(Is::Order(names.collect()));
        }
        "due" if words.take("never") => Is::Due(None),
        "due" => Is::Due(Some(words.duration()?)),
        "state" => state(&mut words)?,
        name => return spoken(name, words, text),
    };
    words.end()?;
    Ok(is)
}

fn rest<'a>(text: &'a str, word: &str) -> &'a str {
    text[word.len()..].trim_start()
}

fn phrases(text: &str) -> Vec<String> {
    let normal = |phrase: &str| phrase.split_whitespace().collect::<Vec<_>>().join(" ");
    text.split(';').map(normal).filter(|phrase| !phrase.is_empty()).collect()
}

fn state(words: &mut Words) -> Reading<Is> {
    let client = words.next()?.to_owned();
    let same = !words.take("differs");
    if same {
        words.expect("as")?;
        words.expect("before")?;
    }
    Ok(Is::State { client, same })
}

fn begin(words: &mut Words) -> Reading<Is> {
    let at = words.duration()?;
    let (work, round) = match words.next()? {
        "round" => (Work::Round, words.next().ok().map(str::to_owned)),
        "sync" => (Work::Sync, None),
        "timer" => (Work::Timer, None),
        other => return Err(format!("`{other}` is none of round, sync, timer")),
    };
    Ok(Is::Begin { at, work, round })
}

fn usage(text: &str) -> Reading<Is> {
    let (key, groups) = text.split_once(';').unwrap_or((text, ""));
    let groups = phrases(groups);
    let group = |phrase: &String| {
        let mut words = Words::new(phrase);
        Ok((words.next()?.to_owned(), used(words)?))
    };
    Ok(Is::Usage { key: used(Words::new(key))?, groups: groups.iter().map(group).collect::<Reading<_>>()? })
}

/// `5`, or `3 + 2`: grants and leases.
fn used(mut words: Words) -> Reading<Used> {
    let all = words.number()?;
    let used = if words.take("+") { Used::Each(all, words.number()?) } else { Used::All(all) };
    words.end()?;
    Ok(used)
}

/// `A says ...`, `A hears ...`, `A loses ...`, `r1 is ...`.
fn spoken(name: &str, mut words: Words, text: &str) -> Reading<Is> {
    let verb = words.next()?;
    let said = rest(rest(text, name), verb);
    match verb {
        "says" => {
            let sayings = phrases(said).iter().map(|phrase| saying(phrase)).collect::<Reading<_>>()?;
            Ok(Is::Says(name.to_owned(), sayings))
        }
        "hears" | "loses" => {
            Ok(Is::Hears { client: name.to_owned(), lost: verb == "loses", phrases: phrases(said) })
        }
        "is" => {
            let round = RoundName::read(&mut words)?;
            words.end()?;
            Ok(Is::Numbered(name.to_owned(), round))
        }
        _ => Err(format!("`{name} {verb}` is no line of a script")),
    }
}

fn saying(phrase: &str) -> Reading<Saying> {
    let phrase = phrase.replace(',', " ");
    let mut words = Words::new(&phrase);
    let first = words.next()?;
    let saying = match first {
        "nothing" => Saying::Nothing,
        "wants" => {
            let count = words.number()?;
            let group = if words.take("of") { words.next()?.to_owned() } else { String::new() };
            let age = if words.take("for") { words.duration()? } else { 0 };
            Saying::Wants { count, group, age }
        }
        "seen" => Saying::Seen(RoundName::read(&mut words)?),
        "waited" => Saying::Waited(words.duration()?),
        "takes" => {
            words.expect("leases")?;
            Saying::TakesLeases
        }
        "generation" => {
            Saying::Generation(words.number()?.try_into().map_err(|_| "a generation is positive")?)
        }
        "as" => Saying::Process(words.next()?.to_owned()),
        "resumes" => Saying::Resumes,
        "all" => Saying::All,
        "syncs" => Saying::Syncs,
        id => Saying::Report(report(id, &mut words)?),
    };
    words.end()?;
    Ok(saying)
}

fn report(id: &str, words: &mut Words) -> Reading<Report> {
    let (lease, used) = if words.take("claimed") {
        (Some(false), words.number()?)
    } else if words.take("drawn") {
        (Some(true), words.number()?)
    } else {
        (None, 0)
    };
    let released = if words.take("released") { words.number()? } else { 0 };
    let stopped = words.take("stopped");
    let lease = if stopped { Some(true) } else { lease };
    Ok(Report { id: id.to_owned(), lease, used, released, stopped })
}
