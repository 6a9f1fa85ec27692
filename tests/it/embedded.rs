//! The private PostgreSQL: it keeps what it was told, survives being killed, and says what is wrong with a folder.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use pgsemaphore::embedded::{Embedded, EmbeddedError, Options, StopMode};
use pgsemaphore_tests::{Serve, until};
use sqlx::{Connection as _, PgConnection};

async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.expect("the embedded PostgreSQL accepts a connection")
}

async fn number(url: &str, query: &'static str) -> i32 {
    sqlx::query_scalar(query).fetch_one(&mut connect(url).await).await.expect(query)
}

async fn write_seven(url: &str) {
    let statement = "create table kept as select 7 as value";
    sqlx::raw_sql(statement).execute(&mut connect(url).await).await.expect(statement);
}

fn folder_of_mode(mode: u32) -> tempfile::TempDir {
    let permissions = Permissions::from_mode(mode);
    tempfile::Builder::new().permissions(permissions).tempdir().expect("a temporary folder")
}

/// A folder that user `postgres` can enter, too.
fn open_folder() -> tempfile::TempDir {
    folder_of_mode(0o755)
}

#[tokio::test]
async fn a_folder_keeps_its_cluster_between_starts() {
    let parent = open_folder();
    let folder = parent.path().join("made/on/the/way");
    let first =
        Embedded::start(&Options::in_folder(&folder)).expect("starts in a folder that does not exist");
    write_seven(&first.url()).await;
    drop(first);
    let second = Embedded::start(&Options::in_folder(&folder)).expect("starts again");
    assert_eq!(number(&second.url(), "select value from kept").await, 7);
}

/// What the file `url` says, which nobody but its owner may read.
fn read_url(folder: &Path) -> String {
    let file = folder.join("url");
    assert_eq!(std::fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
    std::fs::read_to_string(file).expect("a URL").trim().to_owned()
}

#[tokio::test]
async fn a_cluster_whose_port_was_taken_meanwhile_says_so_and_has_another() {
    let parent = open_folder();
    let folder = parent.path().join("cluster");
    let options = ["--embedded", folder.to_str().expect("a path of UTF-8")];
    let mut holder = Serve::with_options(&options).await;
    let first = read_url(&folder);
    holder.terminate();
    assert_eq!(holder.code().await, 0);
    let port: u16 = first
        .rsplit_once(':')
        .and_then(|(_, rest)| rest.split_once('/'))
        .expect("a port")
        .0
        .parse()
        .expect("a number");
    let _taken = std::net::TcpListener::bind(("127.0.0.1", port)).expect("it is free");
    let holder = Serve::with_options(&options).await;
    let second = read_url(&folder);
    assert_ne!(second, first);
    connect(&second).await;
    let told = format!("port {port} of the embedded PostgreSQL is taken: it has port ");
    assert!(holder.stderr().contains(&told), "{}", holder.stderr());
}

#[tokio::test]
async fn a_killed_cluster_restarts_at_the_same_url() {
    let mut cluster = Embedded::start(&Options::temporary().fast_and_open()).expect("starts");
    let url = cluster.url();
    write_seven(&url).await;
    for mode in [StopMode::Kill, StopMode::Immediate, StopMode::Fast] {
        let pid = cluster.pid();
        cluster.stop(mode).expect("stops");
        assert_eq!(cluster.pid(), None);
        PgConnection::connect(&url).await.expect_err("nobody listens");
        cluster.restart().expect("restarts");
        assert_ne!(cluster.pid(), pid);
        assert_eq!(number(&url, "select value from kept").await, 7, "after {mode:?}");
    }
}

#[tokio::test]
async fn a_password_keeps_other_users_of_the_machine_out() {
    let cluster = Embedded::start(&Options::temporary()).expect("starts");
    assert_eq!(number(&cluster.url_for("template1"), "select 1").await, 1);
    let (before, after) =
        cluster.url().split_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).expect("an @");
    assert!(before.starts_with("postgres://postgres:"), "{before}");
    let without = format!("postgres://postgres@{after}");
    let error = PgConnection::connect(&without).await.expect_err("no password, no entry");
    assert!(error.to_string().contains("password"), "{error}");
}

#[tokio::test]
async fn settings_reach_the_server_and_the_last_one_wins() {
    let options = Options::temporary()
        .fast_and_open()
        .setting("max_connections", "11")
        .setting("max_connections", "12");
    let cluster = Embedded::start(&options).expect("starts");
    for (name, expected) in
        [("max_connections", "12"), ("max_pred_locks_per_transaction", "1024"), ("server_encoding", "UTF8")]
    {
        let value: String = sqlx::query_scalar("select current_setting($1)")
            .bind(name)
            .fetch_one(&mut connect(&cluster.url()).await)
            .await
            .expect(name);
        assert_eq!(value, expected, "{name}");
    }
}

#[test]
fn a_temporary_folder_goes_with_its_cluster() {
    let cluster = Embedded::start(&Options::temporary().fast_and_open()).expect("starts");
    let folder = cluster.folder().to_owned();
    assert!(folder.exists());
    drop(cluster);
    assert!(!folder.exists());
}

#[test]
fn many_start_side_by_side() {
    let start = || Embedded::start(&Options::temporary().fast_and_open());
    let clusters: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(start)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic").expect("starts")).collect()
    });
    assert_ne!(clusters[0].url(), clusters[1].url());
    assert_ne!(clusters[1].url(), clusters[2].url());
}

#[test]
fn a_folder_in_use_is_refused() {
    let parent = open_folder();
    let folder = parent.path().join("cluster");
    let _first = Embedded::start(&Options::in_folder(&folder)).expect("starts");
    let error = Embedded::start(&Options::in_folder(&folder)).expect_err("in use");
    assert!(matches!(error, EmbeddedError::InUse { .. }), "{error}");
}

#[test]
fn a_folder_with_something_else_in_it_is_refused() {
    let folder = open_folder();
    std::fs::write(folder.path().join("letters.txt"), "dear").expect("write");
    let error = Embedded::start(&Options::in_folder(folder.path())).expect_err("not ours");
    assert!(matches!(error, EmbeddedError::NotOurs { .. }), "{error}");
    assert!(folder.path().join("letters.txt").exists());
}

#[test]
fn a_server_that_cannot_start_shows_its_log() {
    let options = Options::temporary().fast_and_open().setting("max_connections", "many");
    let error = Embedded::start(&options).expect_err("a wrong setting");
    assert!(matches!(error, EmbeddedError::Start { .. }), "{error}");
    assert!(error.to_string().contains("max_connections"), "{error}");
}

/// As another user than root PostgreSQL runs as that user, and any folder it can write to will do.
#[test]
fn a_parent_that_blocks_user_postgres_is_named() {
    let blocking = folder_of_mode(0o700);
    match Embedded::start(&Options::in_folder(blocking.path().join("cluster"))) {
        Err(EmbeddedError::Blocked { folder, user }) if nix::unistd::Uid::effective().is_root() => {
            assert_eq!(folder, real(blocking.path()));
            assert_eq!(user, "postgres");
        }
        Ok(_) if !nix::unistd::Uid::effective().is_root() => {}
        other => panic!("{other:?}"),
    }
}

fn real(path: &Path) -> std::path::PathBuf {
    path.canonicalize().expect("an existing folder")
}

#[tokio::test]
async fn a_killed_holder_leaves_no_cluster_running_and_the_next_one_finds_its_data() {
    let parent = open_folder();
    let folder = parent.path().join("cluster");
    let options = ["--embedded", folder.to_str().expect("a path of UTF-8")];
    let mut holder = Serve::with_options(&options).await;
    let pid_file = folder.join("data/postmaster.pid");
    let url = read_url(&folder);
    write_seven(&url).await;
    holder.kill();
    holder.wait().await;
    until("the guard has stopped PostgreSQL", async || !pid_file.exists()).await;
    PgConnection::connect(&url).await.expect_err("nobody listens");

    let mut holder = Serve::with_options(&options).await;
    assert_eq!(read_url(&folder), url, "its port was free");
    holder.terminate();
    assert_eq!(holder.code().await, 0);
    assert!(!pid_file.exists(), "stopped by the holder itself");

    let cluster = Embedded::start(&Options::in_folder(&folder)).expect("starts");
    assert_eq!(number(&cluster.url(), "select value from kept").await, 7);
}
