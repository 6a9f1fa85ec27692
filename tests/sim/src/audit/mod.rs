//! Judges what happens in a world by the promises P1 to P7. It shares no code with the allocation and none with the
//! ledger: it sees messages, committed rows, replies, and who holds permits (the ground truth).
//!
//! What the promises mean here:
//!
//! - **P1**: a commit that makes blocks leaves the usage at or below the limit that its transaction read, as its mode of
//!   provisioning shares it between grants and leases; so for groups.
//! - **P2**: of each grant, permits that processes hold (an item runs, or may start any moment) are at most the claimed
//!   permits not yet released of the committed row. That is stricter than "at most what counts", by the permits that
//!   nobody has claimed. Of each lease they are at most its footprint; and a process that has written `stopped`, or heard
//!   that the lease is retired or settled, draws no more.
//! - **P3**: a row's marks never fall, never pass what its owner said, and no name is given twice. Permits come back
//!   only where they were said to be released, or unclaimed at the deadline; undrawn permits of a lease only after its
//!   client said `stopped`. Only a report is a heartbeat. Counters are what the blocks say.
//! - **P4**: a round or a timer leaves nothing unclaimed behind its deadline; a round leaves no lease active that is
//!   silent or not eligible, recalls what is over budget, and no more; a reply delivers every open block that the message
//!   has not seen. That idle leases serve who waits, and that everything comes back in the end, is tried by draining the
//!   world.
//! - **P5, P6**: a round gives each demand entry exactly what is left at its turn, oldest first, then shares leases out,
//!   and says what lacks and why. A reply says contended where a client's entry does.
//! - **P7**: what a reply says of a block is in the committed rows at the moment at which it is sent; its `state` is
//!   another where its client has to hear of something, and only there.
//!
//! **A process that is declared dead**, by a successor or by its silence, is not judged by P2 from then on, whether it is
//! dead or not; but once it has heard of it, it may take no more permits. Declared dead is only who has a successor that
//! was heard, or was not heard for as long as the policy says while holders listened. What comes back without its owner's
//! word is noted, with how much it was.
//!
//! **A store restored from an older copy** forgets commits that processes have heard of. What a process had confirmed by
//! then it may go on using, and the restored rows may not count it: that much of each block is excused until it is
//! released, and no more. All other promises hold through a restore.

mod budget;
mod contention;
mod declared;
mod entries;
mod numbers;
mod order;
mod recall;
mod rows;
mod telling;

use crate::store::{Limits, Rows};
use crate::world::network::Refusal;
pub(crate) use budget::{ceilings, footprint};
use declared::Declarations;
use pgsemaphore_allocation::{Audit as Entry, Block, DbTime, Kind, Micros, Permits, Work};
use queue_client::Endpoint;
use queue_client::wire::{Message, Reply, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

/// A promise that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The promise.
    pub promise: &'static str,
    /// What happened.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.detail)
    }
}

impl std::error::Error for Violation {}

pub(crate) type Verdict = Result<(), Violation>;

pub(crate) fn violated(promise: &'static str, detail: impl Into<String>) -> Verdict {
    Err(Violation { promise, detail: detail.into() })
}

/// A transaction that was committed just now.
pub(crate) struct Committed<'a> {
    pub(crate) work: Work,
    pub(crate) now: DbTime,
    /// What was in force when it read.
    pub(crate) limits: Option<&'a Limits>,
    pub(crate) calls: Vec<Told<'a>>,
    /// What it notes for people: whose permits came back without their word.
    pub(crate) declared: &'a [Entry],
}

/// One of its calls.
pub(crate) struct Told<'a> {
    pub(crate) endpoint: Endpoint,
    pub(crate) message: &'a Message,
    pub(crate) arrived: Micros,
    /// What it is told; `None` if it is refused.
    pub(crate) reply: Option<&'a Reply>,
    pub(crate) refusal: Option<Refusal>,
    /// An earlier transaction has taken in what it reports.
    pub(crate) applied: bool,
}

impl Told<'_> {
    /// Whether it is heard: it may still be refused for want of a policy.
    fn is_heard(&self) -> bool {
        matches!(self.refusal, None | Some(Refusal::NotFound))
    }
}

impl Committed<'_> {
    fn reclaims(&self) -> bool {
        match self.work {
            Work::Round => self.limits.is_some(),
            Work::Timer => true,
            Work::Sync => false,
        }
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Marks {
    /// Claimed or drawn.
    used: Permits,
    released: Permits,
    stopped: bool,
}

/// What the judge remembers.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    /// The committed rows.
    rows: Rows,
    /// Permits held, by block and process; of processes that were declared dead none.
    held: BTreeMap<Rc<str>, BTreeMap<u32, Permits>>,
    declarations: Declarations,
    /// The highest marks that anybody said, by client and block.
    said: BTreeMap<(Kind, String, String), Marks>,
    /// Leases that a client has stopped, or knows to be retired or settled: it draws no more.
    ended: BTreeSet<(String, String)>,
    /// Every name ever given, and what it named.
    named: BTreeMap<String, Kind>,
    /// What a restore has excused.
    excused: BTreeMap<String, Permits>,
    /// What each `state` of a reply means, and by which each such meaning is said.
    states: BTreeMap<String, String>,
    stated: BTreeMap<String, String>,
    /// The latest commit, by the database's clock.
    latest: Option<DbTime>,
    /// Marks of contention don't outlive a clock that was set back; until then they are not judged.
    marks_fail_until: Option<DbTime>,
    /// The latest round could not resolve the limit, or may not have been able to.
    unresolved: bool,
}

impl Audit {
    /// A process sends a message.
    pub(crate) fn says(&mut self, from: u32, message: &Message) {
        self.declarations.says(from, message);
        let key = |kind, id: &String| (kind, message.client_id.clone(), id.clone());
        for report in message.grants.iter().flatten() {
            let marks = self.said.entry(key(Kind::Grant, &report.id)).or_default();
            marks.used = marks.used.max(permits(report.claimed));
            marks.released = marks.released.max(permits(report.released));
        }
        for report in message.leases.iter().flatten() {
            let marks = self.said.entry(key(Kind::Lease, &report.id)).or_default();
            marks.used = marks.used.max(permits(report.drawn));
            marks.released = marks.released.max(permits(report.released));
            marks.stopped |= report.stopped;
            if report.stopped {
                self.ended.insert((message.client_id.clone(), report.id.clone()));
            }
        }
    }

    /// A process has taken a reply in, and what it had drawn by then was told here.
    pub(crate) fn hears(&mut self, client: &str, reply: &Reply) {
        let over = |status| matches!(status, Status::Retired | Status::Settled);
        for verdict in reply.leases.iter().filter(|verdict| over(verdict.status)) {
            self.ended.insert((client.to_owned(), verdict.id.clone()));
        }
    }

    /// A process has one more permit of a block.
    pub(crate) fn takes(&mut self, process: u32, client: &str, block: &str) -> Verdict {
        if self.is_shut_out(process) {
            return violated(
                "P2",
                format!("{client} has a permit of {block}, and heard that it is shut out"),
            );
        }
        if self.declarations.is_dead(process) {
            return Ok(());
        }
        *self.held.entry(block.into()).or_default().entry(process).or_default() += 1;
        self.is_counted(block, self.held_of(block))?;
        if self.ended.contains(&(client.to_owned(), block.to_owned())) {
            return violated("P2", format!("{client} draws from {block}, which is stopped or retired"));
        }
        Ok(())
    }

    /// Whether a name is that of a lease.
    pub(crate) fn is_lease(&self, block: &str) -> bool {
        self.named.get(block) == Some(&Kind::Lease)
    }

    /// A process has one permit of a block less: released, or lost with the process, or (`again`) to be used again.
    pub(crate) fn lets_go(&mut self, process: u32, block: &str, again: bool) {
        if self.declarations.is_dead(process) || !self.removes(process, block) {
            return;
        }
        // A permit of a lease is used once.
        let again = again && !self.is_lease(block);
        if let Some(excused) = self.excused.get_mut(block).filter(|excused| !again && **excused > 0) {
            *excused -= 1;
        }
    }

    /// Whether a process had a permit of a block, which is another's from now on.
    fn removes(&mut self, process: u32, block: &str) -> bool {
        let Some(by) = self.held.get_mut(block) else { return false };
        let Some(held) = by.get_mut(&process) else { return false };
        *held -= 1;
        by.retain(|_, held| *held > 0);
        if by.is_empty() {
            self.held.remove(block);
        }
        true
    }

    fn held_of(&self, block: &str) -> Permits {
        self.held.get(block).map_or(0, |by| by.values().sum())
    }

    /// An item goes on, and another process answers for it.
    pub(crate) fn passes_on(&mut self, from: u32, to: u32, block: &str) {
        if self.removes(from, block) {
            *self.held.entry(block.into()).or_default().entry(to).or_default() += 1;
        }
    }

    /// A transaction was committed; `rows` are the key's rows after it.
    pub(crate) fn committed(&mut self, committed: &Committed, rows: &Rows) -> Verdict {
        let before = std::mem::replace(&mut self.rows, rows.clone());
        self.who_is_declared_dead_is_so(committed, &before, rows)?;
        numbers::follow_the_clock(committed, &before, rows)?;
        self.all_held_is_counted()?;
        self.marks_are_what_was_said(committed, &before)?;
        self.names_are_given_once(committed, &before)?;
        rows::ceilings_hold(committed, &before, rows)?;
        rows::nothing_is_overdue(committed, rows)?;
        recall::of_what_may_not_stay(committed, rows)?;
        recall::for_a_reason(committed, &before, rows)?;
        order::oldest_first(committed, &before, rows)?;
        self.contended_is_told(committed, rows)?;
        self.state_says_what_is(committed, rows)
    }

    /// A reply is sent, to this message.
    pub(crate) fn told(&self, message: &Message, reply: &Reply) -> Verdict {
        telling::is_committed(&self.rows, message, reply)?;
        telling::delivers_what_is_unseen(&self.rows, message, reply)
    }

    /// The store was replaced by an older copy of itself.
    pub(crate) fn restored(&mut self, rows: &Rows) {
        for block in self.rows.blocks.values() {
            let excused = self.excused.entry(block.id.to_string()).or_default();
            *excused = (*excused).max(usable(block));
        }
        self.rows = rows.clone();
        self.unresolved = true;
        self.declarations.restored(rows);
    }

    fn all_held_is_counted(&self) -> Verdict {
        self.held.keys().try_for_each(|block| self.is_counted(block, self.held_of(block)))
    }

    fn is_counted(&self, block: &str, held: Permits) -> Verdict {
        let row = self.row(block);
        let counted = row.map_or(0, usable);
        let excused = self.excused.get(block).copied().unwrap_or(0);
        if held <= counted.max(excused) {
            return Ok(());
        }
        violated("P2", format!("{held} permits of {block} are held, its row is {row:?}"))
    }

    fn row(&self, id: &str) -> Option<&Block> {
        self.rows.blocks.values().find(|block| block.id.to_string() == id)
    }
}

/// Permits of a block that items may run on.
pub(crate) fn usable(block: &Block) -> Permits {
    match block.kind {
        Kind::Grant => block.used - block.released,
        Kind::Lease => footprint(block),
    }
}

fn permits(count: u64) -> Permits {
    Permits::try_from(count).unwrap_or(Permits::MAX)
}
