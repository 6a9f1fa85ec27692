//! docs/psql.md, run: each statement through psql, each block of shell, in their order.

use pgsemaphore_tests::{Db, InProcess, program};
use std::process::Command;

const PAGE: &str = include_str!("../../docs/psql.md");
const PROMPT: &str = "=# ";

/// One thing that the page does.
enum Step {
    Shell(String),
    Sql { statement: String, answer: String },
}

fn steps() -> Vec<Step> {
    let mut steps = Vec::new();
    for (index, block) in PAGE.split("```").enumerate().filter(|(index, _)| index % 2 == 1) {
        let (language, content) =
            block.split_once('\n').unwrap_or_else(|| panic!("block {index} is one line"));
        match language {
            "sh" => steps.push(Step::Shell(content.to_owned())),
            "text" => steps.extend(content.split(PROMPT).skip(1).map(|part| {
                let (statement, answer) = part.split_once('\n').expect("an answer below the statement");
                Step::Sql { statement: statement.to_owned(), answer: answer.to_owned() }
            })),
            other => panic!("nothing runs a block of {other}"),
        }
    }
    steps
}

/// Lines as words: how wide columns are does not count.
fn words(text: &str) -> Vec<Vec<String>> {
    let ruler = |word: &str| word.chars().all(|c| "-+".contains(c)) && word.contains('-');
    let word = |word: &str| if ruler(word) { word.replace('-', "") } else { word.to_owned() };
    let lines = text.trim_end().lines().filter(|line| !line.is_empty());
    lines.map(|line| line.split_whitespace().map(word).collect()).collect()
}

fn agree(documented: &str, found: &str) -> bool {
    let (documented, found) = (words(documented), words(found));
    let alike = |(a, b): (&Vec<String>, &Vec<String>)| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == "..." || a == b)
    };
    documented.len() == found.len() && documented.iter().zip(&found).all(alike)
}

async fn run(mut command: Command) -> (bool, String) {
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic");
    let output =
        output.unwrap_or_else(|error| panic!("psql and sh must be installed (postgresql-client): {error}"));
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).expect("UTF-8"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs curl: `make check` installs it and runs this test"]
async fn the_session_in_the_documentation_is_what_happens() {
    let _needed = program("curl");
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    let steps = steps();
    assert!(steps.len() > 10, "the page was read");
    for step in steps {
        match step {
            Step::Shell(script) => {
                let mut command = Command::new("sh");
                command.args(["-ec", &script]).env("HOLDER", holder.url()).env("DATABASE_URL", db.url());
                let (success, output) = run(command).await;
                assert!(success, "{script}\n{output}");
            }
            Step::Sql { statement, answer } => {
                let mut command = Command::new("psql");
                command.args([
                    "--no-psqlrc",
                    "--set",
                    "SHOW_CONTEXT=never",
                    "--dbname",
                    db.url(),
                    "--command",
                    &statement,
                ]);
                let (_, output) = run(command).await;
                assert!(agree(&answer, &output), "{statement}\ndocumented:\n{answer}\nfound:\n{output}");
            }
        }
    }
}
