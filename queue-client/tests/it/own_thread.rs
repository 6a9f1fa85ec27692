//! A client with a thread of its own goes on while the application blocks its runtime, and after that has ended.

use std::sync::mpsc;
use std::time::Duration;

use queue_client::wire::{GrantVerdict, Message, Reply, Status, TakenOver, Takeover};
use queue_client::{Calling, Endpoint, QueueClient, Transport};

const HANG: Duration = Duration::from_secs(60);

/// Grants what is asked for, wants to hear often, and tells of each sync.
struct Eager(mpsc::Sender<Vec<(u64, u64)>>);

impl Transport for Eager {
    fn call<'a>(&'a self, _: &'a str, endpoint: Endpoint, message: &'a Message) -> Calling<'a> {
        let open = |id: &str, claimed: u64, released: u64| GrantVerdict {
            id: id.to_owned(),
            status: if released > 0 { Status::Settled } else { Status::Active },
            round: Some(1),
            group: Some(String::new()),
            permits: Some(1),
            claimed: Some(claimed),
            released: Some(released),
            claim_within_ms: Some(10_000),
        };
        let reports = message.grants.as_deref().unwrap_or_default();
        let grants = match endpoint {
            Endpoint::Request => message.demand.iter().map(|_| open("a", 0, 0)).collect(),
            Endpoint::Sync => {
                let _ = self.0.send(reports.iter().map(|report| (report.claimed, report.released)).collect());
                reports.iter().map(|report| open(&report.id, report.claimed, report.released)).collect()
            }
        };
        let reply = Reply { v: 1, round: 1, grants, report_within_ms: Some(100), ..Reply::default() };
        Box::pin(async move { Ok(reply) })
    }

    fn take_over<'a>(&'a self, _: &'a str, _: &'a Takeover) -> Calling<'a, TakenOver> {
        Box::pin(async { Ok(TakenOver::default()) })
    }
}

fn eager() -> (QueueClient, mpsc::Receiver<Vec<(u64, u64)>>) {
    let (syncs, heard) = mpsc::channel();
    (QueueClient::builder().transport(Eager(syncs)).own_thread().build().unwrap(), heard)
}

#[test]
fn heartbeats_go_out_while_the_runtime_is_blocked_and_reports_after_its_end() {
    let (client, heard) = eager();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let permit = runtime.block_on(async {
        let permit = client.semaphore("k").acquire("").await.unwrap();
        for _ in 0..3 {
            assert_eq!(heard.recv_timeout(HANG).unwrap(), [(1, 0)], "the claim, and heartbeats");
        }
        permit
    });
    drop(runtime);
    drop(permit);
    while heard.recv_timeout(HANG).unwrap() != [(1, 1)] {}
}

#[test]
fn the_thread_ends_with_the_client() {
    let (client, heard) = eager();
    let semaphore = client.semaphore("k");
    drop(client);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    drop(runtime.block_on(semaphore.acquire("")).unwrap());
    drop(semaphore);
    let end = loop {
        match heard.recv_timeout(HANG) {
            Ok(_) => {}
            Err(end) => break end,
        }
    };
    assert_eq!(end, mpsc::RecvTimeoutError::Disconnected, "the transport is dropped with the client");
}
