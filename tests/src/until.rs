//! Waiting on a condition instead of for a time.

use std::time::Duration;

/// The hang guard: far longer than anything a test waits for, so reaching it means that it will never happen.
pub const HANG: Duration = Duration::from_secs(180);

pub(crate) const PAUSE: Duration = Duration::from_millis(10);

/// Waits until `condition` answers true.
///
/// # Panics
///
/// When that has not happened after [`HANG`].
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    until_some(what, async || condition().await.then_some(())).await;
}

/// Waits until `probe` answers something, and returns it.
///
/// # Panics
///
/// When that has not happened after [`HANG`].
pub async fn until_some<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    within_reason(what, async {
        loop {
            if let Some(found) = probe().await {
                return found;
            }
            tokio::time::sleep(PAUSE).await;
        }
    })
    .await
}

/// Waits for `future`.
///
/// # Panics
///
/// When it has not ended after [`HANG`].
pub async fn within_reason<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(HANG, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {} s in vain: {what}", HANG.as_secs()),
    }
}
