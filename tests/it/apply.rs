//! `policy apply`: policies as a file declares them.

use crate::command_line::{fails, ok, ok_json};
use pgsemaphore_tests::Db;
use serde_json::{Value, json};
use std::io::Write as _;

fn file(content: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(content.as_bytes()).expect("its content");
    file
}

fn path(file: &tempfile::NamedTempFile) -> &str {
    file.path().to_str().expect("a path in UTF-8")
}

async fn apply(db: &Db, policies: Value, options: &[&str]) -> String {
    let file = file(&json!({"policies": policies}).to_string());
    ok(db, &[&["policy", "apply", "-f", path(&file)], options].concat()).await
}

async fn get(db: &Db, pattern: &str) -> Value {
    ok_json(db, &["policy", "get", pattern]).await
}

async fn audited(db: &Db) -> i64 {
    let count = sqlx::query_scalar("SELECT count(*) FROM pgsemaphore.audit WHERE action = 'policy'");
    count.fetch_one(db.pool()).await.expect("the audit")
}

#[tokio::test]
async fn policies_become_what_the_file_says() {
    let db = Db::new().await;
    let policies = json!({
        "account:*": {"limit": 100, "group_limits": {"nightly": 5}, "paused_groups": ["b", "a", "b"]},
        "model:gpu": {"limit": 8, "provisioning": "over", "lease_extra_ratio": 0.50}
    });
    assert_eq!(apply(&db, policies.clone(), &[]).await, "account:*: created\nmodel:gpu: created\n");
    let first = get(&db, "account:*").await;
    assert!(first["set_by"].as_str().is_some_and(|by| by.starts_with("apply:")), "{first}");
    let written = audited(&db).await;
    assert_eq!(apply(&db, policies, &[]).await, "account:*: unchanged\nmodel:gpu: unchanged\n");
    assert_eq!(get(&db, "account:*").await, first);
    assert_eq!(audited(&db).await, written, "nothing was written");

    let less = json!({"account:*": {"limit": 90}});
    assert_eq!(apply(&db, less, &[]).await, "account:*: changed\n");
    let changed = get(&db, "account:*").await;
    assert_eq!((&changed["limit"], &changed["paused_groups"]), (&json!(90), &json!([])), "defaults fill in");
    assert_eq!(changed["group_limits"], json!({"nightly": 5}), "kept, as a PUT keeps them");
    assert_eq!(get(&db, "model:gpu").await["limit"], 8, "not in the file, not touched");
}

#[tokio::test]
async fn what_somebody_changed_by_hand_is_left_alone_unless_by_force() {
    let db = Db::new().await;
    let policies = json!({"a": {"limit": 1}, "b": {"limit": 2}});
    apply(&db, policies.clone(), &[]).await;
    let by_hand = "SELECT pgsemaphore.configure('a', '{\"paused\": true}')";
    sqlx::raw_sql(by_hand).execute(db.pool()).await.expect("a change by psql");
    let told = apply(&db, policies.clone(), &[]).await;
    assert!(
        told.starts_with("a: left alone, because it differs and was last changed by postgres at "),
        "{told}"
    );
    assert!(told.contains("--force") && told.ends_with("b: unchanged\n"), "{told}");
    assert_eq!(get(&db, "a").await["paused"], true);
    assert_eq!(apply(&db, policies.clone(), &["--force"]).await, "a: changed\nb: unchanged\n");
    assert_eq!(get(&db, "a").await["paused"], false);
    assert_eq!(apply(&db, policies, &[]).await, "a: unchanged\nb: unchanged\n", "the file's again");
}

#[tokio::test]
async fn a_bad_file_changes_nothing_and_says_where() {
    let db = Db::new().await;
    for (content, hints) in [
        (r#"{"policies": {"a": {"limit": 1}, "b": {"limit": -1}}}"#, &["\"b\"", "limit"][..]),
        (r#"{"policies": {"a": {"limit": 1}, "b": {"limt": 1}}}"#, &["\"b\"", "limt"]),
        (r#"{"policies": {"a": {"limit": 1}, "b": {"limit": 1.5}}}"#, &["\"b\"", "limit"]),
        (r#"{"policies": {"a": {"limit": 1}, "b": {"limit": 1, "limit": 2}}}"#, &["b", "limit"]),
        (
            r#"{"policies": {"a": {"limit": 1}, "b": {"group_limits": {"x": "y"}, "limit": 1}}}"#,
            &["\"b\"", "group_limits/x"],
        ),
        (r#"{"policies": {"a": {"limit": 1}, "b": []}}"#, &["\"b\"", "object"]),
        (r#"{"policies": {"a": {"limit": 1}, "": {"limit": 1}}}"#, &["\"\"", "pattern"]),
        (r#"{"policies": {"a": {"limit": 1}, "a": {"limit": 2}}}"#, &["/policies/a"]),
        (r#"{"policies": {"a": {"limit": 1}}, "polices": {}}"#, &["polices"]),
        (r#"{"a": {"limit": 1}}"#, &["policies", "\"a\""][..1]),
        ("policies: {}", &["line 1"][..0]),
        ("[]", &["object"]),
    ] {
        let file = file(content);
        let (code, line) = fails(&db, &["policy", "apply", "-f", path(&file)]).await;
        assert_eq!(code, 2, "{content}: {line}");
        assert!(line.contains(path(&file)) && line.contains("nothing was applied"), "{content}: {line}");
        assert!(hints.iter().all(|hint| line.contains(hint)), "{content}: {line}");
        assert_eq!(audited(&db).await, 0, "{content}");
    }
    let (code, line) = fails(&db, &["policy", "apply", "-f", "/nowhere/policies.json"]).await;
    assert_eq!(code, 2);
    assert!(line.contains("/nowhere/policies.json"), "{line}");
}
