//! From a packet that arrives to a transaction, its COMMIT and its answers.

use super::World;
use super::holder::{Job, Waiting};
use super::network::{self, Packet, Refusal};
use crate::audit::{Committed, Told, Verdict, Violation, violated};
use crate::plant::Plant;
use crate::store::Rows;
use pgsemaphore_allocation::{Work, check};
use queue_client::Endpoint;
use queue_client::ledger::Ledger;
use queue_client::wire::{Message, Reply, Status};
use std::rc::Rc;

impl World {
    pub(super) fn deliver(&mut self, packet: Packet) -> Verdict {
        self.trace.say(|| format!("arrives: {}", network::told(&packet)));
        match packet {
            Packet::HangUp { name, holder } => self.holders[holder].hang_up(&name),
            Packet::Call { name, holder, endpoint, message } => {
                let call = Waiting::new(name, endpoint, message, self.time);
                let parked = endpoint == Endpoint::Request && self.holders[holder].has_parked(&call);
                for name in self.holders[holder].admit(call) {
                    if parked {
                        self.count("a request is superseded while it is parked");
                    }
                    self.send(Packet::Answer { name, answer: Err(Refusal::Superseded) });
                }
            }
            Packet::Answer { name, answer } => {
                if let Some(at) = self.others.iter().position(|other| other.serial == name.from) {
                    if matches!(answer, Err(Refusal::Fenced(_))) {
                        self.other_is_shut_out(at);
                        return Ok(());
                    }
                    answer.iter().for_each(|reply| self.others[at].hear(reply));
                    return self.other_starts(at);
                }
                let Some(at) = self.processes.iter().position(|process| process.serial == name.from) else {
                    return Ok(());
                };
                let jitter = self.random.below(250);
                let heard = answer.clone();
                let answer = answer.map(|reply| misheard(reply, self.plant, &self.processes[at].ledger));
                let answer = answer.as_deref().map_err(|refusal| *refusal);
                self.processes[at].hear(name.number, answer, jitter);
                self.stop_if_shut_out(at);
                if let Ok(reply) = heard.as_deref() {
                    self.audit.hears(&self.processes[at].name, reply);
                }
                self.hand_out(at)?;
            }
        }
        Ok(())
    }

    pub(super) fn begin_any(&mut self, work: Work) -> Result<bool, Violation> {
        let Some(holder) = self.any_holder() else { return Ok(false) };
        let due = self.store.next_deadline(&self.key).is_some_and(|deadline| deadline <= self.now());
        if work == Work::Timer && !due {
            return Ok(false);
        }
        let shared = self.random.percent(50);
        let Some(batch) = self.holders[holder].take(work, shared, self.plant) else { return Ok(false) };
        self.begin(holder, work, batch)?;
        Ok(true)
    }

    pub(super) fn begin(&mut self, holder: usize, work: Work, batch: Vec<Waiting>) -> Verdict {
        let empty = self.store.rows(&self.key).is_none();
        if empty && self.store.limits(&self.key).is_none() {
            let refused =
                |waiting: Waiting| Packet::Answer { name: waiting.name, answer: Err(Refusal::NotFound) };
            batch.into_iter().map(refused).for_each(|packet| self.send(packet));
            return Ok(());
        }
        let seen_nothing = batch.iter().all(|waiting| waiting.message.seen == 0);
        let times = (self.time, self.now());
        let job = self.holders[holder].begin(&mut self.store, &self.key, (work, batch), times, self.plant);
        self.trace.say(|| format!("holder {holder}: {work:?} of {} calls reads", job.batch.len()));
        if empty && work == Work::Sync && seen_nothing {
            return self.answer(holder, &job);
        }
        if self.plant == Some(Plant::TellsFirst) {
            self.answer(holder, &job)?;
        }
        self.holders[holder].jobs.push(job);
        Ok(())
    }

    pub(super) fn commit_any(&mut self) -> Result<bool, Violation> {
        let Some(holder) = self.any_holder() else { return Ok(false) };
        let Some(at) = self.random.index(self.holders[holder].jobs.len()) else { return Ok(false) };
        self.commit(holder, at)?;
        Ok(true)
    }

    /// Commits, or starts again where another transaction was faster.
    pub(super) fn commit(&mut self, holder: usize, at: usize) -> Verdict {
        let mut job = self.holders[holder].jobs.remove(at);
        let rows = self.rows();
        if self.plant == Some(Plant::NoFence) && job.plan.semaphore.slot_cap >= rows.semaphore.slot_cap {
            job.transaction.version = rows.version;
        }
        if self.store.commit(&job.transaction, &job.plan).is_err() {
            self.trace.say(|| format!("holder {holder}: {:?} conflicts", job.work));
            self.count("a conflict");
            return self.begin(holder, job.work, job.batch);
        }
        self.trace.say(|| {
            let semaphore = &job.plan.semaphore;
            format!(
                "holder {holder}: {:?} commits round {}, {} permits in grants, {} in leases",
                job.work, semaphore.round, semaphore.grants, semaphore.leases
            )
        });
        self.count_leases(&job, &rows);
        self.count_declarations(&job);
        self.tell_of_news(holder, &job, &rows);
        self.judge(&job)?;
        if self.plant == Some(Plant::TellsFirst) { Ok(()) } else { self.answer(holder, &job) }
    }

    fn judge(&mut self, job: &Job) -> Verdict {
        let answers = job.answers(self.plant);
        let calls = answers.iter().map(|(waiting, answer)| Told {
            endpoint: waiting.endpoint,
            message: &waiting.message,
            arrived: waiting.arrived,
            reply: answer.as_ref().ok(),
            refusal: answer.as_ref().err().copied(),
            applied: waiting.is_applied(),
        });
        let (work, now) = (job.work, job.plan.now);
        let committed = Committed {
            work,
            now,
            limits: job.limits.as_ref(),
            calls: calls.collect(),
            declared: &job.plan.audit,
        };
        let rows = self.rows();
        self.audit.committed(&committed, &rows)?;
        if self.plant.is_some() {
            return Ok(());
        }
        if let Some(difference) = self.store.verify(&self.key).first() {
            return violated("P3", difference.to_string());
        }
        // A holder asks the same before it commits; a planted bug must be found without it.
        let Job { work, calls, transaction, plan, .. } = job;
        check(*work, &transaction.state, calls, plan).or_else(|objection| {
            violated(objection.promise, format!("the checker objects: {}", objection.detail))
        })
    }

    fn stays_parked(&self, waiting: &Waiting, reply: &Reply) -> bool {
        let known = waiting.known.as_ref().or(waiting.message.known_state.as_ref());
        !waiting.is_over(self.time) && !waiting.due && known.is_none_or(|known| *known == reply.state)
    }

    /// Whether a request has got nothing, and may wait on for later rounds.
    fn waits_on(&self, waiting: &Waiting, reply: &Reply) -> bool {
        let message = &waiting.message;
        let grants = message.grants.iter().flatten().map(|report| report.id.as_str());
        let reported: Vec<&str> =
            grants.chain(message.leases.iter().flatten().map(|report| report.id.as_str())).collect();
        let grants = reply.grants.iter().map(|verdict| (verdict.id.as_str(), verdict.status));
        let leases = reply.leases.iter().map(|verdict| (verdict.id.as_str(), verdict.status));
        let nothing_new =
            grants.chain(leases).all(|(id, status)| status == Status::Active && reported.contains(&id));
        let demands = message.demand.iter().any(|demand| demand.count > 0);
        demands && nothing_new && !waiting.hung_up && !waiting.is_over(self.time)
    }

    /// Requests that are parked take part in a round soon, if what was committed may help them.
    fn tell_of_news(&mut self, holder: usize, job: &Job, before: &Rows) {
        let after = &job.plan.semaphore;
        let freed = after.grants < before.semaphore.grants || after.leases < before.semaphore.leases;
        if !freed && job.plan.clients.is_empty() {
            return;
        }
        for at in 0..self.holders.len() {
            // The others are told by news that may get lost; then they look by themselves.
            let hears =
                if at == holder { job.work != Work::Round } else { self.fair || self.random.percent(50) };
            self.holders[at].roused |= hears;
        }
    }

    /// Parked requests whose time is over are answered with what their latest round said.
    pub(super) fn conclude(&mut self, holder: usize) {
        for waiting in self.holders[holder].conclude(self.time) {
            self.count("a parked request is answered with nothing");
            let answer = waiting.said.ok_or(Refusal::Unavailable);
            self.send(Packet::Answer { name: waiting.name, answer });
        }
    }

    fn answer(&mut self, holder: usize, job: &Job) -> Verdict {
        for (waiting, answer) in job.answers(self.plant) {
            if let Ok(reply) = &answer {
                self.audit.told(&waiting.message, reply)?;
                if waiting.endpoint == Endpoint::Sync && self.stays_parked(&waiting, reply) {
                    let known = waiting.known.clone().or_else(|| Some(reply.state.clone()));
                    self.trace.say(|| {
                        format!("holder {holder}: a sync of {} is parked", waiting.message.client_id)
                    });
                    self.holders[holder].park(Waiting { known, ..waiting });
                    continue;
                }
                if waiting.endpoint == Endpoint::Request && self.waits_on(&waiting, reply) {
                    self.trace.say(|| {
                        format!("holder {holder}: a request of {} waits on", waiting.message.client_id)
                    });
                    let said = Some(Rc::new(reply.clone()));
                    for name in self.holders[holder].put_back(Waiting { said, ..waiting }) {
                        self.count("a request is superseded while it is parked");
                        self.send(Packet::Answer { name, answer: Err(Refusal::Superseded) });
                    }
                    continue;
                }
                if waiting.said.is_some() {
                    self.count("a parked request is answered later");
                }
                if waiting.known.as_ref().is_some_and(|known| *known != reply.state) {
                    self.count("a parked sync is answered with news");
                }
            }
            self.send(Packet::Answer { name: waiting.name, answer: answer.map(Rc::new) });
        }
        Ok(())
    }

    pub(super) fn roll_back(&mut self) -> bool {
        let Some(holder) = self.any_holder() else { return false };
        let Some(at) = self.random.index(self.holders[holder].jobs.len()) else { return false };
        let job = self.holders[holder].jobs.remove(at);
        self.trace.say(|| format!("holder {holder}: {:?} is rolled back", job.work));
        self.break_off(job.batch.into_iter().map(|waiting| waiting.name).collect());
        true
    }
}

/// What a process with a planted bug says.
pub(crate) fn misspeak(message: &mut Message, plant: Option<Plant>) {
    if plant == Some(Plant::DrawsAfterStopped) {
        message.leases.iter_mut().flatten().for_each(|report| report.stopped = true);
    }
}

/// A reply as a process with a planted bug takes it.
pub(crate) fn misheard(mut reply: Rc<Reply>, plant: Option<Plant>, ledger: &Ledger) -> Rc<Reply> {
    match plant {
        Some(Plant::StartsUnconfirmed) => {
            let grants = &mut Rc::make_mut(&mut reply).grants;
            grants.iter_mut().for_each(|verdict| verdict.claimed = verdict.permits);
        }
        Some(Plant::TakesUpOldBlocks) => {
            let grants = &mut Rc::make_mut(&mut reply).grants;
            grants.iter_mut().for_each(|verdict| verdict.round = verdict.round.map(|_| u64::MAX));
        }
        Some(Plant::TakesUpOldLeases) => {
            let leases = &mut Rc::make_mut(&mut reply).leases;
            leases.iter_mut().for_each(|verdict| verdict.round = verdict.round.map(|_| u64::MAX));
        }
        Some(plant @ (Plant::IgnoresRetired | Plant::TakesUpRetired)) => {
            let is_known = |id: &str| ledger.running_by_block().any(|(known, _)| known.as_str() == id);
            for verdict in &mut Rc::make_mut(&mut reply).leases {
                let concerned = plant == Plant::IgnoresRetired || !is_known(&verdict.id);
                if concerned && verdict.status == Status::Retired {
                    (verdict.status, verdict.ttl_ms) = (Status::Active, Some(10_000));
                }
            }
        }
        Some(Plant::IgnoresContended) => {
            let reply = Rc::make_mut(&mut reply);
            (reply.contended, reply.contended_groups) = (false, Vec::new());
        }
        _ => {}
    }
    reply
}
