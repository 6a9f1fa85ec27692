//! `docs/field-cases.md` names each case, and tests that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const DOCUMENT: &str = include_str!("../../../docs/field-cases.md");
const CASES: usize = 43;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The text below each heading `## NN. ...`, by number.
fn cases() -> BTreeMap<usize, &'static str> {
    let sections = DOCUMENT.split("\n## ").skip(1);
    let numbered = |section: &'static str| {
        let number = section.split('.').next().and_then(|number| number.parse().ok());
        (number.unwrap_or_else(|| panic!("no number: {section:.40}")), section)
    };
    sections.map(numbered).collect()
}

/// What stands between backticks and is a place in this repository.
fn places(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split('`').skip(1).step_by(2);
    code.filter(|code| code.contains("::") || code.starts_with("tests/"))
}

#[test]
fn every_case_is_there() {
    let numbers: Vec<usize> = cases().into_keys().collect();
    assert_eq!(numbers, (1..=CASES).collect::<Vec<_>>());
    for (number, text) in cases() {
        assert!(places(text).next().is_some(), "nothing shows case {number}");
    }
}

#[test]
fn every_test_that_is_named_exists() {
    let missing: Vec<&str> = places(DOCUMENT).filter(|place| !exists(place)).collect();
    assert_eq!(missing, [] as [&str; 0]);
}

fn exists(place: &str) -> bool {
    let (file, test) = place.split_once("::").map_or((place, None), |(file, test)| (file, Some(test)));
    match (std::fs::read_to_string(root().join(file)), test) {
        (Ok(source), Some(test)) => {
            ["fn", "def"].iter().any(|word| source.contains(&format!("{word} {test}(")))
        }
        (read, None) => read.is_ok() || root().join(file).is_dir(),
        (Err(_), Some(_)) => false,
    }
}

/// Each test that says `Case NN:` is named where that case is.
#[test]
fn every_test_of_a_case_is_named() {
    let folder = root().join("tests/it/field_cases");
    let mut tests = BTreeSet::new();
    for file in std::fs::read_dir(&folder).expect("the folder") {
        let path = file.expect("a file").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let source = std::fs::read_to_string(&path).expect("a source");
        for part in source.split("/// Case ").skip(1) {
            let number: Option<usize> = part.split(':').next().and_then(|number| number.parse().ok());
            let test = part.split("fn ").nth(1).and_then(|rest| rest.split('(').next());
            if let (Some(number), Some(test)) = (number, test) {
                tests.insert((number, format!("tests/it/field_cases/{name}::{test}")));
            }
        }
    }
    assert!(tests.len() > 10, "{tests:?}");
    let cases = cases();
    let unnamed: Vec<_> = tests
        .into_iter()
        .filter(|(number, test)| !places(cases[number]).any(|place| place == test))
        .collect();
    assert_eq!(unnamed, [] as [(usize, String); 0]);
}
