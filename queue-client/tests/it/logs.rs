//! What the application's log says of a client: that something goes on is told when it begins and when it ends.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_client::wire::{Code, Reply, Status};
use queue_client::{CallError, Endpoint};
use tokio::time::advance;
use tracing::subscriber::DefaultGuard;

use crate::scripted::{Asked, Holder, client, problem, waits};

/// What is logged in this thread, from level info on.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn start() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let lines = tracing_subscriber::fmt().with_ansi(false).without_time().with_target(false);
        let lines = lines.with_max_level(tracing::Level::INFO).with_writer(move || writer.clone());
        (log, tracing::subscriber::set_default(lines.finish()))
    }

    /// Levels and texts since the last time.
    fn take(&self) -> Vec<String> {
        let written = std::mem::take(&mut *self.0.lock().unwrap());
        let lines = String::from_utf8(written).unwrap();
        // Without the fields, of which the first is the key or what is said of it.
        lines.lines().map(|line| line.trim().split(" key=").next().unwrap().to_owned()).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn fail(holder: &Holder, asked: Asked, error: CallError) {
    asked.answer(Err(error));
    holder.rests().await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_a_line_when_it_begins_and_one_when_it_ends() {
    let (log, _here) = Log::start();
    let (_client, semaphore, mut holder) = client();
    let mut acquire = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut acquire).await);
    for _ in 0..20 {
        let asked = holder.next().await;
        fail(&holder, asked, CallError::Unreachable("no route".into())).await;
        let asked = holder.next().await;
        fail(&holder, asked, CallError::RetryLater { after: None, detail: "503".to_owned() }).await;
    }
    let waits = "WARN permits are waited for";
    assert_eq!(log.take(), ["WARN no holder answers: calls are repeated until one does", waits, waits]);
    holder.request_of(1).await.answer(holder.nothing(1));
    holder.confirm_next().await;
    holder.request_of(1).await.answer(holder.nothing(1));
    holder.rests().await;
    assert_eq!(log.take(), ["INFO a holder answers again"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_counted_any_more_is_told_once() {
    let (log, _here) = Log::start();
    let (_client, semaphore, mut holder) = client();
    let acquire = tokio::spawn(async move { semaphore.acquire_up_to("", 2).await });
    holder.request_of(2).await.answer(holder.grant("a", "", 2));
    holder.confirm_next().await;
    let mut permits = acquire.await.unwrap().unwrap();
    assert_eq!(log.take(), [""; 0]);

    drop(permits.pop());
    let asked = holder.expect(Endpoint::Sync).await;
    let mut settled = holder.confirm(&asked).unwrap();
    settled.grants.iter_mut().for_each(|grant| grant.status = Status::Settled);
    asked.answer(Ok(settled));
    holder.rests().await;
    assert_eq!(log.take(), ["WARN the holder no longer counts items that still run"]);
    assert!(!permits[0].is_counted());
    drop(permits);
    assert!(holder.is_quiet().await);
    assert_eq!(log.take(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_shut_out_says_so_once() {
    let (log, _here) = Log::start();
    let (_client, semaphore, mut holder) = client();
    let acquire = {
        let semaphore = semaphore.clone();
        tokio::spawn(async move { semaphore.acquire("").await })
    };
    holder.request_of(1).await.answer(holder.grant("a", "", 1));
    holder.confirm_next().await;
    let permit = acquire.await.unwrap().unwrap();
    let mut other = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut other).await);
    let asked = holder.request_of(1).await;
    fail(&holder, asked, CallError::Fenced { generation: Some(9) }).await;
    assert!(other.await.is_err() && semaphore.acquire("").await.is_err());
    let told = "ERROR this process is shut out: what runs on the semaphore is not counted";
    assert_eq!(log.take(), [told]);
    drop(permit);
    holder.rests().await;
    assert_eq!(log.take(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn reports_that_are_refused_for_hours_are_one_line() {
    let (log, _here) = Log::start();
    let (_client, semaphore, mut holder) = client();
    let acquire = tokio::spawn(async move { semaphore.acquire("").await });
    holder.request_of(1).await.answer(holder.grant("a", "", 1));
    holder.confirm_next().await;
    drop(acquire.await.unwrap().unwrap());
    for _ in 0..50 {
        let asked = holder.expect(Endpoint::Sync).await;
        fail(&holder, asked, CallError::Refused(problem(401, Code::Unauthenticated))).await;
    }
    assert_eq!(log.take(), ["WARN the holder refuses: calls are repeated"]);
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_is_late_is_a_line() {
    let (log, _here) = Log::start();
    let (_client, semaphore, mut holder) = client();
    let acquire = tokio::spawn(async move { semaphore.acquire("").await });
    holder.request_of(1).await.answer(holder.grant("a", "", 1));
    let claim = holder.expect(Endpoint::Sync).await;
    let told = Reply { report_within_ms: Some(1_000), ..holder.confirm(&claim).unwrap() };
    claim.answer(Ok(told));
    let _permit = acquire.await.unwrap().unwrap();
    advance(Duration::from_secs(5)).await; // as if nothing had run meanwhile
    holder.expect(Endpoint::Sync).await;
    let lines = log.take();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("WARN a heartbeat is late: something blocks the runtime"), "{lines:?}");
}
