//! A client's new process, on every key where the client holds something: a sync that says nothing on each of them.

use crate::access::Keys;
use crate::actor::Command;
use crate::clock;
use crate::holder::Shared;
use crate::refusal::Refusal;
use crate::round::{self, Heard, Pace, Turn, TurnResult};
use crate::trouble;
use futures_util::FutureExt as _;
use futures_util::future::{self, BoxFuture};
use pgsemaphore_allocation::{Block, ClientId, Incarnation, Kind, Outcome, Refused, SemaphoreKey, Work};
use queue_wire::{FencedKey, SAFE_INTEGER_MAX, TakenOver, TakenOverKey, Takeover, VERSION};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Most takeovers under way in a holder. Each goes on without its caller, so a bound on connections does not bound them.
const UNDER_WAY_MAX: usize = 256;

/// A takeover as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) client: ClientId,
    pub(crate) takeover: Takeover,
    pub(crate) keys: Keys,
}

type Reply = future::Shared<BoxFuture<'static, Result<TakenOver, Refusal>>>;

/// The takeovers under way in a holder.
#[derive(Default)]
pub(crate) struct Takeovers(Mutex<Vec<(Asked, Reply)>>);

impl Takeovers {
    /// Runs a takeover to its end, also if its caller hangs up. A caller that asks for the same again waits for the one
    /// that is under way.
    pub(crate) async fn join(&self, shared: &Arc<Shared>, asked: Asked) -> Result<TakenOver, Refusal> {
        self.reply(shared, asked)?.await
    }

    fn reply(&self, shared: &Arc<Shared>, asked: Asked) -> Result<Reply, Refusal> {
        let mut under_way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, reply)) = under_way.iter().find(|(other, _)| *other == asked) {
            return Ok(reply.clone());
        }
        if under_way.len() >= UNDER_WAY_MAX {
            return Err(Refusal::TooManyWaiting);
        }
        let (takeover, of_task) = (asked.clone(), shared.clone());
        let ended = EndsTakeover { shared: shared.clone(), asked: asked.clone() };
        let work = async move {
            let _ended = ended;
            on_all_keys(&of_task, takeover).await
        };
        let reply = shared.to_the_end("takeover", work);
        let reply = reply.map(|reply| reply.unwrap_or(Err(Refusal::Unavailable))).boxed().shared();
        under_way.push((asked, reply.clone()));
        Ok(reply)
    }
}

/// Forgets a takeover when its task ends, by a panic as well.
struct EndsTakeover {
    shared: Arc<Shared>,
    asked: Asked,
}

impl Drop for EndsTakeover {
    fn drop(&mut self) {
        let mut under_way = self.shared.takeovers.0.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.retain(|(other, _)| *other != self.asked);
    }
}

/// Takes over key after key, each in a transaction of its own, and has those look again who are parked.
async fn on_all_keys(shared: &Shared, asked: Asked) -> Result<TakenOver, Refusal> {
    let failed = |error| {
        trouble::tell(&"a takeover failed", &error);
        Refusal::Unavailable
    };
    let Asked { client, takeover, keys } = asked;
    let Takeover { generation, process, resume, .. } = takeover;
    let heard = Heard {
        client,
        from: Incarnation { generation, process: Some(process), resumes: resume },
        seen: 0,
        all: false,
        arrival: clock::now(),
        asks: false,
        demand: Vec::new(),
        grants: Vec::new(),
        leases: Vec::new(),
        takes_leases: false,
        applied: false,
    };
    let mut reply = TakenOver { v: VERSION, ..TakenOver::default() };
    let held = shared.store.keys_of_client(&heard.client).await.map_err(failed)?;
    for key in held.into_iter().filter(|key| keys.contain(key.as_str())) {
        if shared.stop.is_cancelled() {
            return Err(Refusal::ShuttingDown);
        }
        let (calls, pace) = (std::slice::from_ref(&heard), Pace::Period(Duration::ZERO));
        let turn = round::transact(&shared.store, &key, Work::Sync, pace, calls, &|_| true).await;
        let turn = turn.map_err(failed)?;
        shared.keys.tell(&key, Command::Changed);
        if let Some(news) = turn.stirred.news {
            shared.outbox.put(&key, news);
        }
        note(&mut reply, &key, &heard.client, &turn);
    }
    Ok(reply)
}

fn note(reply: &mut TakenOver, key: &SemaphoreKey, client: &ClientId, turn: &Turn) {
    let TurnResult::Outcomes(outcomes) = &turn.result else { return };
    let key = key.to_string();
    match outcomes.first().and_then(Option::as_ref) {
        Some(Outcome::Refused(Refused::Fenced { generation })) => {
            // Nobody comes after the highest generation, and no reply names a number that a request may not.
            reply.fenced.push(FencedKey { key, generation: (*generation).min(SAFE_INTEGER_MAX) });
        }
        Some(Outcome::Answered(answer)) => {
            let held = answer.verdicts.iter().filter_map(|verdict| verdict.block.as_ref());
            let (grants, leases) = match turn.audit.iter().find(|entry| entry.client == *client) {
                Some(declared) => (declared.grants, declared.leases),
                None => (counted(held.clone(), Kind::Grant), counted(held, Kind::Lease)),
            };
            let permits = |count: i64| u64::try_from(count).unwrap_or(0);
            reply.keys.push(TakenOverKey { key, grants: permits(grants), leases: permits(leases) });
        }
        _ => {}
    }
}

fn counted<'a>(blocks: impl Iterator<Item = &'a Block>, kind: Kind) -> i64 {
    blocks.filter(|block| block.kind == kind).map(Block::counted).sum()
}
