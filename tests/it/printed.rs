//! O-06: texts of callers in what people read: logs, tables, sentences and commands to paste.

use crate::command_line::{fails, ok, ok_json};
use pgsemaphore_tests::{Db, Serve, client, encode, until};
use serde_json::json;

/// Forges a line, clears the screen, rings the bell, returns to the start of the line, and turns the rest around.
const EVIL: &str = "-k\n2026-01-01T00:00:00Z ERROR forged\u{1b}[2J\u{7}\r\u{202e}\u{2028}\u{85}'$(reboot)`";

fn assert_printable(text: &str, what: &str) {
    let strange = |c: &char| c.is_control() && *c != '\n' || "\u{202e}\u{2028}\u{2029}".contains(*c);
    assert_eq!(text.chars().find(strange), None, "{what}: {text:?}");
    for line in text.lines() {
        assert!(!line.starts_with("2026-01-01") && !line.starts_with("ERROR"), "{what}: {text:?}");
    }
}

async fn request(holder: &Serve, client_id: &str) -> u16 {
    let message = json!({"v": 1, "client_id": client_id, "demand": [{"group": EVIL, "count": 3}]});
    let target = format!("{}/v1/semaphores/{}/request", holder.url(), encode(EVIL));
    client().post(target).json(&message).send().await.expect("an answer").status().as_u16()
}

/// A key, client, group, pattern, actor and reason that are all evil.
async fn used(db: &Db) -> Serve {
    let policy = json!({"limit": 2, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000,
        "group_limits": {(EVIL): 1}});
    let configure = sqlx::query("SELECT pgsemaphore.configure($1, $2, $1)").bind(EVIL).bind(policy);
    configure.execute(db.pool()).await.expect("a policy");
    let holder = Serve::start_with(db.url(), &["--log", "trace"]).await;
    assert_eq!(request(&holder, EVIL).await, 200);
    holder
}

#[tokio::test]
async fn tables_and_sentences_show_texts_of_callers_on_one_line() {
    let db = Db::new().await;
    let _holder = used(&db).await;
    for command in [
        &["usage"][..],
        &["usage", "--", EVIL],
        &["explain", "--", EVIL],
        &["explain", "--", EVIL, EVIL],
        &["client", "list"],
        &["policy", "list"],
        &["audit"],
        &["client", "settle", "--yes", &format!("--reason={EVIL}"), "--", EVIL, EVIL],
        &["policy", "delete", "--", EVIL],
    ] {
        assert_printable(&ok(&db, command).await, &format!("{command:?}"));
    }
    for command in [
        &["policy", "get", "--", EVIL][..],
        &["client", "settle", "--", EVIL, "\u{202e}\n"],
        &["explain", "--", "\u{202e}\nnothing"],
    ] {
        assert_printable(&fails(&db, command).await.1, &format!("{command:?}"));
    }
}

#[tokio::test]
async fn json_says_texts_of_callers_as_they_are() {
    let db = Db::new().await;
    let _holder = used(&db).await;
    let usage = ok_json(&db, &["usage", "--json"]).await;
    assert_eq!(usage["semaphores"][0]["key"], EVIL);
    assert!(ok_json(&db, &["policy", "list", "--json"]).await[0]["set_by"].is_string());
}

/// What `explain` suggests does what it says, whatever the names are.
#[tokio::test]
async fn suggested_commands_can_be_pasted() {
    let db = Db::new().await;
    let _holder = used(&db).await;
    let long_ago = "UPDATE pgsemaphore_data.clients SET last_seen = now() - interval '2 hours'";
    sqlx::raw_sql(long_ago).execute(db.pool()).await.expect("silence");
    let text = ok(&db, &["explain", "--", EVIL]).await;
    let suggested =
        text.lines().find_map(|line| line.split_once("client_id, or `pgsemaphore ")).expect("a command").1;
    let command = suggested.strip_suffix('`').expect("its end");
    let script = format!("printf '%s\\0' {command}");
    let output = std::process::Command::new("bash").args(["-c", &script]).output().expect("bash runs");
    let words = String::from_utf8(output.stdout).expect("UTF-8");
    let words: Vec<&str> = words.split_terminator('\0').collect();
    assert_eq!(words, ["client", "settle", "--", EVIL, EVIL]);
    ok(&db, &words).await;
    let group = text.lines().find(|line| line.starts_with("group_limit: ")).expect("a remedy");
    assert!(
        group.contains("`pgsemaphore policy set --group=$'-k\\0122026") && group.contains(" -- $'-k\\012"),
        "{group}"
    );
}

#[tokio::test]
async fn text_logs_show_texts_of_callers_and_of_the_database_on_one_line() {
    let db = Db::new().await;
    sqlx::raw_sql(
        "CREATE SCHEMA evil;
         CREATE FUNCTION evil.fails(key text) RETURNS integer LANGUAGE plpgsql AS
         $$ BEGIN RAISE EXCEPTION E'no\\n2026-01-01T00:00:00Z ERROR forged\\x1b[2J\\u202e %', key; END $$;
         SELECT pgsemaphore.configure('*', '{\"limit_function\": \"evil.fails\", \"round_wait_ms\": 0}')",
    )
    .execute(db.pool())
    .await
    .expect("a function that fails");
    let holder = Serve::start_with(db.url(), &["--log", "trace"]).await;
    until("it says so", async || {
        assert_eq!(request(&holder, EVIL).await, 200);
        holder.stderr().contains("forged")
    })
    .await;
    let logged = holder.stderr();
    assert_printable(&logged, "the log");
    for line in logged.lines() {
        assert!(line.starts_with("20") && line.contains('T'), "a line without a time: {line}");
    }
}
