//! Sockets of callers: the kernel ends one whose machine, or the way to it, is gone without a word.
//!
//! *Why:* a request that waits sends nothing, so nothing fails when its caller vanishes. It would wait to its end, and take
//! permits that nobody hears of. Under TLS and HTTP/1.1 nothing but the kernel can ask the other side.
//! *Cost:* a few bytes each 5 s for a connection that idles.

use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;

/// After so long without a packet the kernel asks the other side whether it is there,
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// then each time after this,
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
/// and ends the connection when so many questions found no answer: after 14 s.
const KEEPALIVE_PROBES: u32 = 3;
/// What was sent has to be acknowledged within this. Linux takes it for the end of keepalives too, in place of the number
/// of probes: it is less than 14 s, so that the last probe is not one too early.
#[cfg(target_os = "linux")]
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(13);

/// Sets up the socket of a caller. Where that fails calls are served all the same; they only end later.
pub(super) fn set_up(stream: &TcpStream) {
    // Answers are small and awaited.
    let nodelay = stream.set_nodelay(true);
    if let Err(error) = nodelay.and_then(|()| keep_alive(&SockRef::from(stream))) {
        tracing::debug!(%error, "a socket can't be set up");
    }
}

fn keep_alive(socket: &SockRef<'_>) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(ACKNOWLEDGED_WITHIN))?;
    Ok(())
}
