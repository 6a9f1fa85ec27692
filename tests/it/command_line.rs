//! The command line as a person meets it: what commands print, what they exit with, what they say when they fail.

use pgsemaphore_tests::{Db, Process, Serve, until, within_reason};
use serde_json::{Value, json};
use std::process::Stdio;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Runs a command over this database that must succeed, and returns what it printed.
pub(crate) async fn ok(db: &Db, arguments: &[&str]) -> String {
    let (code, stdout, stderr) = run(db, arguments).await;
    assert_eq!(code, 0, "{arguments:?}: {stderr}");
    stdout
}

pub(crate) async fn ok_json(db: &Db, arguments: &[&str]) -> Value {
    serde_json::from_str(&ok(db, arguments).await).expect("JSON")
}

/// Runs a command over this database that must fail with one line, and returns exit code and line.
pub(crate) async fn fails(db: &Db, arguments: &[&str]) -> (i32, String) {
    let (code, stdout, stderr) = run(db, arguments).await;
    assert_eq!(stdout, "", "{arguments:?}");
    assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    (code, stderr)
}

async fn run(db: &Db, arguments: &[&str]) -> (i32, String, String) {
    Process::run_in(arguments, &[("PGSEMAPHORE_DATABASE_URL", db.url())]).await
}

/// Runs a command over this database at a terminal, where somebody types `answer`; exit code and what the terminal shows.
/// `script`, of every Debian, is the terminal.
pub(crate) async fn at_a_terminal(db: &Db, command: &str, answer: &str) -> (i32, String) {
    let command = format!("{} {command} --database-url {}", Process::path("pgsemaphore").display(), db.url());
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
    let mut terminal = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("util-linux");
    terminal.stdin.take().expect("a pipe").write_all(answer.as_bytes()).await.expect("an answer");
    let output = within_reason("its end", terminal.wait_with_output()).await.expect("its output");
    (output.status.code().expect("an exit code"), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[tokio::test]
async fn policies_are_set_field_by_field() {
    let db = Db::new().await;
    let first = ok_json(
        &db,
        &["policy", "set", "account:*", "--limit", "100", "--group", "nightly=5", "--round-wait-ms", "20"],
    )
    .await;
    assert_eq!(first["limit"], 100);
    assert_eq!(first["round_wait_ms"], 20);
    let second = ok_json(
        &db,
        &[
            "policy",
            "set",
            "account:*",
            "--group",
            "a=b=1",
            "--paused",
            "true",
            "--round-wait-ms",
            "7",
            "--paused-groups",
            "x",
            "--paused-groups",
            "y",
        ],
    )
    .await;
    assert_eq!(second["limit"], 100, "kept");
    assert_eq!(second["group_limits"], json!({"nightly": 5, "a=b": 1}));
    assert_eq!((&second["paused"], &second["round_wait_ms"]), (&json!(true), &json!(7)));
    assert_eq!(second["paused_groups"], json!(["x", "y"]));
    let third =
        ok_json(&db, &["policy", "set", "account:*", "--round-wait-ms", "null", "--group", "nightly=null"])
            .await;
    assert_eq!(third["round_wait_ms"], 0, "null is the default");
    assert_eq!(third["group_limits"], json!({"a=b": 1}));
    assert_eq!(ok_json(&db, &["policy", "get", "account:*"]).await, third);
    assert_eq!(ok_json(&db, &["policy", "list", "--json"]).await, json!([third]));
    let table = ok(&db, &["policy", "list"]).await;
    assert!(table.contains("account:*") && table.contains("paused"), "{table}");
    assert_eq!(ok(&db, &["policy", "delete", "account:*"]).await, "account:*: deleted\n");
    let (code, line) = fails(&db, &["policy", "get", "account:*"]).await;
    assert_eq!(code, 1);
    assert!(line.contains("account:*") && line.contains("policy list"), "{line}");
    assert!(ok(&db, &["policy", "list"]).await.contains("policy set"), "says how to make the first one");
}

#[tokio::test]
async fn every_field_of_a_policy_is_an_option() {
    let db = Db::new().await;
    let policy = ok_json(&db, &["policy", "set", "k", "--limit", "1"]).await;
    let (_, help, _) = Process::run(["policy", "set", "--help"]).await;
    let read_only = ["pattern", "set_by", "set_at", "group_limits"];
    for field in
        policy.as_object().expect("an object").keys().filter(|field| !read_only.contains(&field.as_str()))
    {
        assert!(help.contains(&format!("--{} <", field.replace('_', "-"))), "{field}");
    }
}

#[tokio::test]
async fn a_refused_policy_names_the_field() {
    let db = Db::new().await;
    for (options, field) in [
        (&["--limit", "-1"][..], "limit"),
        (&["--limit", "many"], "limit"),
        (&["--limit", "1", "--round-wait-ms", "60001"], "round_wait_ms"),
        (&["--round-wait-ms", "20"], "limit"),
    ] {
        let (code, line) = fails(&db, &[&["policy", "set", "k"], options].concat()).await;
        assert_eq!(code, 2, "{line}");
        assert!(line.contains(field), "{line}");
    }
}

#[tokio::test]
async fn usage_is_shown_as_a_table_and_as_json() {
    let db = Db::new().await;
    let (code, line) = fails(&db, &["usage", "account:42"]).await;
    assert_eq!(code, 1);
    assert!(line.contains("account:42") && line.contains("policy set"), "{line}");
    assert_eq!(ok(&db, &["usage"]).await, "no semaphore was used lately\n");
    assert_eq!(ok_json(&db, &["usage", "--json"]).await, json!({"v": 1, "semaphores": []}));
    ok(&db, &["policy", "set", "account:*", "--limit", "7"]).await;
    let usage = ok_json(&db, &["usage", "account:42", "--json"]).await;
    assert_eq!(
        (&usage["limit"], &usage["available"], &usage["pattern"]),
        (&7.into(), &7.into(), &"account:*".into())
    );
    let table = ok(&db, &["usage", "account:42"]).await;
    assert!(table.starts_with("KEY") && table.contains("account:42"), "{table}");
}

#[tokio::test]
async fn a_watched_usage_is_shown_again_until_it_is_ended() {
    let db = Db::new().await;
    let mut watching = Process::start(["usage", "--watch", "--database-url", db.url()]);
    until("it is shown twice", async || watching.stdout().matches("no semaphore").count() >= 2).await;
    watching.interrupt();
    assert_eq!(watching.code().await, 0);
}

#[tokio::test]
async fn an_old_schema_is_refused_with_what_to_do() {
    let db = Db::new().await;
    let drop = "drop schema pgsemaphore cascade; drop schema pgsemaphore_data cascade";
    sqlx::raw_sql(drop).execute(db.pool()).await.expect(drop);
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["usage"], &["policy", "list"]] {
        let (code, line) = fails(&db, arguments).await;
        assert_eq!(code, 1);
        assert!(line.contains("pgsemaphore migrate"), "{line}");
    }
    assert_eq!(ok(&db, &["migrate"]).await, "the schema is up to date\n");
    assert_eq!(ok(&db, &["migrate"]).await, "the schema is up to date\n", "again");
    Serve::start(db.url()).await.terminate();
}

#[tokio::test]
async fn serve_ends_in_good_order_when_it_is_asked_to() {
    let db = Db::new().await;
    let mut holder = Serve::start(db.url()).await;
    holder.terminate();
    assert_eq!(holder.code().await, 0);
    let mut holder = Serve::start(db.url()).await;
    holder.interrupt();
    assert_eq!(holder.code().await, 0);
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let db = Db::new().await;
    let first = Serve::start(db.url()).await;
    let address = first.url().trim_start_matches("http://");
    let (code, line) = fails(&db, &["serve", "--listen", address]).await;
    assert_eq!(code, 1);
    assert!(line.contains(address) && line.contains("--listen"), "{line}");
}

#[tokio::test]
async fn mistakes_of_configuration_exit_with_2() {
    for (arguments, hint) in [
        (&["usage"][..], "--database-url"),
        (&["usage", "--database-url", "nonsense"], "postgres://"),
        (&["serve", "--listen", "0.0.0.0:0"], "--insecure"),
        (&["serve", "--listen", "nonsense"], "HOST:PORT"),
        (&["serve", "--forget-after", "soon"], "10m"),
        (&["serve", "--database-connections", "0"], "1..=1000"),
        (&["serve", "--embedded", "x", "--database-url", "y"], "cannot be used with"),
        (&["policy", "set", "k", "--group", "five"], "nightly=5"),
        (&["nonsense"], "--help"),
    ] {
        let (code, _, stderr) = Process::run(arguments).await;
        assert_eq!(code, 2, "{arguments:?}: {stderr}");
        assert!(stderr.contains(hint), "{arguments:?}: {stderr}");
    }
}

#[tokio::test]
async fn a_database_that_is_away_is_named_without_its_password() {
    let url = "postgres://me:secret@127.0.0.1:1/jobs";
    for arguments in [&["migrate"][..], &["usage"], &["serve", "--listen", "127.0.0.1:0"]] {
        let (code, _, stderr) = Process::run([arguments, &["--database-url", url]].concat()).await;
        assert_eq!(code, 1, "{stderr}");
        assert!(stderr.contains("postgres://me@127.0.0.1:1/jobs") && !stderr.contains("secret"), "{stderr}");
    }
}
