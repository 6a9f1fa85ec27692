//! One connection: TLS if there is any, then HTTP/1.1 or HTTP/2 until it ends, idles too long, or the holder stops.

use super::socket;
use super::tls::Tls;
use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// How long a caller may take: for the handshake of TLS, for the head of a call, for a body, and until it makes its next
/// call over the same connection.
pub(super) const PATIENCE: Duration = Duration::from_secs(25);
/// A connection that is told to end may take this long for its goodbye.
pub(super) const GOODBYE: Duration = Duration::from_secs(1);
/// The other side of an HTTP/2 connection is asked this often whether it lives, and has as long to answer: calls of a
/// machine that is gone end within 14 s, also where a proxy keeps its own connection open. See `socket.rs` for HTTP/1.1.
const PING: Duration = Duration::from_secs(7);
/// Most bytes of a connection that are read before they are understood.
const BUFFER_MAX_BYTES: usize = 64 * 1024;
/// Most calls that one HTTP/2 connection may have under way. Clients keep one open for each key with a lease.
const CALLS_MAX: u32 = 4096;
/// What one HTTP/2 connection may have sent of bodies that nobody has read yet, and each of its calls.
const WINDOW_BYTES: u32 = 256 * 1024;
const CALL_WINDOW_BYTES: u32 = 64 * 1024;

/// How connections are told to end.
#[derive(Debug, Clone, Default)]
pub(super) struct End {
    /// With the calls that are under way.
    pub(super) soon: CancellationToken,
    /// Whatever is under way.
    pub(super) now: CancellationToken,
}

/// Who is on the other side; in the extensions of each request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer {
    /// It has a certificate of the authority for clients.
    pub(super) certified: bool,
}

/// Serves one connection to its end.
pub(super) async fn serve(stream: TcpStream, tls: Option<Tls>, router: Router, end: End) {
    socket::set_up(&stream);
    let Some(tls) = tls else { return speak(stream, Peer { certified: false }, router, end).await };
    tokio::select! {
        () = end.soon.cancelled() => {}
        accepted = tokio::time::timeout(PATIENCE, tls.accept(stream)) => match accepted {
            Ok(Ok(stream)) => {
                let certified = stream.get_ref().1.peer_certificates().is_some();
                speak(stream, Peer { certified }, router, end.clone()).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "a handshake failed"),
            Err(_) => tracing::debug!("a handshake took too long"),
        },
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
    end: End,
) {
    let under_way = watch::Sender::new(0_usize);
    let idle = idle(under_way.subscribe());
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let call = UnderWay::begin(&under_way);
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        let answer = router.clone().oneshot(request);
        async move {
            let _call = call;
            answer.await
        }
    });
    let builder = builder();
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let is_idle = tokio::select! {
        _ = connection.as_mut() => return,
        () = idle => true,
        () = end.soon.cancelled() => false,
    };
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        _ = connection => {}
        () = tokio::time::sleep(GOODBYE), if is_idle => {}
        () = end.now.cancelled() => {}
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // Heads that take too long are found by `idle`, which also sees those that don't say yet which HTTP they are.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(BUFFER_MAX_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_concurrent_streams(CALLS_MAX)
        .initial_connection_window_size(WINDOW_BYTES)
        .initial_stream_window_size(CALL_WINDOW_BYTES);
    builder
}

/// Ready when a connection had no call under way for as long as patience lasts.
async fn idle(mut under_way: watch::Receiver<usize>) {
    loop {
        if under_way.wait_for(|calls| *calls == 0).await.is_err() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(PATIENCE) => return,
            _ = under_way.changed() => {}
        }
    }
}

/// A call under way, counted until this is dropped.
struct UnderWay(watch::Sender<usize>);

impl UnderWay {
    fn begin(under_way: &watch::Sender<usize>) -> Self {
        under_way.send_modify(|calls| *calls += 1);
        Self(under_way.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|calls| *calls -= 1);
    }
}
