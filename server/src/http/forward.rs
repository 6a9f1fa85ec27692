//! Passes requests on to their keys' homes, so that a round sees the whole queue of its key.
//!
//! Not authoritative for anything that counts. Where the home does not answer the request is the next one's, or this
//! holder's, though the home may have carried it out: what it granted is delivered again by `seen`, as after any lost
//! answer, and reports are marks that only move forward.
//!
//! | what comes back | what follows |
//! | --- | --- |
//! | 200, or a refusal of the home | is the answer, as it is |
//! | 408, 500, or 503 `unavailable` of the home | the request waits here |
//! | 503 `shutting_down` of the home; it left the holders, or missed three heartbeats meanwhile | the next home is asked, or the request waits here |
//! | no connection, no answer to pings, an answer that is not the home's | the same; the home is passed over for a while, and all calls that wait at it go on like this one |
//!
//! A home that is frozen does not answer pings. It is found after 3 s, and then no call waits for it, whatever its `wait_ms`.
//! The home may go on and carry out what it was asked: its caller is then gone there, and what it grants all the same is
//! delivered again, or comes back.

use super::hop;
use super::peers::Peers;
use super::underway::UnderWay;
use crate::clock;
use crate::holder::Holder;
use crate::homes::Peer;
use crate::refusal::Refusal;
use crate::speaker::Speaker;
use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use pgsemaphore_allocation::SemaphoreKey;
use queue_wire::{Code, Problem};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::Semaphore;

/// So many homes are asked, one after the other, before a request waits here.
const HOMES_MAX: usize = 2;
/// Most requests that wait at other holders; further ones wait here. Connections to one home take twice as many.
const PASSED_ON_MAX: usize = 8_192;

/// Longest answer of another holder. One that is longer is not a holder's.
const ANSWER_MAX_BYTES: usize = 16 * 1024 * 1024;

/// Passes requests on; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Forward(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    peers: Option<Peers>,
    /// Whether others want a token, as this holder does.
    needs_token: bool,
    complained: AtomicBool,
    places: Semaphore,
    under_way: UnderWay,
}

/// A request as it came.
pub(super) struct Request {
    pub(super) key: SemaphoreKey,
    pub(super) speaker: Speaker,
    pub(super) arrival: Instant,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Another holder, and how it is called.
pub(super) struct Home<'a> {
    peer: Arc<Peer>,
    peers: &'a Peers,
}

/// What became of a request that was passed on.
enum Heard {
    /// This is the home's answer.
    Answer(Response),
    /// The home can't do it now.
    NotNow,
    /// The home ends.
    Leaving,
    /// Nobody answered, or somebody else.
    Nothing(String),
}

impl Forward {
    pub(super) fn new(peers: Option<Peers>, needs_token: bool) -> Self {
        Self(Arc::new(Shared {
            peers,
            needs_token,
            complained: AtomicBool::new(false),
            places: Semaphore::new(PASSED_ON_MAX),
            under_way: UnderWay::default(),
        }))
    }

    /// The home of a key, if it is another holder that this one can call.
    pub(super) fn home(&self, holder: &Holder, key: &SemaphoreKey) -> Option<Home<'_>> {
        let peers = self.0.peers.as_ref()?;
        let home = holder.homes().of(key, clock::now())?;
        let obstacle = match self.0.needs_token && !peers.has_token() {
            true => "give all holders --holder-token-file",
            false => match peers.obstacle(&home) {
                Some(obstacle) => obstacle,
                None => return Some(Home { peer: home, peers }),
            },
        };
        if !self.0.complained.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                holder = home.name,
                url = home.url,
                "requests are not passed on to another holder, so oldest first holds in each holder only: {obstacle}"
            );
        }
        None
    }

    /// A newer request waits here: an older one of its process that waits at another holder is answered.
    pub(super) fn stays(&self, key: &SemaphoreKey, speaker: &Speaker) {
        self.0.under_way.give_way(key, speaker, None);
    }

    /// The answer of a request's home; none if the request has to wait here.
    ///
    /// # Cancel safety
    /// A request whose answer is not waited for any longer is cancelled at the home too.
    pub(super) async fn pass_on(
        &self,
        holder: &Holder,
        request: &Request,
    ) -> Result<Option<Response>, Refusal> {
        let Ok(_place) = self.0.places.try_acquire() else { return Ok(None) };
        for _ in 0..HOMES_MAX {
            let Some(home) = self.home(holder, &request.key) else { break };
            let (peer, asked_at) = (&home.peer, clock::now());
            self.0.under_way.give_way(&request.key, &request.speaker, Some(&peer.name));
            holder.give_way(&request.key, request.speaker.clone());
            let place = self.0.under_way.begin(&request.key, &request.speaker, &peer.name);
            let heard = tokio::select! {
                heard = home.ask(request) => heard,
                () = holder.homes().given_up(peer, asked_at) => Heard::Leaving,
                () = place.gives_way() => return Err(Refusal::Superseded),
                () = holder.stops() => return Err(Refusal::ShuttingDown),
            };
            match heard {
                Heard::Answer(answer) => return Ok(Some(answer)),
                Heard::NotNow => return Ok(None),
                Heard::Leaving => drop(holder.homes().pass_over(peer, clock::now())),
                Heard::Nothing(why) => {
                    if holder.homes().pass_over(peer, clock::now()) {
                        tracing::warn!(holder = peer.name, url = peer.url, why, "a holder does not answer");
                    }
                }
            }
        }
        Ok(None)
    }
}

impl Home<'_> {
    async fn ask(&self, request: &Request) -> Heard {
        let headers = hop::headers(&self.peer, request.arrival.elapsed(), &request.headers);
        let asked = self.peers.request(&self.peer, &request.key, headers, request.body.clone()).await;
        let heard = match asked {
            Ok(response) => hear(&self.peer, response).await,
            Err(error) => Err(error),
        };
        heard.unwrap_or_else(|error| Heard::Nothing(causes(&error)))
    }
}

async fn hear(home: &Peer, response: reqwest::Response) -> reqwest::Result<Heard> {
    let (status, headers) = (response.status(), response.headers().clone());
    let Some(body) = read(response).await? else {
        return Ok(Heard::Nothing(format!("{status}, and more than {ANSWER_MAX_BYTES} bytes")));
    };
    if status == StatusCode::SERVICE_UNAVAILABLE
        && serde_json::from_slice(&body).is_ok_and(|problem: Problem| problem.code == Code::ShuttingDown)
    {
        return Ok(Heard::Leaving);
    }
    if headers.get(hop::HOME).is_none_or(|name| name != home.name.as_str()) {
        return Ok(Heard::Nothing(format!(
            "{status}, and not from it: is its --advertise-url right, and are token and database the same everywhere?"
        )));
    }
    if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT {
        return Ok(Heard::NotNow);
    }
    let mut answer = Response::new(Body::from(body));
    *answer.status_mut() = status;
    for name in [CONTENT_TYPE, RETRY_AFTER] {
        answer.headers_mut().extend(headers.get(&name).map(|value| (name, value.clone())));
    }
    Ok(Heard::Answer(answer))
}

/// The body of an answer; nothing if it is longer than any that a holder gives.
async fn read(mut response: reqwest::Response) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > ANSWER_MAX_BYTES {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// An error and what caused it.
fn causes(error: &(dyn Error + 'static)) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", causes(cause)),
        None => error.to_string(),
    }
}
