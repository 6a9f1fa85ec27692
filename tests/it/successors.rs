//! Client processes that follow each other under one `client_id`, frozen or killed: what of theirs counts, and who hears.

use pgsemaphore_tests::{Db, InProcess, Process, until, until_some, verify};
use serde_json::{Value, json};

const KEY: &str = "account:42";
const OTHER: &str = "account:43";

/// With grants alone, and with leases of several permits.
fn policies() -> [Value; 2] {
    let grants = json!({"limit": 6, "round_wait_ms": 10, "round_period_ms": 20});
    let mut leases = grants.clone();
    leases["provisioning"] = json!("strict");
    leases["permits_per_lease"] = json!(3);
    [grants, leases]
}

struct World {
    db: Db,
    holder: InProcess,
}

impl World {
    async fn with(policy: Value) -> Self {
        let db = Db::new().await;
        let holder = InProcess::start(db.url()).await;
        holder.policy("*", policy).await;
        Self { db, holder }
    }

    /// A process that works on `key`; `running` are the detached permits that it resumes, if it does.
    fn process(&self, key: &str, running: Option<&[&str]>) -> Queue {
        let start = if running.is_some() { "resume" } else { "fresh" };
        let who = [self.holder.url(), "worker-7", key, start];
        let arguments = who.iter().chain(running.unwrap_or_default());
        Queue(Process::start_binary("queue", arguments))
    }

    async fn usage(&self, key: &str) -> u64 {
        let usage = self.holder.usage(key).await;
        usage["grants"].as_u64().expect("a number") + usage["leases"].as_u64().expect("a number")
    }

    async fn until_used(&self, key: &str, permits: u64) {
        until(&format!("{permits} permits of {key} count"), async || self.usage(key).await == permits).await;
    }

    async fn must_be_unused(&self, key: &str) {
        assert_eq!(self.usage(key).await, 0, "{key}");
        assert_eq!(verify(&self.db).await, []);
    }
}

/// A job queue in a process of its own.
struct Queue(Process);

impl Queue {
    /// Does something, and waits until it is done; returns what else is said of it.
    async fn does(&mut self, order: &str, done: &str) -> String {
        let before = self.0.stdout().lines().count();
        self.0.say(order).await;
        let process = &self.0;
        until_some(done, async || {
            let stdout = process.stdout();
            let line = stdout.lines().skip(before).find(|line| line.starts_with(done))?;
            Some(line[done.len()..].trim().to_owned())
        })
        .await
    }

    async fn starts(&mut self, job: &str) {
        self.does(&format!("start {job}"), &format!("started {job}")).await;
    }

    /// Starts a job, unless that is refused, for this reason.
    async fn tries(&mut self, job: &str) -> Option<String> {
        self.0.say(&format!("start {job}")).await;
        let (started, failed) = (format!("started {job}"), format!("failed {job}"));
        until_some("the job has started or not", async || {
            let stdout = self.0.stdout();
            let line = stdout.lines().find(|line| line.starts_with(&started) || line.starts_with(&failed))?;
            Some(line.strip_prefix(&failed).map(str::to_owned))
        })
        .await
    }

    /// One of some jobs is refused, since the process is shut out. Those before it may have had permits of a lease: what
    /// is drawn before anything was said is why only a dead process may be declared dead.
    async fn is_told(&mut self) {
        for job in ["1", "2", "3", "4", "5", "6", "7"] {
            if let Some(why) = self.tries(job).await {
                return assert!(why.contains("shut out"), "{why}");
            }
            self.ends(job).await;
        }
        panic!("it was never told");
    }

    /// The reference, as an application would store it.
    async fn detaches(&mut self, job: &str) -> String {
        self.does(&format!("detach {job}"), &format!("detached {job}")).await
    }

    async fn ends(&mut self, job: &str) {
        self.does(&format!("end {job}"), &format!("ended {job}")).await;
    }

    async fn resumes(&mut self, job: &str, reference: &str) {
        self.does(&format!("resume {job} {reference}"), &format!("resumed {job}")).await;
    }

    async fn counts(&mut self, job: &str) -> bool {
        self.does(&format!("count {job}"), &format!("counted {job}")).await == "true"
    }

    async fn drains(&mut self) {
        self.does("drain", "drained").await;
    }

    async fn dies(mut self) {
        self.0.kill();
        self.0.wait().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_process_is_shut_out_and_told_and_what_it_held_is_settled() {
    for policy in policies() {
        let world = World::with(policy).await;
        let mut frozen = world.process(KEY, None);
        for job in ["a", "b", "c", "d"] {
            frozen.starts(job).await;
        }
        assert!(frozen.counts("a").await);
        frozen.0.freeze();

        // The whole limit is the successor's.
        let mut successor = world.process(KEY, None);
        for job in ["1", "2", "3", "4", "5", "6"] {
            successor.starts(job).await;
        }
        frozen.0.thaw();
        frozen.is_told().await;
        for job in ["a", "b", "c", "d"] {
            assert!(!frozen.counts(job).await);
            frozen.ends(job).await;
        }
        frozen.drains().await;
        assert_eq!(world.usage(KEY).await, 6, "what it says frees nothing of its successor's");
        assert!(successor.counts("1").await);
        for job in ["1", "2", "3", "4", "5", "6"] {
            successor.ends(job).await;
        }
        successor.drains().await;
        world.must_be_unused(KEY).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detached_permits_outlive_kill_9_and_the_rest_comes_back() {
    for policy in policies() {
        let world = World::with(policy).await;
        let mut first = world.process(KEY, Some(&[]));
        for job in ["a", "b", "c", "d"] {
            first.starts(job).await;
        }
        let [a, b] = [first.detaches("a").await, first.detaches("b").await];
        first.detaches("c").await;
        first.dies().await;

        // c has ended while nobody could tell; d died with its process.
        let mut second = world.process(KEY, Some(&[&a, &b]));
        until("two permits count, and never fewer", async || {
            let used = world.usage(KEY).await;
            assert!(used >= 2, "{used} permits count");
            used == 2
        })
        .await;
        second.resumes("a", &a).await;
        assert!(second.counts("a").await);
        second.ends("a").await;
        second.drains().await;
        assert_eq!(world.usage(KEY).await, 1, "b goes on");
        second.dies().await;

        let mut third = world.process(KEY, Some(&[&b]));
        third.resumes("b", &b).await;
        assert!(third.counts("b").await);
        assert_eq!(world.usage(KEY).await, 1);
        third.ends("b").await;
        third.drains().await;
        world.must_be_unused(KEY).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_process_whose_jobs_are_resumed_loses_none_of_them() {
    for policy in policies() {
        let world = World::with(policy).await;
        let mut frozen = world.process(KEY, Some(&[]));
        frozen.starts("a").await;
        frozen.starts("b").await;
        let a = frozen.detaches("a").await;
        frozen.0.freeze();
        let mut successor = world.process(KEY, Some(&[&a]));
        world.until_used(KEY, 1).await;
        frozen.0.thaw();
        frozen.is_told().await;
        frozen.ends("b").await;
        assert_eq!(world.usage(KEY).await, 1);
        successor.resumes("a", &a).await;
        assert!(successor.counts("a").await);
        successor.ends("a").await;
        successor.drains().await;
        world.must_be_unused(KEY).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_held_of_keys_that_the_successor_does_not_use_comes_back() {
    for policy in policies() {
        let world = World::with(policy).await;
        let mut first = world.process(OTHER, Some(&[]));
        first.starts("a").await;
        first.starts("b").await;
        let a = first.detaches("a").await;
        first.dies().await;
        let second = world.process(KEY, Some(&[&a]));
        world.until_used(OTHER, 1).await;
        second.dies().await;
        let third = world.process(KEY, Some(&[]));
        world.until_used(OTHER, 0).await;
        third.dies().await;
        world.must_be_unused(OTHER).await;
    }
}
