//! An advisory lock for each permit, held by the worker's session. Polls; what a worker holds ends with its connection,
//! and nothing is written, so nothing is durable either.

use super::{Acting, Budget, Trips, WORKERS, Worker, pause};
use crate::cluster::{Cluster, connect};
use crate::load::Load;
use futures_util::future::BoxFuture;
use sqlx::PgConnection;

pub struct Advisory {
    url: String,
    limit: i32,
    trips: Trips,
}

struct Session {
    connection: PgConnection,
    limit: i32,
    trips: Trips,
    held: (i32, i32),
}

impl Advisory {
    pub async fn new(cluster: &Cluster, load: &Load) -> Self {
        Self { url: cluster.database().await, limit: load.limit, trips: Trips::default() }
    }
}

impl Budget for Advisory {
    fn workers(&self) -> BoxFuture<'_, Vec<Box<dyn Worker>>> {
        Box::pin(async {
            let mut workers: Vec<Box<dyn Worker>> = Vec::new();
            for _ in 0..WORKERS {
                let connection = connect(&self.url).await;
                let (limit, trips) = (self.limit, self.trips.clone());
                workers.push(Box::new(Session { connection, limit, trips, held: (0, 0) }));
            }
            workers
        })
    }

    fn trips(&self) -> u64 {
        self.trips.total()
    }
}

impl Worker for Session {
    fn acquire(&mut self, key: i32) -> Acting<'_> {
        // Up to 16 locks from a random one on, in one round trip; the first that is free is taken.
        const TAKE: &str = "
            SELECT ($2 + n) % $3 FROM generate_series(0, least($3, 16) - 1) AS n
            WHERE pg_try_advisory_lock($1, ($2 + n) % $3)
            LIMIT 1";
        Box::pin(async move {
            for tries in 0.. {
                self.trips.count();
                let from = rand::random_range(0..self.limit);
                let query = sqlx::query_scalar(TAKE).bind(key).bind(from).bind(self.limit);
                let slot = query.fetch_optional(&mut self.connection).await.expect("a lock or none");
                if let Some(slot) = slot {
                    self.held = (key, slot);
                    return;
                }
                pause(tries).await;
            }
        })
    }

    fn release(&mut self) -> Acting<'_> {
        Box::pin(async move {
            self.trips.count();
            let (key, slot) = self.held;
            let query = sqlx::query_scalar("SELECT pg_advisory_unlock($1, $2)").bind(key).bind(slot);
            let held: bool = query.fetch_one(&mut self.connection).await.expect("an unlock");
            assert!(held, "the lock was not held");
        })
    }

    fn leave(self: Box<Self>) -> Acting<'static> {
        Box::pin(async {})
    }
}
