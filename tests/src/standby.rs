//! A streaming standby of a cluster.

use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use pgsemaphore::embedded::Embedded;
use sqlx::{Connection as _, PgConnection, PgPool};

use crate::cluster::options_in;
use crate::until::until;

/// A hot standby that has all that its primary commits: no COMMIT is told before. It ends with this value.
#[derive(Debug)]
#[must_use = "the standby ends when this value is dropped"]
pub struct Standby {
    cluster: Embedded,
    _folder: tempfile::TempDir,
}

impl Standby {
    /// Copies `primary`, and has it wait for the copy from then on.
    ///
    /// # Panics
    ///
    /// When that can't be done.
    pub async fn of(primary: &Embedded) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (url, path) = (primary.url(), folder.path().to_owned());
        let start = tokio::task::spawn_blocking(move || {
            let data = path.join("data");
            std::fs::DirBuilder::new().mode(0o700).create(&data).expect("a folder");
            let mut backup = Command::new("pg_basebackup");
            backup.args(["-d", &url, "-c", "fast", "-R", "--no-sync", "-D"]).arg(&data).current_dir("/");
            if nix::unistd::Uid::effective().is_root() {
                let user =
                    nix::unistd::User::from_name("postgres").expect("the users").expect("user postgres");
                for path in [&path, &data] {
                    nix::unistd::chown(path, Some(user.uid), Some(user.gid)).expect("it can write there");
                }
                backup.uid(user.uid.as_raw()).gid(user.gid.as_raw());
            }
            let output = backup.output().expect("pg_basebackup runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Embedded::start(&options_in(path)).unwrap_or_else(|error| panic!("{error}"))
        });
        let cluster = start.await.expect("no panic");
        let admin = PgPool::connect(&primary.url()).await.expect("the primary");
        let waits = "ALTER SYSTEM SET synchronous_standby_names = '*'";
        sqlx::raw_sql(waits).execute(&admin).await.expect("the setting");
        sqlx::raw_sql("SELECT pg_reload_conf()").execute(&admin).await.expect("the reload");
        until("the primary waits for its standby", async || {
            let query =
                sqlx::query_scalar("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'");
            let synchronous: i64 = query.fetch_one(&admin).await.expect("the view");
            synchronous == 1
        })
        .await;
        Self { cluster, _folder: folder }
    }

    /// Where it is reached.
    #[must_use]
    pub fn url(&self) -> String {
        self.cluster.url()
    }

    /// Makes it a primary.
    ///
    /// # Panics
    ///
    /// When it can't become one.
    pub async fn promote(&self) {
        let mut admin = PgConnection::connect(&self.url()).await.expect("the standby");
        let promoted: bool =
            sqlx::query_scalar("SELECT pg_promote()").fetch_one(&mut admin).await.expect("an answer");
        assert!(promoted, "it is not a primary after a minute");
    }
}
