//! A sorted set for each key in Redis, of who runs and until when; a script takes a place in it. Polls; a place that is
//! not given back is free after a minute, whether its item runs or not.

use super::{Acting, Budget, Trips, WORKERS, Worker, pause};
use crate::load::Load;
use futures_util::future::BoxFuture;
use redis::Script;
use redis::aio::MultiplexedConnection;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const TAKE: &str = "
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
    if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
    redis.call('ZADD', KEYS[1], now + 60000, ARGV[2])
    return 1";

/// A server on a free port of loopback; it ends with this value.
pub struct Redis {
    process: Child,
    client: redis::Client,
    _folder: TempDir,
}

impl Redis {
    /// Starts one that keeps nothing, or that flushes each write before it answers.
    pub async fn start(durable: bool) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = pgsemaphore::embedded::free_port().expect("a free port");
        let appends = if durable { "yes" } else { "no" };
        // It ends with this process, however that ends.
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "redis-server"])
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""])
            .args(["--appendonly", appends, "--appendfsync", "always"])
            .arg("--dir")
            .arg(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("setpriv, of util-linux");
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).expect("a URL");
        let redis = Self { process, client, _folder: folder };
        pgsemaphore_tests::until("Redis listens", async || redis.try_connect().await.is_some()).await;
        redis
    }

    async fn try_connect(&self) -> Option<MultiplexedConnection> {
        self.client.get_multiplexed_async_connection().await.ok()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _it_ended_already = self.process.kill();
        let _ = self.process.wait();
    }
}

pub struct Sets {
    redis: Redis,
    limit: i32,
    trips: Trips,
}

struct Member {
    connection: MultiplexedConnection,
    take: Script,
    limit: i32,
    trips: Trips,
    number: usize,
    set: String,
}

impl Sets {
    pub fn new(redis: Redis, load: &Load) -> Self {
        Self { redis, limit: load.limit, trips: Trips::default() }
    }
}

impl Budget for Sets {
    fn workers(&self) -> BoxFuture<'_, Vec<Box<dyn Worker>>> {
        Box::pin(async {
            let mut workers: Vec<Box<dyn Worker>> = Vec::new();
            for number in 0..WORKERS {
                let connection = self.redis.try_connect().await.expect("Redis answers");
                let (take, set) = (Script::new(TAKE), String::new());
                let (limit, trips) = (self.limit, self.trips.clone());
                workers.push(Box::new(Member { connection, take, limit, trips, number, set }));
            }
            workers
        })
    }

    fn trips(&self) -> u64 {
        self.trips.total()
    }
}

impl Worker for Member {
    fn acquire(&mut self, key: i32) -> Acting<'_> {
        Box::pin(async move {
            self.set = format!("running:{key}");
            for tries in 0.. {
                self.trips.count();
                let mut call = self.take.key(&self.set);
                let taken: i32 = call
                    .arg(self.limit)
                    .arg(self.number)
                    .invoke_async(&mut self.connection)
                    .await
                    .expect("Redis");
                if taken == 1 {
                    return;
                }
                pause(tries).await;
            }
        })
    }

    fn release(&mut self) -> Acting<'_> {
        Box::pin(async move {
            self.trips.count();
            let mut command = redis::cmd("ZREM");
            let removed: i32 = command
                .arg(&self.set)
                .arg(self.number)
                .query_async(&mut self.connection)
                .await
                .expect("Redis");
            assert_eq!(removed, 1);
        })
    }

    fn leave(self: Box<Self>) -> Acting<'static> {
        Box::pin(async {})
    }
}
