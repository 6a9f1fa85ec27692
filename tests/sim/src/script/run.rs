//! Runs the steps of a script.

use super::parse::{Is, Line, Report, Saying, Used};
use super::render::{Aliases, declared, kept};
use super::{Event, Mismatch, Transacted};
use crate::{Limits, MemoryStore, Transaction};
use pgsemaphore_allocation::{
    BlockId, Call, ClientId, DbTime, Demand, GrantReport, Group, Incarnation, Kind, LeaseReport, Outcome,
    Plan, SemaphoreKey, Work, check, round, sync, timer,
};
use std::collections::BTreeMap;

struct World {
    key: SemaphoreKey,
    store: MemoryStore,
    copy: Option<MemoryStore>,
    limits: Limits,
    aliases: Aliases,
    seen: BTreeMap<String, u64>,
    /// What each client was told as its state: before the last time, and then.
    states: BTreeMap<String, (String, String)>,
    step: Option<Step>,
    start: DbTime,
    now: DbTime,
    /// What happened so far.
    events: Vec<Event>,
}

/// A transaction: what is said before the first line that looks at its result, and then its plan.
struct Step {
    work: Work,
    round: Option<String>,
    callers: Vec<String>,
    calls: Vec<Call>,
    done: Option<Plan>,
    heard: usize,
}

pub(super) fn run(lines: &[Line], start: DbTime) -> Result<Vec<Event>, Mismatch> {
    let mut world = World::new(start);
    let mut last = 0;
    for line in lines {
        world.line(&line.is).map_err(|detail| Mismatch { line: line.number, detail })?;
        last = line.number;
    }
    world.finish_step().map_err(|detail| Mismatch { line: last, detail })?;
    Ok(world.events)
}

impl World {
    fn new(start: DbTime) -> Self {
        let mut limits = Limits::of_grants(0, 10_000_000);
        limits.policy.round_period = 2_000_000;
        let mut store = MemoryStore::new();
        store.set_serving_since(Some(start));
        Self {
            key: SemaphoreKey::new("key"),
            store,
            copy: None,
            limits,
            aliases: Aliases::default(),
            seen: BTreeMap::new(),
            states: BTreeMap::new(),
            step: None,
            start,
            now: start,
            events: vec![Event::Serving(Some(start))],
        }
    }

    fn line(&mut self, is: &Is) -> Result<(), String> {
        match is {
            Is::Says(client, sayings) => return self.says(client, sayings),
            Is::Hears { client, lost, phrases } => return self.hears(client, *lost, phrases),
            Is::Usage { key, groups } => return self.usage(*key, groups),
            Is::State { client, same } => return self.state(client, *same),
            Is::Blocked(phrases) => return self.blocked(phrases),
            Is::Audit(phrases) => return self.audit(phrases),
            Is::Order(names) => return self.order(names),
            Is::Due(at) => return self.due(at.map(|at| self.start + at)),
            Is::Numbered(name, other) => {
                self.transact()?;
                let named = super::words::RoundName { base: name.clone(), plus: 0 };
                return same("the round", &self.round(other)?, &self.round(&named)?);
            }
            _ => self.finish_step()?,
        }
        match is {
            Is::Begin { at, work, round } => {
                self.now = self.start + *at;
                let (callers, calls) = Default::default();
                let round = round.clone();
                self.step = Some(Step { work: *work, round, callers, calls, done: None, heard: 0 });
            }
            Is::Damaged { round } => {
                self.store.set_round(&self.key, *round);
                self.events.push(Event::Damaged { round: *round });
            }
            Is::Copy => {
                self.copy = Some(self.store.clone());
                self.events.push(Event::Copy);
            }
            Is::Restore => {
                self.store = self.copy.clone().ok_or("there is no copy")?;
                self.events.push(Event::Restore);
            }
            Is::Serving(since) => {
                let since = since.map(|since| self.start + since);
                self.store.set_serving_since(since);
                self.events.push(Event::Serving(since));
            }
            Is::NoPolicy => self.set_limits(None),
            Is::Set(setting) => {
                setting.apply(&mut self.limits);
                self.set_limits(Some(self.limits.clone()));
            }
            _ => {}
        }
        Ok(())
    }

    fn set_limits(&mut self, limits: Option<Limits>) {
        self.events.push(Event::Limits(limits.clone().map(Box::new)));
        self.store.set_limits(&self.key, limits);
    }

    fn round(&self, name: &super::words::RoundName) -> Result<u64, String> {
        self.aliases.round(name, self.now)
    }

    fn says(&mut self, client: &str, sayings: &[Saying]) -> Result<(), String> {
        let mut call = Call {
            client: ClientId::new(client),
            from: Incarnation::default(),
            all: false,
            seen: self.seen.get(client).copied().unwrap_or(0),
            waited: 0,
            asks: true,
            demand: Vec::new(),
            grants: Vec::new(),
            leases: Vec::new(),
            takes_leases: false,
            applied: false,
        };
        for saying in sayings {
            match saying {
                Saying::Nothing => {}
                Saying::Waited(waited) => call.waited = *waited,
                Saying::Seen(round) => call.seen = self.round(round)?,
                Saying::Wants { count, group, age } => {
                    let group = Group::new(group);
                    call.demand.push(Demand { group, count: *count, oldest_age: *age });
                }
                Saying::TakesLeases => call.takes_leases = true,
                Saying::Generation(generation) => call.from.generation = *generation,
                Saying::Process(name) => call.from.process = Some(name.clone()),
                Saying::Resumes => call.from.resumes = true,
                Saying::All => call.all = true,
                Saying::Syncs => call.asks = false,
                Saying::Report(report) => self.report(report, &mut call)?,
            }
        }
        let step = self.step.as_mut().filter(|step| step.done.is_none());
        let step = step.ok_or("nobody can speak here: a new `at` is missing")?;
        step.callers.push(client.to_owned());
        step.calls.push(call);
        Ok(())
    }

    fn report(&self, report: &Report, call: &mut Call) -> Result<(), String> {
        let (kind, id) = self.aliases.id(&report.id)?;
        let Report { used, released, stopped, .. } = *report;
        if report.lease.unwrap_or(kind == Kind::Lease) {
            call.leases.push(LeaseReport { id, drawn: used, released, stopped });
        } else {
            call.grants.push(GrantReport { id, claimed: used, released });
        }
        Ok(())
    }

    /// Runs the transaction, once everything is said.
    fn transact(&mut self) -> Result<&mut Step, String> {
        let step = self.step.as_mut().ok_or("nothing has happened yet")?;
        if step.done.is_none() {
            let transaction = self.store.begin(&self.key, step.work, &step.calls, self.now);
            let plan = plan(&transaction, step)?;
            self.store.commit(&transaction, &plan).map_err(|_| "two transactions at once")?;
            if let Some(difference) = self.store.verify(&self.key).first() {
                return Err(format!("the counters are wrong: {difference}"));
            }
            if let Some(name) = &step.round {
                let (before, after) = (transaction.state.semaphore.round, plan.semaphore.round);
                if after <= before {
                    return Err(format!("the round is {after}, the one before was {before}"));
                }
                self.aliases.name_round(name, after);
            }
            self.events.push(Event::Transacted(Box::new(Transacted {
                now: self.now,
                work: step.work,
                calls: step.calls.clone(),
                answers: plan.answers.clone(),
                audit: plan.audit.clone(),
                semaphore: plan.semaphore.clone(),
            })));
            step.done = Some(plan);
        }
        Ok(step)
    }

    /// Blocks by their names, in the order of their ids.
    fn order(&mut self, names: &[String]) -> Result<(), String> {
        self.transact()?;
        let id = |name: &String| {
            let (_, id) = self.aliases.id(name)?;
            let id = BlockId::parse(&id).ok_or_else(|| format!("`{name}` is no block"))?;
            Ok((id, name.clone()))
        };
        let mut blocks = names.iter().map(id).collect::<Result<Vec<_>, String>>()?;
        blocks.sort_unstable();
        let sorted: Vec<String> = blocks.into_iter().map(|(_, name)| name).collect();
        same("the order", &names.to_vec(), &sorted)
    }

    fn hears(&mut self, client: &str, lost: bool, phrases: &[String]) -> Result<(), String> {
        let step = self.transact()?;
        let at = step.heard;
        step.heard += 1;
        if step.callers.get(at).map(String::as_str) != Some(client) {
            return Err(format!("answers come in the order of what was said: {:?}", step.callers));
        }
        let plan = step.done.as_ref().ok_or("no plan")?;
        let outcome = plan.answers.get(at).ok_or("no answer")?.clone();
        let made_in = (step.work == Work::Round).then_some(plan.semaphore.round);
        self.aliases.name_blocks(phrases, &outcome);
        same("the reply", &sorted(phrases.to_vec()), &sorted(self.aliases.phrases(&outcome, made_in)))?;
        if let Outcome::Answered(answer) = &outcome {
            let state = self.states.entry(client.to_owned()).or_default();
            *state = (std::mem::take(&mut state.1), answer.state.clone());
        }
        if let (Outcome::Answered(answer), false) = (outcome, lost) {
            let seen = self.seen.entry(client.to_owned()).or_default();
            *seen = answer.round.max(*seen);
        }
        Ok(())
    }

    fn usage(&mut self, key: Used, groups: &[(String, Used)]) -> Result<(), String> {
        self.transact()?;
        let nothing = crate::Rows::default();
        let rows = self.store.rows(&self.key).unwrap_or(&nothing);
        let used = |what: &str, expected: Used, (grants, leases)| match expected {
            Used::All(all) => same(what, &all, &(grants + leases)),
            Used::Each(of_grants, of_leases) => same(what, &(of_grants, of_leases), &(grants, leases)),
        };
        used("usage", key, (rows.semaphore.grants, rows.semaphore.leases))?;
        for (group, expected) in groups {
            let usage = rows.groups.get(&Group::new(group)).cloned().unwrap_or_default();
            used(&format!("usage of {group}"), *expected, (usage.grants, usage.leases))?;
        }
        Ok(())
    }

    fn state(&self, client: &str, expected: bool) -> Result<(), String> {
        let (before, now) = self.states.get(client).ok_or_else(|| format!("{client} was told nothing"))?;
        same("whether the state is as before", &expected, &(before == now))
    }

    fn blocked(&mut self, phrases: &[String]) -> Result<(), String> {
        self.transact()?;
        let clients = self.store.rows(&self.key).into_iter().flat_map(|rows| &rows.clients);
        let mut found: Vec<_> =
            clients.flat_map(|(id, client)| kept(id.as_str(), client, self.start)).collect();
        if found.is_empty() {
            found.push("nobody".to_owned());
        }
        same("blocked", &sorted(phrases.to_vec()), &sorted(found))
    }

    fn audit(&mut self, phrases: &[String]) -> Result<(), String> {
        let step = self.transact()?;
        let plan = step.done.as_ref().ok_or("no plan")?;
        let mut found: Vec<_> = plan.audit.iter().map(declared).collect();
        if found.is_empty() {
            found.push("nothing".to_owned());
        }
        same("the audit", &sorted(phrases.to_vec()), &sorted(found))
    }

    fn due(&mut self, at: Option<DbTime>) -> Result<(), String> {
        self.transact()?;
        let start = self.start;
        let ms = |at: DbTime| format!("{}ms", (at - start) / 1000);
        same("the next deadline", &at.map(ms), &self.store.next_deadline(&self.key).map(ms))
    }

    /// Everybody who spoke must have been answered.
    fn finish_step(&mut self) -> Result<(), String> {
        if self.step.is_none() {
            return Ok(());
        }
        let step = self.transact()?;
        if step.heard < step.callers.len() {
            return Err(format!("the script says nothing of the answer to {}", step.callers[step.heard]));
        }
        self.step = None;
        Ok(())
    }
}

fn plan(transaction: &Transaction, step: &Step) -> Result<Plan, String> {
    let plan = match step.work {
        Work::Round => round(&transaction.state, &step.calls),
        Work::Sync => sync(&transaction.state, &step.calls),
        Work::Timer => timer(&transaction.state),
    };
    match check(step.work, &transaction.state, &step.calls, &plan) {
        Ok(()) => Ok(plan),
        Err(violation) => Err(format!("the checker objects: {violation}")),
    }
}

fn sorted(mut phrases: Vec<String>) -> Vec<String> {
    phrases.sort();
    phrases
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, found: &T) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    Err(format!("{what} is not as the script says\n  script: {expected:?}\n  found:  {found:?}"))
}
