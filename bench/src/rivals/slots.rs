//! A row for each permit; who takes one skips those that others are taking. Polls; a worker that dies leaves its row taken.

use super::{Acting, Budget, Trips, WORKERS, Worker, pause};
use crate::cluster::{Cluster, connect, execute};
use crate::load::Load;
use futures_util::future::BoxFuture;
use sqlx::PgConnection;

pub struct Slots {
    url: String,
    trips: Trips,
}

struct Taker {
    connection: PgConnection,
    trips: Trips,
    number: i32,
    taken: (i32, i32),
}

impl Slots {
    pub async fn new(cluster: &Cluster, load: &Load) -> Self {
        let url = cluster.database().await;
        let Load { keys, limit, .. } = load;
        let setup = format!(
            "CREATE TABLE slots (key integer, slot integer, owner integer, PRIMARY KEY (key, slot))
                 WITH (fillfactor = 50);
             INSERT INTO slots SELECT key, slot, NULL
                 FROM generate_series(0, {keys} - 1) AS key, generate_series(1, {limit}) AS slot;
             ANALYZE slots;"
        );
        execute(&url, &setup).await;
        Self { url, trips: Trips::default() }
    }
}

impl Budget for Slots {
    fn workers(&self) -> BoxFuture<'_, Vec<Box<dyn Worker>>> {
        Box::pin(async {
            let mut workers: Vec<Box<dyn Worker>> = Vec::new();
            for number in 0..WORKERS {
                let connection = connect(&self.url).await;
                let number = i32::try_from(number).expect("few workers");
                let trips = self.trips.clone();
                workers.push(Box::new(Taker { connection, trips, number, taken: (0, 0) }));
            }
            workers
        })
    }

    fn trips(&self) -> u64 {
        self.trips.total()
    }
}

impl Worker for Taker {
    fn acquire(&mut self, key: i32) -> Acting<'_> {
        const TAKE: &str = "
            UPDATE slots SET owner = $2
            WHERE key = $1 AND slot = (
                SELECT slot FROM slots WHERE key = $1 AND owner IS NULL LIMIT 1 FOR UPDATE SKIP LOCKED
            )
            RETURNING slot";
        Box::pin(async move {
            for tries in 0.. {
                self.trips.count();
                let query = sqlx::query_scalar(TAKE).bind(key).bind(self.number);
                let slot = query.fetch_optional(&mut self.connection).await.expect("the slots");
                if let Some(slot) = slot {
                    self.taken = (key, slot);
                    return;
                }
                pause(tries).await;
            }
        })
    }

    fn release(&mut self) -> Acting<'_> {
        const GIVE: &str = "UPDATE slots SET owner = NULL WHERE key = $1 AND slot = $2";
        Box::pin(async move {
            self.trips.count();
            let (key, slot) = self.taken;
            let update = sqlx::query(GIVE).bind(key).bind(slot).execute(&mut self.connection).await;
            assert_eq!(update.expect("the slots").rows_affected(), 1);
        })
    }

    fn leave(self: Box<Self>) -> Acting<'static> {
        Box::pin(async {})
    }
}
