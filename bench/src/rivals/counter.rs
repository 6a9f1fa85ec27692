//! A row for each key that counts what runs. Polls; a worker that dies leaves its item counted.

use super::{Acting, Budget, Trips, WORKERS, Worker, pause};
use crate::cluster::{Cluster, connect, execute};
use crate::load::Load;
use futures_util::future::BoxFuture;
use sqlx::PgConnection;

pub struct Counter {
    url: String,
    trips: Trips,
}

struct Row {
    connection: PgConnection,
    trips: Trips,
    key: i32,
}

impl Counter {
    pub async fn new(cluster: &Cluster, load: &Load) -> Self {
        let url = cluster.database().await;
        let Load { keys, limit, .. } = load;
        let setup = format!(
            "CREATE TABLE counter (key integer PRIMARY KEY, used integer NOT NULL, most integer NOT NULL)
                 WITH (fillfactor = 20);
             INSERT INTO counter SELECT key, 0, {limit} FROM generate_series(0, {keys} - 1) AS key;
             ANALYZE counter;"
        );
        execute(&url, &setup).await;
        Self { url, trips: Trips::default() }
    }
}

impl Budget for Counter {
    fn workers(&self) -> BoxFuture<'_, Vec<Box<dyn Worker>>> {
        Box::pin(async {
            let mut workers: Vec<Box<dyn Worker>> = Vec::new();
            for _ in 0..WORKERS {
                let connection = connect(&self.url).await;
                workers.push(Box::new(Row { connection, trips: self.trips.clone(), key: 0 }));
            }
            workers
        })
    }

    fn trips(&self) -> u64 {
        self.trips.total()
    }
}

impl Worker for Row {
    fn acquire(&mut self, key: i32) -> Acting<'_> {
        const TAKE: &str = "UPDATE counter SET used = used + 1 WHERE key = $1 AND used < most";
        Box::pin(async move {
            self.key = key;
            for tries in 0.. {
                self.trips.count();
                let update = sqlx::query(TAKE).bind(key).execute(&mut self.connection).await;
                if update.expect("the counter").rows_affected() == 1 {
                    return;
                }
                pause(tries).await;
            }
        })
    }

    fn release(&mut self) -> Acting<'_> {
        const GIVE: &str = "UPDATE counter SET used = used - 1 WHERE key = $1";
        Box::pin(async move {
            self.trips.count();
            let update = sqlx::query(GIVE).bind(self.key).execute(&mut self.connection).await;
            assert_eq!(update.expect("the counter").rows_affected(), 1);
        })
    }

    fn leave(self: Box<Self>) -> Acting<'static> {
        Box::pin(async {})
    }
}
