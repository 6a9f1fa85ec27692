//! Many tasks on many threads, some of which give up, against a holder that loses every seventh reply.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_client::wire::{Blocked, GrantVerdict, Message, Reason, Reply, Status, TakenOver, Takeover};
use queue_client::{CallError, Calling, Endpoint, QueueClient, Transport};

const LIMIT: u64 = 5;
const ITEMS: u64 = 200;

#[derive(Default)]
struct Accounts {
    round: u64,
    calls: u64,
    grants: BTreeMap<String, GrantVerdict>,
}

#[derive(Clone, Default)]
struct Holder(Arc<Mutex<Accounts>>);

impl Transport for Holder {
    fn call<'a>(&'a self, _key: &'a str, endpoint: Endpoint, message: &'a Message) -> Calling<'a> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            let mut accounts = self.0.lock().unwrap();
            let reply = accounts.answer(endpoint, message);
            accounts.calls += 1;
            if accounts.calls.is_multiple_of(7) {
                Err(CallError::Unreachable("lost".into()))
            } else {
                Ok(reply)
            }
        })
    }

    fn take_over<'a>(&'a self, _: &'a str, _: &'a Takeover) -> Calling<'a, TakenOver> {
        Box::pin(async { Ok(TakenOver::default()) })
    }
}

impl Accounts {
    fn answer(&mut self, endpoint: Endpoint, message: &Message) -> Reply {
        let reports = message.grants.as_deref().unwrap_or_default();
        let mut verdicts = Vec::new();
        for report in reports {
            match self.grants.get_mut(&report.id) {
                Some(grant) => {
                    grant.claimed = grant.claimed.max(Some(report.claimed));
                    grant.released = grant.released.max(Some(report.released));
                }
                None => verdicts.push(GrantVerdict {
                    id: report.id.clone(),
                    status: Status::NotFound,
                    ..open_grant(0, "", 0)
                }),
            }
        }
        self.grants.retain(|_, grant| grant.released < grant.permits);
        let mut blocked = Vec::new();
        if endpoint == Endpoint::Request {
            self.round += 1;
            for entry in &message.demand {
                let again = self.grants.values().filter(|grant| grant.round > Some(message.seen));
                let again = again.filter(|grant| grant.group.as_deref() == Some(&entry.group));
                let wanted = entry.count.saturating_sub(again.map(counted).sum());
                let permits = wanted.min(LIMIT.saturating_sub(self.grants.values().map(counted).sum()));
                if permits > 0 {
                    let grant = open_grant(self.round, &entry.group, permits);
                    self.grants.insert(grant.id.clone(), grant);
                }
                if wanted > permits {
                    let (group, count) = (entry.group.clone(), wanted - permits);
                    blocked.push(Blocked { group, count, reason: Reason::Limit });
                }
            }
        }
        let told = |grant: &&GrantVerdict| {
            grant.round > Some(message.seen) || reports.iter().any(|report| report.id == grant.id)
        };
        verdicts.extend(self.grants.values().filter(told).cloned());
        Reply { v: 1, round: self.round, grants: verdicts, blocked, ..Reply::default() }
    }
}

fn open_grant(round: u64, group: &str, permits: u64) -> GrantVerdict {
    GrantVerdict {
        id: format!("{round}-{group}"),
        status: Status::Active,
        round: Some(round),
        group: Some(group.to_owned()),
        permits: Some(permits),
        claimed: Some(0),
        released: Some(0),
        claim_within_ms: Some(10_000),
    }
}

fn counted(grant: &GrantVerdict) -> u64 {
    grant.permits.unwrap() - grant.released.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_limit_holds_everyone_is_served_and_all_comes_back() {
    let holder = Holder::default();
    let client = QueueClient::builder().transport(holder.clone()).build().unwrap();
    let running = Arc::new(AtomicU64::new(0));
    let items = (0..ITEMS).map(|n| {
        let (semaphore, running) = (client.semaphore("k"), running.clone());
        tokio::spawn(async move {
            let group = if n % 3 == 0 { "nightly" } else { "" };
            if n % 5 == 0 {
                // Gives up after a moment, perhaps with the permit on its way.
                let _ = tokio::time::timeout(Duration::from_micros(n * 50), semaphore.acquire(group)).await;
                return;
            }
            let permit = semaphore.acquire(group).await.unwrap();
            assert!(running.fetch_add(1, Ordering::SeqCst) < LIMIT);
            tokio::task::yield_now().await;
            running.fetch_sub(1, Ordering::SeqCst);
            drop(permit);
        })
    });
    let hang = Duration::from_secs(300);
    for item in items.collect::<Vec<_>>() {
        tokio::time::timeout(hang, item).await.unwrap().unwrap();
    }
    tokio::time::timeout(hang, client.drain()).await.unwrap().unwrap();
    assert!(holder.0.lock().unwrap().grants.is_empty());
}
