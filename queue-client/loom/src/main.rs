//! Draws, releases and the ledger's hand over one word of memory: loom takes every way in which the threads can meet, and
//! every value that the memory model lets them read. The code is the crate's own, with loom's atomics in place of std's.

#[allow(dead_code)]
#[path = "../../src/ledger/fund.rs"]
mod fund;

/// What the fund takes its atomics from.
mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
}

use std::sync::atomic::{AtomicU64 as Count, Ordering::Relaxed};

use atomic::{AtomicU64, Ordering};
use fund::{Counts, Fund, Returned, Ticket};
use loom::sync::{Arc, Mutex};
use loom::thread::{self, JoinHandle};

/// Where every way would take hours: threads are interrupted at most so often. Faults need one or two.
const PREEMPTIONS: usize = 3;

fn main() {
    let models: [(&str, Option<usize>, fn()); 5] = [
        ("each permit is drawn once, and what is taken out is exact", None, taken_out),
        ("the last permit to come back is told once", None, last),
        ("after a report that says stopped no more runs than it says", Some(PREEMPTIONS), stopped),
        ("a release of an earlier lease is not one of the next", Some(PREEMPTIONS), next_lease),
        ("what an item did is seen by whoever sees its release", None, seen),
    ];
    for (name, preemptions, model) in models {
        let ways = std::sync::Arc::new(Count::new(0));
        let counted = ways.clone();
        let mut every_way = loom::model::Builder::new();
        every_way.preemption_bound = preemptions;
        every_way.check(move || {
            counted.fetch_add(1, Relaxed);
            model();
        });
        println!("{name}: {} ways", ways.load(Relaxed));
    }
}

fn filled(undrawn: u64) -> (Arc<Fund>, Ticket) {
    let (fund, ticket) = (Arc::new(Fund::new("g")), Ticket::after(None));
    fund.put_in(ticket, Counts { undrawn, running: 0 });
    (fund, ticket)
}

/// Draws a permit, if there is one, and gives it back.
fn item(fund: &Arc<Fund>) -> JoinHandle<Option<Returned>> {
    let fund = fund.clone();
    thread::spawn(move || fund.draw().map(|ticket| fund.release(ticket)))
}

fn taken_out() {
    let (fund, ticket) = filled(2);
    let items = [item(&fund), item(&fund)];
    let counts = fund.take_out();
    let returned: Vec<_> = items.into_iter().filter_map(|item| item.join().unwrap()).collect();
    assert_eq!(returned.len() as u64, 2 - counts.undrawn);
    let elsewhere = returned.iter().filter(|returned| **returned == Returned::Elsewhere).count();
    assert_eq!(elsewhere as u64, counts.running, "these the ledger has to count");
    assert_eq!((fund.draw(), fund.release(ticket)), (None, Returned::Elsewhere));
}

fn last() {
    let (fund, _) = filled(2);
    let items = [item(&fund), item(&fund)];
    let returned = items.map(|item| item.join().unwrap().expect("there are two"));
    assert_eq!(returned.iter().filter(|returned| **returned == Returned::Last).count(), 1);
}

fn stopped() {
    let (fund, _) = filled(2);
    let running = Arc::new(AtomicU64::new(0));
    let in_ledger = Arc::new(Mutex::new(0_i64));
    let items = [0, 1].map(|_| {
        let (fund, running, in_ledger) = (fund.clone(), running.clone(), in_ledger.clone());
        thread::spawn(move || {
            let Some(ticket) = fund.draw() else { return };
            running.fetch_add(1, Ordering::SeqCst);
            running.fetch_sub(1, Ordering::SeqCst);
            if fund.release(ticket) == Returned::Elsewhere {
                *in_ledger.lock().unwrap() -= 1;
            }
        })
    });
    // As the ledger does, under its lock, in the step that writes the message.
    let reported = {
        let mut in_ledger = in_ledger.lock().unwrap();
        let counts = fund.take_out();
        *in_ledger += i64::try_from(counts.running).unwrap();
        counts.running
    };
    assert!(running.load(Ordering::SeqCst) <= reported, "more runs than the holder counts");
    items.into_iter().for_each(|item| item.join().unwrap());
    assert_eq!(*in_ledger.lock().unwrap(), 0, "all of it comes back");
}

fn next_lease() {
    let (fund, first) = filled(1);
    assert_eq!(fund.draw(), Some(first));
    let releases = {
        let fund = fund.clone();
        thread::spawn(move || fund.release(first))
    };
    let draws = item(&fund);
    let counts = fund.take_out();
    let second = Ticket::after(Some(first));
    fund.put_in(second, Counts { undrawn: 1, running: 0 });
    let (released, drawn) = (releases.join().unwrap(), draws.join().unwrap());
    assert_eq!(counts.running == 1, released == Returned::Elsewhere);
    let left = fund.take_out();
    assert_eq!(left, Counts { undrawn: u64::from(drawn.is_none()), running: 0 });
    assert!(drawn.is_none_or(|returned| returned == Returned::Last));
}

fn seen() {
    let (fund, _) = filled(1);
    let work = Arc::new(AtomicU64::new(0));
    let item = {
        let (fund, work) = (fund.clone(), work.clone());
        thread::spawn(move || {
            let ticket = fund.draw().expect("nobody else draws");
            work.store(1, Ordering::Relaxed);
            fund.release(ticket)
        })
    };
    while fund.counts() != Counts::default() {
        thread::yield_now();
    }
    assert_eq!(work.load(Ordering::Relaxed), 1, "released before it was done");
    item.join().unwrap();
}
