//! A client's new process, on every key where the client holds something: a sync that says nothing on each of them.

use crate::access::Keys;
use crate::actor::Command;
use crate::clock;
use crate::hints::News;
use crate::holder::Shared;
use crate::round::{self, Heard, Pace, Turn, TurnResult};
use crate::store::StoreError;
use pgsemaphore_allocation::{Block, ClientId, Incarnation, Kind, Outcome, Refused, SemaphoreKey, Work};
use queue_wire::{FencedKey, TakenOver, TakenOverKey, Takeover, VERSION};
use std::time::Duration;

/// Takes over key after key of `keys`, each in a transaction of its own, and has those look again who are parked.
pub(crate) async fn on_all_keys(
    shared: &Shared,
    client: ClientId,
    takeover: Takeover,
    keys: &Keys,
) -> Result<TakenOver, StoreError> {
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
    let held = shared.store.keys_of_client(&heard.client).await?;
    for key in held.into_iter().filter(|key| keys.contain(key.as_str())) {
        let calls = std::slice::from_ref(&heard);
        let turn =
            round::transact(&shared.store, &key, Work::Sync, Pace::Period(Duration::ZERO), calls, &|_| true)
                .await?;
        shared.keys.tell(&key, Command::News(News::Changed));
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
            reply.fenced.push(FencedKey { key, generation: *generation });
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
