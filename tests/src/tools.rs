//! Programs that only some tests need. `make check` installs them before it runs these tests, which `make test` leaves
//! out (`#[ignore]`); a test that runs without its program fails.

use std::path::PathBuf;

/// Where daemons are, which the PATH of a login need not name.
const MORE_FOLDERS: [&str; 2] = ["/usr/local/sbin", "/usr/sbin"];

/// Where the program is.
///
/// # Panics
///
/// When it is not installed.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    find(name).unwrap_or_else(|| panic!("{}", missing(name)))
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(MORE_FOLDERS.map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn missing(name: &str) -> String {
    format!(
        "this test needs {name}, which is not installed: `make test-all` installs it, then runs all tests"
    )
}

#[cfg(test)]
mod tests {
    use super::{find, missing};

    #[test]
    fn a_missing_program_is_a_failure_that_says_what_to_run() {
        assert!(find("sh").is_some_and(|file| file.is_file()));
        assert_eq!(find("no-such-program"), None);
        assert!(
            missing("no-such-program").contains("no-such-program, which is not installed: `make test-all`")
        );
    }
}
