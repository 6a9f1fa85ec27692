//! O-13: an application whose client is a `static`, tested by `#[tokio::test]`: each test has a runtime of its own, which
//! ends with the test, and all use the one client. The budget is one permit, so a release that went down with its
//! runtime would leave every later test waiting.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use queue_client::wire::{Blocked, GrantVerdict, Message, Reason, Reply, Status, TakenOver, Takeover};
use queue_client::{AcquireError, Calling, Endpoint, QueueClient, Transport};

/// The application.
mod application {
    use super::{AcquireError, Budget, LazyLock, QueueClient};

    static CLIENT: LazyLock<QueueClient> =
        LazyLock::new(|| QueueClient::builder().transport(Budget::default()).silent().build().unwrap());

    pub(super) async fn charge(account: &str, cents: u64) -> Result<u64, AcquireError> {
        let _permit = CLIENT.semaphore(account).acquire("").await?;
        Ok(cents)
    }
}

async fn charges() {
    for cents in 0..20 {
        let charged = tokio::time::timeout(Duration::from_secs(60), application::charge("account:42", cents));
        assert_eq!(charged.await.expect("a permit").unwrap(), cents);
    }
}

#[tokio::test]
async fn a_charge_is_made() {
    charges().await;
}

#[tokio::test]
async fn another_charge_is_made() {
    charges().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_is_made_by_many_threads() {
    charges().await;
}

#[test]
fn a_worker_that_restarts_its_runtime_charges_on() {
    for _ in 0..10 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(charges());
    }
}

/// A holder in memory, with a limit of one permit.
#[derive(Default)]
struct Budget(Mutex<Accounts>);

#[derive(Default)]
struct Accounts {
    round: u64,
    /// Whether it is claimed, of grants that are not released.
    open: BTreeMap<String, bool>,
}

impl Accounts {
    fn hear(&mut self, message: &Message) -> Vec<GrantVerdict> {
        let reports = message.grants.iter().flatten();
        let verdicts = reports.map(|report| {
            if report.released > 0 || !self.open.contains_key(&report.id) {
                self.open.remove(&report.id);
                return verdict(&report.id, self.round, Status::Settled, report.claimed);
            }
            self.open.insert(report.id.clone(), report.claimed > 0);
            verdict(&report.id, self.round, Status::Active, report.claimed)
        });
        let mut verdicts: Vec<GrantVerdict> = verdicts.collect();
        if message.all {
            let known: Vec<String> = verdicts.iter().map(|verdict| verdict.id.clone()).collect();
            self.open.retain(|id, _| known.contains(id));
        }
        verdicts.retain(|verdict| verdict.status == Status::Active || !self.open.contains_key(&verdict.id));
        verdicts
    }

    fn serve(&mut self, message: &Message) -> Reply {
        self.round += 1;
        let mut grants = self.hear(message);
        let mut blocked = Vec::new();
        let wanted = message.demand.iter().map(|entry| entry.count).sum::<u64>();
        if wanted > 0 && self.open.is_empty() {
            let id = format!("{}-1", self.round);
            grants.push(verdict(&id, self.round, Status::Active, 0));
            self.open.insert(id, false);
        } else if wanted > 0 {
            blocked.push(Blocked { group: String::new(), count: wanted, reason: Reason::Limit });
        }
        Reply { v: 1, round: self.round, grants, blocked, ..Reply::default() }
    }
}

fn verdict(id: &str, round: u64, status: Status, claimed: u64) -> GrantVerdict {
    GrantVerdict {
        id: id.to_owned(),
        status,
        round: Some(round),
        group: Some(String::new()),
        permits: Some(1),
        claimed: Some(claimed),
        released: Some(u64::from(status == Status::Settled)),
        claim_within_ms: Some(60_000),
    }
}

impl Transport for Budget {
    fn call<'a>(&'a self, _: &'a str, endpoint: Endpoint, message: &'a Message) -> Calling<'a> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            let mut accounts = self.0.lock().unwrap();
            Ok(match endpoint {
                Endpoint::Request => accounts.serve(message),
                Endpoint::Sync => {
                    Reply { v: 1, round: accounts.round, grants: accounts.hear(message), ..Reply::default() }
                }
            })
        })
    }

    fn take_over<'a>(&'a self, _: &'a str, _: &'a Takeover) -> Calling<'a, TakenOver> {
        Box::pin(async { Ok(TakenOver::default()) })
    }
}
