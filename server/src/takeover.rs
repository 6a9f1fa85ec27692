//! A client's new process, on every key where the client holds something: a sync that says nothing on each of them.

use crate::access::Keys;
use crate::clock;
use crate::round::{self, Heard, Turn, TurnResult};
use crate::store::{Store, StoreError};
use pgsemaphore_allocation::{Block, ClientId, Incarnation, Kind, Outcome, Refused, SemaphoreKey, Work};
use queue_wire::{FencedKey, TakenOver, Takeover, TakeoverReply, VERSION};
use std::time::Duration;

/// Takes over key after key of `keys`, each in a transaction of its own.
pub(crate) async fn on_all_keys(
    store: &Store,
    client: ClientId,
    takeover: Takeover,
    keys: &Keys,
) -> Result<TakeoverReply, StoreError> {
    let Takeover { generation, process, resume, .. } = takeover;
    let heard = Heard {
        client,
        from: Incarnation { generation, process: Some(process), resumes: resume },
        seen: 0,
        all: false,
        arrival: clock::now(),
        demand: Vec::new(),
        grants: Vec::new(),
        leases: Vec::new(),
        takes_leases: false,
        applied: false,
    };
    let mut reply = TakeoverReply { v: VERSION, ..TakeoverReply::default() };
    let held = store.keys_of_client(&heard.client).await?;
    for key in held.into_iter().filter(|key| keys.contain(key.as_str())) {
        let calls = std::slice::from_ref(&heard);
        let turn = round::transact(store, &key, Work::Sync, Duration::ZERO, calls).await?;
        note(&mut reply, &key, &heard.client, &turn);
    }
    Ok(reply)
}

fn note(reply: &mut TakeoverReply, key: &SemaphoreKey, client: &ClientId, turn: &Turn) {
    let TurnResult::Outcomes(outcomes) = &turn.result else { return };
    let key = key.to_string();
    match outcomes.first() {
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
            reply.keys.push(TakenOver { key, grants: permits(grants), leases: permits(leases) });
        }
        _ => {}
    }
}

fn counted<'a>(blocks: impl Iterator<Item = &'a Block>, kind: Kind) -> i64 {
    blocks.filter(|block| block.kind == kind).map(Block::counted).sum()
}
