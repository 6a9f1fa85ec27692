//! Any history of one key: limits, modes, clocks, demand and reports made of the fuzzer's bytes. After each transaction the
//! checker agrees with the plan, and the counters are what the blocks say.

#![no_main]

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use pgsemaphore_allocation::{
    Call, ClientId, DbTime, Demand, Extra, GrantReport, Group, Incarnation, LeaseReport, Provisioning,
    SemaphoreKey, Work, check, round, sync, timer,
};
use pgsemaphore_sim::{Limits, MemoryStore};

const CALLS_MAX: usize = 4;

fuzz_target!(|bytes: &[u8]| {
    // Its error says that the bytes are at an end.
    let _ = history(&mut Unstructured::new(bytes));
});

fn history(bytes: &mut Unstructured) -> Result<()> {
    let key = SemaphoreKey::new("key");
    let (mut store, mut now) = (MemoryStore::new(), DbTime(1_764_428_000_000_000));
    store.set_limits(&key, Some(limits(bytes)?));
    let mut ids = vec!["17-0".to_owned()];
    while !bytes.is_empty() {
        now = now + i64::from(bytes.arbitrary::<i16>()?) * 10_000;
        if bytes.ratio(1, 8)? {
            let policy = bytes.ratio(7, 8)?.then(|| limits(bytes)).transpose()?;
            store.set_limits(&key, policy);
        }
        let work = *bytes.choose(&[Work::Round, Work::Round, Work::Sync, Work::Timer])?;
        let calls = if work == Work::Timer { 0 } else { bytes.int_in_range(0..=CALLS_MAX)? };
        let round_before = store.rows(&key).map_or(0, |rows| rows.semaphore.round);
        let calls = (0..calls).map(|_| call(bytes, round_before, &ids)).collect::<Result<Vec<_>>>()?;
        let transaction = store.begin(&key, work, &calls, now);
        let plan = match work {
            Work::Round => round(&transaction.state, &calls),
            Work::Sync => sync(&transaction.state, &calls),
            Work::Timer => timer(&transaction.state),
        };
        if let Err(violation) = check(work, &transaction.state, &calls, &plan) {
            panic!("{violation}");
        }
        assert!(store.commit(&transaction, &plan).is_ok(), "nobody else writes");
        if let Some(difference) = store.verify(&key).first() {
            panic!("{difference}");
        }
        let blocks = store.rows(&key).into_iter().flat_map(|rows| rows.blocks.values());
        let new: Vec<_> = blocks.map(|block| block.id.to_string()).filter(|id| !ids.contains(id)).collect();
        ids.extend(new);
    }
    Ok(())
}

fn limits(bytes: &mut Unstructured) -> Result<Limits> {
    let mut limits = Limits::of_grants(bytes.int_in_range(0..=9)?, bytes.int_in_range(1..=20_000_000)?);
    let few = |bytes: &mut Unstructured| bytes.int_in_range(0..=6_i64);
    limits.policy.provisioning = match bytes.int_in_range(0..=4)? {
        0 => Provisioning::None,
        1 => Provisioning::Strict,
        2 => Provisioning::Under { reserve: few(bytes)? },
        3 => Provisioning::Over { extra: Extra::Permits(few(bytes)?) },
        _ => Provisioning::Over { extra: Extra::Millionths(bytes.int_in_range(0..=2_500_000)?) },
    };
    limits.policy.permits_per_lease = bytes.int_in_range(1..=5)?;
    limits.policy.lease_ttl = bytes.int_in_range(500_000..=30_000_000)?;
    limits.policy.leases_within_group_limit = bytes.arbitrary()?;
    if bytes.arbitrary()? {
        limits.policy.limit = None;
    }
    for _ in 0..bytes.int_in_range(0..=2)? {
        limits.groups.insert(group(bytes)?, few(bytes)?);
    }
    Ok(limits)
}

fn call(bytes: &mut Unstructured, latest: u64, ids: &[String]) -> Result<Call> {
    let count = |bytes: &mut Unstructured| bytes.int_in_range(0..=7_i64);
    let seen = match bytes.int_in_range(0..=3)? {
        0 => 0,
        1 => latest.saturating_sub(bytes.int_in_range(0..=5_000_000)?),
        _ => latest,
    };
    let mut call = Call {
        client: ClientId::new(bytes.choose(&["a", "b", "c"])?.to_string()),
        from: Incarnation {
            generation: bytes.int_in_range(0..=3)?,
            process: Some(bytes.choose(&["p", "q"])?.to_string()),
            resumes: bytes.arbitrary()?,
        },
        seen,
        all: bytes.ratio(1, 4)?,
        waited: bytes.int_in_range(0..=2_000_000)?,
        asks: bytes.ratio(2, 3)?,
        demand: Vec::new(),
        grants: Vec::new(),
        leases: Vec::new(),
        takes_leases: bytes.arbitrary()?,
        applied: false,
    };
    for name in ["", "a", "b"] {
        if call.asks && bytes.arbitrary()? {
            let (count, oldest_age) = (count(bytes)?, bytes.int_in_range(0..=4_000_000)?);
            call.demand.push(Demand { group: Group::new(name), count, oldest_age });
        }
    }
    for _ in 0..bytes.int_in_range(0..=4)? {
        let (id, used, released) = (bytes.choose(ids)?.clone(), count(bytes)?, count(bytes)?);
        if bytes.arbitrary()? {
            call.grants.push(GrantReport { id, claimed: used, released });
        } else {
            call.leases.push(LeaseReport { id, drawn: used, released, stopped: bytes.arbitrary()? });
        }
    }
    Ok(call)
}

fn group(bytes: &mut Unstructured) -> Result<Group> {
    Ok(Group::new(bytes.choose(&["", "a", "b"])?.to_string()))
}
