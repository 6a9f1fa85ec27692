//! The mistakes of a first hour, each with what the client says of it.

use std::io::Write;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_client::wire::Code;
use queue_client::{AcquireError, BuildError, CallError, CheckError, Endpoint, QueueClient};

use crate::scripted::{client, problem, waits};

/// An address at which nobody listens.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[tokio::test]
async fn a_wrong_address_is_an_error_of_the_check() {
    let client = QueueClient::builder().url(nobody()).silent().build().unwrap();
    let error = client.check().await.unwrap_err();
    let CheckError::Unreachable { error: told } = &error else { panic!("{error}") };
    assert!(told.contains("/v1/semaphores/") && told.contains("listens at that address"), "{told}");
}

#[tokio::test]
async fn a_program_that_returns_its_error_prints_a_sentence() {
    let (_client, semaphore, mut holder) = client();
    let mut acquire = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut acquire).await);
    let asked = holder.request_of(1).await;
    asked.answer(Err(CallError::NotFound(problem(404, Code::SemaphoreNotFound))));
    let error = acquire.await.unwrap_err();
    assert_eq!(
        format!("Error: {error:?}"),
        "Error: no policy covers the semaphore \"account:42\": make one, as with `pgsemaphore policy set 'account:42' \
         --limit 10`, then acquire again"
    );
    let key = "a'b\u{1b}[2J".to_owned();
    let error = AcquireError::SemaphoreNotFound { key }.to_string();
    assert!(error.contains(r"policy set 'a'\''b\u{1b}[2J'"), "{error}");
    let error = QueueClient::builder().url("127.0.0.1:7432").build().unwrap_err();
    assert!(format!("{error:?}").contains("write http://127.0.0.1:7432,"), "{error:?}");
    let _: &BuildError = &error;
}

#[tokio::test(start_paused = true)]
async fn a_check_asks_about_each_semaphore_in_the_name_of_nobody() {
    let (client, semaphore, mut holder) = client();
    let other = client.semaphore("account:43");
    let check = tokio::spawn({
        let client = client.clone();
        async move { client.check().await }
    });
    let first = holder.expect_of("account:42", Endpoint::Sync).await;
    assert_ne!(
        first.message.client_id,
        client.client_id(),
        "a sync in its own name would settle what others hold"
    );
    assert!(first.message.demand.is_empty() && first.message.grants.is_none() && !first.message.all);
    first.answer(Ok(queue_client::wire::Reply { v: 1, ..Default::default() }));
    let second = holder.expect_of("account:43", Endpoint::Sync).await;
    second.answer(Err(CallError::NotFound(problem(404, Code::SemaphoreNotFound))));
    let error = check.await.unwrap().unwrap_err();
    assert_eq!(error, CheckError::SemaphoreNotFound { key: "account:43".to_owned() });
    assert!(error.to_string().contains("pgsemaphore policy set 'account:43' --limit"), "{error}");

    drop((semaphore, other));
    for (answer, good) in [
        (CallError::NotFound(problem(404, Code::SemaphoreNotFound)), true),
        (CallError::Refused(problem(403, Code::Forbidden)), true),
        (CallError::Refused(problem(401, Code::Unauthenticated)), false),
    ] {
        let check = tokio::spawn({
            let client = client.clone();
            async move { client.check().await }
        });
        holder.expect(Endpoint::Sync).await.answer(Err(answer));
        assert_eq!(check.await.unwrap().is_ok(), good);
    }
    let check = tokio::spawn(async move { client.check().await });
    let _unanswered = holder.expect(Endpoint::Sync).await;
    assert!(check.await.unwrap().unwrap_err().to_string().contains("no answer in 15 s"));
}

/// What is logged in this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn start() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let lines = tracing_subscriber::fmt().with_ansi(false).without_time().with_target(false);
        let lines = lines.with_writer(move || writer.clone());
        (log, tracing::subscriber::set_default(lines.finish()))
    }

    fn lines(&self) -> Vec<String> {
        let written = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        written.lines().map(|line| line.trim().to_owned()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_wait_is_a_line_after_10_s_1_and_10_minutes() {
    let (log, _here) = Log::start();
    let (_client, semaphore, mut holder) = client();
    let mut acquire = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut acquire).await);
    let began = tokio::time::Instant::now();
    let mut told_at = Vec::new();
    while began.elapsed() < Duration::from_secs(3600) {
        holder.request_of(1).await.answer(holder.nothing(1));
        holder.rests().await;
        let lines = log.lines();
        if lines.len() > told_at.len() {
            told_at.push(began.elapsed().as_secs());
        }
    }
    let lines = log.lines();
    assert_eq!(lines.len(), 3, "{lines:?}");
    let expected = "INFO permits are waited for key=\"account:42\" group=\"\" waiting=1 reason=the shared limit is reached";
    assert!(lines.iter().all(|line| line.starts_with(expected) && line.contains("since=")), "{lines:?}");
    assert!(told_at[0] < 12 && told_at[1] < 62 && told_at[2] < 602, "{told_at:?}");
}

/// Each is one warning with names and numbers, however the client ends.
#[test]
fn a_forgotten_drain_is_a_warning_that_says_what_to_call() {
    let (log, _here) = Log::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, semaphore, mut holder) = client();
        let acquire = tokio::spawn(async move { semaphore.acquire_up_to("", 3).await });
        holder.request_of(3).await.answer(holder.grant("a", "", 3));
        holder.confirm_next().await;
        let permits = acquire.await.unwrap().unwrap();
        tokio::spawn(async move {
            let _permits = permits;
            std::future::pending::<()>().await;
        });
        drop(client);
        holder.rests().await;
    });
    assert_eq!(log.lines(), [""; 0]);
    drop(runtime);
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in ["WARN", "\"worker\"", "3 of \"account:42\"", "client.drain().await"] {
        assert!(lines[0].contains(part), "{lines:?}");
    }
}

#[test]
fn a_drained_client_warns_of_nothing() {
    let (log, _here) = Log::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, semaphore, mut holder) = client();
        let acquire = tokio::spawn(async move { semaphore.acquire("").await.map(drop) });
        holder.request_of(1).await.answer(holder.grant("a", "", 1));
        holder.confirm_next().await;
        acquire.await.unwrap().unwrap();
        let drained = tokio::spawn(async move { client.drain().await });
        holder.confirm_next().await;
        drained.await.unwrap().unwrap();
    });
    drop(runtime);
    assert_eq!(log.lines(), [""; 0]);
}
