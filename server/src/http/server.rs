//! The loop that takes connections.

use super::access::Gate;
use super::browsers::Hosts;
use super::connection::{self, End, GOODBYE};
use super::forward::Forward;
use super::peers::Peers;
use super::router::{Service, router};
use super::tls::Tls;
use crate::access::Access;
use crate::clock;
use crate::holder::Holder;
use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::Receiver;
use tokio_util::task::TaskTracker;

/// Pause after an attempt to take a connection failed: what is short, of files or memory, may come back.
const PAUSE: Duration = Duration::from_millis(100);
/// Failures are logged this often.
const COMPLAIN_EVERY: Duration = Duration::from_secs(1);

/// Who may call, how, and how many at once.
#[derive(Debug, Clone)]
pub struct Options {
    /// Who may do what.
    pub access: Access,
    /// Certificates, if connections are encrypted.
    pub tls: Option<Tls>,
    /// How other holders are called; none: nothing is passed on to them.
    pub peers: Option<Peers>,
    /// Most connections at once; further ones wait until one ends.
    pub connections: usize,
    /// Whether it may be called by any name although it wants no token, and not by those of its own machine alone.
    pub any_host: bool,
}

impl Default for Options {
    /// Everybody on this machine may do everything, in the clear; nothing is passed on.
    fn default() -> Self {
        Self { access: Access::default(), tls: None, peers: None, connections: 10_000, any_host: false }
    }
}

/// Serves until it is `asked` to end, or nobody can ask any more. Then the holder leaves and stops, calls that were under
/// way are answered, and connections are closed: within 6 s, or at once if it is asked again. No failure to take a
/// connection ends it.
pub async fn serve(listener: TcpListener, holder: Holder, options: Options, mut asked: Receiver<()>) {
    let hosts = if options.any_host || options.access.needs_token() {
        Hosts::Any
    } else {
        Hosts::Own(listener.local_addr().map_or(Ipv4Addr::UNSPECIFIED.into(), |address| address.ip()))
    };
    let forward = Forward::new(options.peers, options.access.needs_token());
    let gate = Gate {
        access: options.access,
        certificate: options.tls.as_ref().is_some_and(Tls::wants_certificate),
        holder: holder.clone(),
    };
    let router = router(Service { holder: holder.clone(), forward }, gate, hosts);
    let places = Arc::new(Semaphore::new(options.connections));
    let (connections, end) = (TaskTracker::new(), End::default());
    let taking = async {
        let mut complained = None;
        // The semaphore is never closed.
        while let Ok(place) = places.clone().acquire_owned().await {
            let stream = take(&listener, &mut complained).await;
            let serving = connection::serve(stream, options.tls.clone(), router.clone(), end.clone());
            connections.spawn(async move {
                serving.await;
                drop(place);
            });
        }
    };
    let left = async {
        asked.recv().await;
        holder.leave().await;
    };
    tokio::select! {
        () = taking => {}
        () = left => {}
    }
    drop(listener);
    end.soon.cancel();
    tokio::select! {
        () = holder.stop() => {}
        Some(()) = asked.recv() => holder.abandon(),
    }
    connections.close();
    if tokio::time::timeout(GOODBYE, connections.wait()).await.is_err() {
        end.now.cancel();
        connections.wait().await;
    }
}

/// The next connection, however long that takes.
async fn take(listener: &TcpListener, complained: &mut Option<Instant>) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) if ended_already(&error) => {}
            Err(error) => {
                if complained.is_none_or(|at| at.elapsed() >= COMPLAIN_EVERY) {
                    *complained = Some(clock::now());
                    tracing::error!(%error, "can't take connections; is the limit of open files too low?");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// That connection is broken; the next one may be fine.
fn ended_already(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset
    )
}
