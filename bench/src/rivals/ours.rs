//! Ours, end to end: a holder as a process of its own, and the real client crate over HTTP.

use super::{Acting, Budget, WORKERS, Worker};
use crate::cluster::Cluster;
use futures_util::future::BoxFuture;
use pgsemaphore_tests::{Caller, Proxy, Serve};
use queue_client::{Group, Permit, QueueClient};
use serde_json::Value;
use std::collections::BTreeMap;

/// Clients, as of so many processes; each has an equal part of the workers.
pub const CLIENTS: usize = 4;

pub struct Ours {
    holder: Serve,
    /// Between the holder and PostgreSQL, where round trips are counted.
    proxy: Option<Proxy>,
}

struct Member {
    client: QueueClient,
    /// By key; a handle to draw from is kept, as an application would.
    groups: BTreeMap<i32, Group>,
    held: Option<Permit>,
}

impl Ours {
    /// A holder over a new database, with this policy for all keys.
    pub async fn start(cluster: &Cluster, policy: &Value) -> Self {
        let database = cluster.migrated().await;
        Self::over(&database, None, policy).await
    }

    /// The same, with its round trips counted, which slows it down.
    pub async fn start_counted(cluster: &Cluster, policy: &Value) -> Self {
        let database = cluster.migrated().await;
        let proxy = Proxy::before(&database).await;
        Self::over(&proxy.through(&database), Some(proxy), policy).await
    }

    async fn over(database: &str, proxy: Option<Proxy>, policy: &Value) -> Self {
        let holder = Serve::start(database).await;
        Caller::of(holder.url()).policy("*", policy).await;
        Self { holder, proxy }
    }

    pub fn url(&self) -> &str {
        self.holder.url()
    }
}

impl Budget for Ours {
    fn workers(&self) -> BoxFuture<'_, Vec<Box<dyn Worker>>> {
        let mut workers: Vec<Box<dyn Worker>> = Vec::new();
        for _ in 0..CLIENTS {
            let client = QueueClient::builder().url(self.url()).build().expect("a client");
            for _ in 0..WORKERS / CLIENTS {
                let groups = BTreeMap::new();
                workers.push(Box::new(Member { client: client.clone(), groups, held: None }));
            }
        }
        Box::pin(async { workers })
    }

    fn trips(&self) -> u64 {
        self.proxy.as_ref().map_or(0, Proxy::round_trips)
    }
}

impl Worker for Member {
    fn acquire(&mut self, key: i32) -> Acting<'_> {
        Box::pin(async move {
            let client = &self.client;
            let group =
                self.groups.entry(key).or_insert_with(|| client.semaphore(format!("key-{key}")).group(""));
            self.held = Some(group.acquire().await.expect("a permit"));
        })
    }

    fn release(&mut self) -> Acting<'_> {
        self.held = None;
        Box::pin(async {})
    }

    fn leave(self: Box<Self>) -> Acting<'static> {
        Box::pin(async move { self.client.drain().await.expect("everything goes back") })
    }
}
