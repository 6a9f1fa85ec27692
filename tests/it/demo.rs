//! The demo, as a person runs it: it judges itself, by the records of its workers.

use pgsemaphore_tests::Process;

#[tokio::test]
async fn the_demo_succeeds() {
    let (code, stdout, stderr) = Process::run(["demo"]).await;
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.contains("in both acts every job ran once"), "{stdout}");
}
