//! What a client says on standard error in a process without a log: in a process of its own, since a log that any test
//! sets up would take it.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use queue_client::QueueClient;

const URL: &str = "QUEUE_CLIENT_TEST_URL";
const SILENT: &str = "QUEUE_CLIENT_TEST_SILENT";

/// Waits for permits, in vain.
fn application(url: &str) {
    let builder = QueueClient::builder().url(url);
    let builder = if std::env::var_os(SILENT).is_some() { builder.silent() } else { builder };
    let client = builder.build().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for key in ["account:42", "account:43"] {
            client.semaphore(key).acquire_timeout("", Duration::from_secs(1)).await.unwrap_err();
        }
    });
}

/// This test, in another process, as the application.
fn start(url: &str, silent: bool) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("--nocapture").env(URL, url).stdin(Stdio::null());
    if silent {
        command.env(SILENT, "");
    }
    command.output().unwrap()
}

#[test]
fn a_wrong_address_is_one_line_on_standard_error() {
    if let Ok(url) = std::env::var(URL) {
        return application(&url);
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let told = start(&url, false);
    let text = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success(), "{text}");
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("queue-client: ")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(lines[0].contains("no holder answers") && lines[0].contains(&url), "{text}");
    let silent = start(&url, true);
    assert!(silent.status.success() && !String::from_utf8_lossy(&silent.stderr).contains("queue-client: "));
}
