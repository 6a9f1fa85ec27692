//! A TCP proxy that misbehaves on demand: between client and holder, or between holder and PostgreSQL.
//!
//! What it does can be changed at any moment, for connections that are open as well. It counts what it sees, so that a
//! test waits for an event ("the COMMIT has gone through") and not for a time.

mod scan;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scan::{PgFrames, Scan};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From who connected to the target.
    ToTarget,
    /// Back.
    ToCaller,
}

/// What happens to bytes that go one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They arrive.
    Pass,
    /// They arrive this much later.
    Delay(Duration),
    /// They never arrive, and no one is told: a black hole. One way only makes a half-open connection.
    Drop,
    /// At most this many at once, with a pause of 10 ms after each.
    Throttle(usize),
    /// Connections end, and new ones end at once.
    Cut,
    /// Connections end after this many more bytes, counted in each one.
    CutAfter(usize),
}

/// What happens when a pattern goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// The connection ends before the pattern arrives.
    CutBefore,
    /// Neither the pattern nor anything later arrives, and no one is told.
    Hold,
    /// The pattern arrives and is answered; the connection ends in place of the answer.
    CutAnswer,
    /// The pattern arrives and is answered; neither the answer nor anything later arrives, and no one is told.
    SwallowAnswer,
}

/// `COMMIT` as a message to PostgreSQL, which no text of a query can be taken for.
pub const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

/// The beginning of a client's call, of which a connection carries one after the other.
const CALL: &[u8] = b"POST /v1/semaphores/";

/// How an HTTP/2 connection begins.
const HTTP2: &[u8] = b"PRI * HTTP/2.0";

/// Waits for a pattern in the bytes that go to the target.
#[derive(Debug, Clone)]
struct Trap {
    pattern: Vec<u8>,
    act: Act,
    /// How often it is still sprung.
    left: u64,
}

/// The proxy; it ends with this value, and so do its connections.
#[derive(Debug)]
#[must_use = "the proxy ends when this value is dropped"]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _accepts: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<String>,
    modes: watch::Sender<[Mode; 2]>,
    trap: Mutex<Option<Trap>>,
    sprung: AtomicU64,
    /// Percentage of answers that end the connection instead of arriving.
    lost_answers: AtomicU64,
    accepted: AtomicU64,
    open: AtomicU64,
    in_transaction: AtomicU64,
    round_trips: AtomicU64,
    calls: AtomicU64,
    /// HTTP/2 connections end at once.
    http1_only: bool,
    /// Ends the connections that are open now.
    cut: Mutex<CancellationToken>,
}

impl Proxy {
    /// Starts a proxy before `target`: `HOST:PORT`, or a URL that holds one.
    ///
    /// # Panics
    ///
    /// When no port is free.
    pub async fn before(target: &str) -> Self {
        Self::start(target, false).await
    }

    /// As [`Proxy::before`], without HTTP/2, in which neither patterns nor calls can be found.
    ///
    /// # Panics
    ///
    /// When no port is free.
    pub async fn of_http1(target: &str) -> Self {
        Self::start(target, true).await
    }

    async fn start(target: &str, http1_only: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            target: Mutex::new(host_and_port(target).to_owned()),
            modes: watch::Sender::new([Mode::Pass; 2]),
            trap: Mutex::default(),
            sprung: AtomicU64::new(0),
            lost_answers: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            open: AtomicU64::new(0),
            in_transaction: AtomicU64::new(0),
            round_trips: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            http1_only,
            cut: Mutex::default(),
        });
        let accepts = AbortOnDropHandle::new(tokio::spawn(accept(listener, shared.clone())));
        Self { address, shared, _accepts: accepts }
    }

    /// The URL, with this proxy in place of the host and port in it.
    #[must_use]
    pub fn through(&self, url: &str) -> String {
        url.replace(host_and_port(url), &self.address.to_string())
    }

    /// New connections go here from now on.
    pub fn retarget(&self, target: &str) {
        *lock(&self.shared.target) = host_and_port(target).to_owned();
    }

    /// Both ways.
    pub fn set(&self, mode: Mode) {
        self.shared.modes.send_replace([mode; 2]);
    }

    /// One way; the other stays as it is.
    pub fn set_way(&self, way: Way, mode: Mode) {
        self.shared.modes.send_modify(|modes| modes[way as usize] = mode);
    }

    /// Ends the connections that are open; new ones are taken.
    pub fn cut_open_connections(&self) {
        std::mem::take(&mut *lock(&self.shared.cut)).cancel();
    }

    /// The next `times` times that `pattern` goes to the target, this happens to the connection.
    pub fn trap(&self, pattern: &[u8], act: Act, times: u64) {
        *lock(&self.shared.trap) = Some(Trap { pattern: pattern.to_vec(), act, left: times });
    }

    /// How often traps were sprung.
    #[must_use]
    pub fn sprung(&self) -> u64 {
        self.shared.sprung.load(Ordering::SeqCst)
    }

    /// So many of a hundred answers end their connection instead of arriving.
    pub fn lose_answers(&self, percent: u64) {
        self.shared.lost_answers.store(percent, Ordering::SeqCst);
    }

    /// Connections taken so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Connections that are open.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// How often PostgreSQL said "ready for the next query", on all connections.
    #[must_use]
    pub fn round_trips(&self) -> u64 {
        self.shared.round_trips.load(Ordering::SeqCst)
    }

    /// Requests and syncs that clients made, whatever became of them.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::SeqCst)
    }

    /// Of the round trips, how often within a transaction: BEGIN and all that follows, but not the end of the transaction.
    #[must_use]
    pub fn round_trips_in_transactions(&self) -> u64 {
        self.shared.in_transaction.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((caller, _)) = listener.accept().await {
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        connections.spawn(connect(caller, shared.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn connect(caller: TcpStream, shared: Arc<Shared>) {
    if shared.modes.borrow().contains(&Mode::Cut) {
        return;
    }
    let target = lock(&shared.target).clone();
    let Ok(target) = TcpStream::connect(target).await else { return };
    let _ = (caller.set_nodelay(true), target.set_nodelay(true));
    shared.open.fetch_add(1, Ordering::SeqCst);
    let ((from_caller, to_caller), (from_target, to_target)) = (caller.into_split(), target.into_split());
    let (act, acted) = watch::channel(None);
    let cut = lock(&shared.cut).clone();
    let there = Pump { way: Way::ToTarget, shared: &shared, act: &act, acted: acted.clone() };
    let back = Pump { way: Way::ToCaller, shared: &shared, act: &act, acted };
    // Whoever ends it, both halves go: a proxy that kept one open would invent a half-open connection.
    tokio::select! {
        _ = there.run(from_caller, to_target) => {}
        _ = back.run(from_target, to_caller) => {}
        () = cut.cancelled() => {}
    }
    shared.open.fetch_sub(1, Ordering::SeqCst);
}

/// Carries the bytes of one connection one way.
struct Pump<'a> {
    way: Way,
    shared: &'a Shared,
    /// What a trap does to this connection.
    act: &'a watch::Sender<Option<Act>>,
    acted: watch::Receiver<Option<Act>>,
}

impl Pump<'_> {
    /// Until the connection is to end.
    async fn run(mut self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> Option<()> {
        let mut modes = self.shared.modes.subscribe();
        let mut buffer = vec![0; 64 * 1024];
        let (mut scan, mut calls) = (Scan::default(), Scan::default());
        let mut frames = PgFrames::default();
        let mut passed = 0;
        loop {
            let mode = modes.borrow_and_update()[self.way as usize];
            let most = match mode {
                Mode::Cut => return None,
                Mode::CutAfter(bytes) if passed >= bytes => return None,
                Mode::CutAfter(bytes) => bytes - passed,
                Mode::Throttle(bytes) => bytes,
                _ => buffer.len(),
            };
            let room = most.clamp(1, buffer.len());
            let read = tokio::select! {
                read = from.read(&mut buffer[..room]) => read.ok().filter(|read| *read > 0)?,
                changed = modes.changed() => { changed.ok()?; continue }
            };
            let bytes = &buffer[..read];
            if self.way == Way::ToTarget {
                self.shared.calls.fetch_add(u64::from(calls.finds(CALL, bytes)), Ordering::SeqCst);
                self.spring(&mut scan, bytes)?;
                if *self.act.borrow() == Some(Act::Hold) {
                    continue;
                }
            } else if self.is_lost(bytes, &mut frames)? {
                continue;
            }
            // As it is now, not as it was when the bytes were waited for.
            let mode = modes.borrow_and_update()[self.way as usize];
            match mode {
                Mode::Cut => return None,
                Mode::Drop => continue,
                Mode::Delay(delay) => tokio::time::sleep(delay).await,
                Mode::Throttle(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                Mode::Pass | Mode::CutAfter(_) => {}
            }
            let http2 = self.way == Way::ToTarget && passed == 0 && bytes.starts_with(HTTP2);
            if http2 && self.shared.http1_only {
                return None;
            }
            to.write_all(bytes).await.ok()?;
            passed += read;
        }
    }

    /// Looks for the pattern of the trap. None: the connection ends here.
    fn spring(&self, scan: &mut Scan, bytes: &[u8]) -> Option<()> {
        let mut trap = lock(&self.shared.trap);
        let Some(trap) = trap.as_mut().filter(|trap| trap.left > 0) else { return Some(()) };
        if !scan.finds(&trap.pattern, bytes) {
            return Some(());
        }
        trap.left -= 1;
        if matches!(trap.act, Act::CutBefore | Act::Hold) {
            self.shared.sprung.fetch_add(1, Ordering::SeqCst);
        }
        self.act.send_replace(Some(trap.act));
        (trap.act != Act::CutBefore).then_some(())
    }

    /// Whether these bytes of the target are not to arrive. None: the connection ends here.
    fn is_lost(&mut self, bytes: &[u8], frames: &mut PgFrames) -> Option<bool> {
        let seen = frames.count_ready(bytes);
        self.shared.round_trips.fetch_add(seen.ready, Ordering::SeqCst);
        self.shared.in_transaction.fetch_add(seen.in_transaction, Ordering::SeqCst);
        let percent = self.shared.lost_answers.load(Ordering::SeqCst);
        if percent > 0 && rand::random_range(0..100) < percent {
            return None;
        }
        let act = *self.acted.borrow();
        let answered = matches!(act, Some(Act::CutAnswer | Act::SwallowAnswer));
        if answered && self.acted.has_changed().unwrap_or(false) {
            self.acted.mark_unchanged();
            self.shared.sprung.fetch_add(1, Ordering::SeqCst);
        }
        match act {
            Some(Act::CutAnswer) => None,
            Some(Act::SwallowAnswer) => Some(true),
            Some(Act::CutBefore | Act::Hold) | None => Some(false),
        }
    }
}

/// `HOST:PORT` in a URL.
fn host_and_port(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or(rest);
    authority.rsplit_once('@').map_or(authority, |(_, place)| place)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no panic while locked")
}
