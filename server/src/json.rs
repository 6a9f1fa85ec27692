//! A strict look at JSON before it becomes a type: duplicate members, numbers and texts that no field can hold.
//!
//! Authoritative for what serde leaves open. [`scan`] builds nothing; it walks the text once and keeps the first fault.

use crate::request::Invalid;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt::{self, Write};

/// The top-level `v` of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// An integer.
    Integer(i128),
    /// Something else.
    Other,
}

/// What a kind of body may not hold, beyond what none may.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Top-level lists whose elements must not be arrays (serde would read an object's fields from them by position).
    pub(crate) lists_of_objects: &'static [&'static str],
    /// Whether numbers with a fraction, an exponent or a minus before zero are refused.
    pub(crate) integers_only: bool,
    /// The top-level member in which they are allowed all the same.
    pub(crate) decimal: &'static str,
    /// Whether NUL is refused in every text.
    pub(crate) no_nul: bool,
}

/// What a walk over a body found.
#[derive(Debug)]
pub(crate) struct Scan {
    /// The first fault.
    pub(crate) fault: Option<Invalid>,
    /// The top-level `v`, if it came before a fault that ended the walk.
    pub(crate) version: Option<Version>,
    rules: Rules,
    path: Vec<Step>,
}

#[derive(Debug, Clone)]
enum Step {
    Member(String),
    Element(usize),
}

/// Walks over a whole body, which must be an object.
pub(crate) fn scan(body: &[u8], rules: Rules) -> Scan {
    let mut scan = Scan { fault: None, version: None, rules, path: Vec::new() };
    let mut from = serde_json::Deserializer::from_slice(body);
    let walked = Walk(&mut scan).deserialize(&mut from).and_then(|()| from.end());
    if let Err(error) = walked {
        let place = scan.pointer();
        scan.fault.get_or_insert_with(|| fault(&place, &error));
    } else if body.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        scan.fault = Some(Invalid::field("", "the body must be a JSON object"));
    }
    scan
}

/// A JSON Pointer of the place where serde stopped.
pub(crate) fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    path.iter().fold(String::new(), |mut pointer, segment| {
        match segment {
            Segment::Seq { index } => push(&mut pointer, &index.to_string()),
            Segment::Map { key } => push(&mut pointer, key),
            Segment::Enum { variant } => push(&mut pointer, variant),
            Segment::Unknown => {}
        }
        pointer
    })
}

/// What to tell about an error of serde at `place`.
pub(crate) fn fault(place: &str, error: &serde_json::Error) -> Invalid {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    let what = text.strip_suffix(&position).unwrap_or(&text);
    if error.is_data() {
        return match what.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
            Some(name) => Invalid::field(child(place, name), format!("{name} is required")),
            None => Invalid::field(place, describe(place, what)),
        };
    }
    match what {
        "number out of range" => Invalid::field(place, describe(place, "the number is out of range")),
        "lone leading surrogate in hex escape" | "unexpected end of hex escape" => Invalid::field(
            place,
            describe(place, "the text has half of a surrogate pair, which is no character"),
        ),
        _ => Invalid::Json(format!("the body is not JSON: {text}")),
    }
}

fn describe(place: &str, what: &str) -> String {
    match place.rsplit('/').next() {
        Some(name) if name.bytes().any(|byte| !byte.is_ascii_digit()) => format!("{name}: {what}"),
        _ => what.to_owned(),
    }
}

fn child(parent: &str, name: &str) -> String {
    let mut pointer = parent.to_owned();
    push(&mut pointer, name);
    pointer
}

fn push(pointer: &mut String, name: &str) {
    pointer.push('/');
    pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
}

impl Scan {
    fn pointer(&self) -> String {
        self.path.iter().fold(String::new(), |mut pointer, step| {
            match step {
                Step::Member(name) => push(&mut pointer, name),
                Step::Element(index) => write!(pointer, "/{index}").unwrap_or_default(),
            }
            pointer
        })
    }

    fn found(&mut self, detail: &str) {
        if self.fault.is_none() {
            let place = self.pointer();
            self.fault = Some(Invalid::field(&place, describe(&place, detail)));
        }
    }

    fn value(&mut self, version: Version) {
        if let [Step::Member(name)] = self.path.as_slice()
            && name == "v"
        {
            self.version.get_or_insert(version);
        }
    }
}

struct Walk<'scan>(&'scan mut Scan);

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.0.value(Version::Other);
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.0.value(Version::Other);
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.0.value(Version::Integer(value.into()));
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.0.value(Version::Integer(value.into()));
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.0.value(Version::Other);
        let decimal = matches!(self.0.path.as_slice(), [Step::Member(name)] if name == self.0.rules.decimal);
        if self.0.rules.integers_only && !decimal {
            self.0.found("must be an integer without fraction or exponent");
        }
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.0.value(Version::Other);
        if self.0.rules.no_nul && text.contains('\0') {
            self.0.found("must not contain NUL");
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let scan = self.0;
        scan.value(Version::Other);
        if let [Step::Member(list), Step::Element(_)] = scan.path.as_slice()
            && scan.rules.lists_of_objects.contains(&list.as_str())
        {
            scan.found("must be an object");
        }
        scan.path.push(Step::Element(0));
        while list.next_element_seed(Walk(scan))?.is_some() {
            if let Some(Step::Element(index)) = scan.path.last_mut() {
                *index += 1;
            }
        }
        scan.path.pop();
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let scan = self.0;
        scan.value(Version::Other);
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            scan.path.push(Step::Member(name.clone()));
            if scan.rules.no_nul && name.contains('\0') {
                scan.found("a member's name must not contain NUL");
            }
            if !names.insert(name) {
                scan.found("is there twice");
            }
            map.next_value_seed(Walk(scan))?;
            scan.path.pop();
        }
        Ok(())
    }
}
