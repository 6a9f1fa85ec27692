//! SECURITY.md names the test that keeps each boundary: they all exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").to_owned()
}

/// Names of the tests in all Rust files under a folder: of each file that has tests, `FILE::TEST`.
fn tests_under(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() && entry.file_name().is_some_and(|name| name != "target") {
            tests_under(&entry, names);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            let module = entry.file_stem().and_then(|name| name.to_str()).expect("UTF-8");
            let source = std::fs::read_to_string(&entry).expect("a source");
            names.extend(tests_in(&source).map(|test| format!("{module}::{test}")));
        }
    }
}

/// The functions behind attributes that make a test of them.
fn tests_in(source: &str) -> impl Iterator<Item = &str> {
    let attributes = source.split("#[test]\n").skip(1).chain(source.split("#[tokio::test").skip(1));
    attributes.filter_map(|behind| behind.split_once("fn ")?.1.split(['(', '<']).next())
}

/// `module::test`
fn is_name(code: &str) -> bool {
    let is_identifier = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    code.split_once("::").is_some_and(|(module, test)| is_identifier(module) && is_identifier(test))
}

#[test]
fn every_boundary_is_kept_by_a_test_that_exists() {
    let mut tests = BTreeSet::new();
    for folder in ["server", "queue-client", "tests/it"] {
        tests_under(&root().join(folder), &mut tests);
    }
    let model = std::fs::read_to_string(root().join("SECURITY.md")).expect("the threat model");
    let named: BTreeSet<&str> = model.split('`').skip(1).step_by(2).filter(|code| is_name(code)).collect();
    assert!(named.len() >= 20, "the threat model names its tests as `module::test`: {named:?}");
    let missing: Vec<_> = named.into_iter().filter(|name| !tests.contains(*name)).collect();
    assert_eq!(missing, [""; 0], "SECURITY.md names tests that do not exist");
}
