//! What a transaction changed that somebody may be waiting for, in this holder and in others.

use crate::hints::News;
use pgsemaphore_allocation::{Call, Client, ClientId, DbTime, Group, GroupUsage, Plan, State};
use std::collections::BTreeSet;

/// What may be different after a transaction.
#[derive(Debug)]
pub(crate) struct Stirred {
    clients: Clients,
    /// Permits came back.
    pub(crate) freed: bool,
    /// What other holders should be told.
    pub(crate) news: Option<News>,
}

/// Clients whose state may differ, or of whom other processes are admitted.
#[derive(Debug)]
enum Clients {
    /// Those whose blocks it changed.
    Some(BTreeSet<ClientId>),
    /// Any: what they share changed.
    All,
}

impl Stirred {
    /// Nothing changed.
    pub(crate) fn nothing() -> Self {
        Self { clients: Clients::Some(BTreeSet::new()), freed: false, news: None }
    }

    /// What `plan` changes, for others than those who `calls` are from and who hear of it in their answers.
    pub(crate) fn by(state: &State, plan: &Plan, calls: &[Call]) -> Self {
        let clients = clients(state, plan);
        let freed = freed(state, plan);
        let calling: BTreeSet<&ClientId> = calls.iter().map(|call| &call.client).collect();
        let is_answered = |id: &ClientId| calling.contains(id) && !has_new_speaker(state, plan, id);
        let concerns_others = match &clients {
            Clients::Some(clients) => !clients.iter().all(is_answered),
            Clients::All => true,
        };
        let news = if concerns_others {
            Some(News::Changed)
        } else {
            (freed && anybody_lacks(plan)).then_some(News::Freed)
        };
        Self { clients, freed, news }
    }

    /// Whether the state of this client may differ.
    pub(crate) fn includes(&self, client: &ClientId) -> bool {
        match &self.clients {
            Clients::Some(clients) => clients.contains(client),
            Clients::All => true,
        }
    }
}

fn clients(state: &State, plan: &Plan) -> Clients {
    let mark = |until| is_marked(until, plan.now);
    let group_before = |group| state.groups.get(group).and_then(|usage| usage.contended_until);
    let mut groups = plan.groups.iter();
    if mark(state.semaphore.contended_until) != mark(plan.semaphore.contended_until)
        || groups.any(|(group, usage)| mark(group_before(group)) != mark(usage.contended_until))
    {
        return Clients::All;
    }
    let before = |id: &ClientId| state.clients.get(id).map(|client| client.open_blocks);
    let differs = |id: &ClientId, now: &Client| before(id) != Some(now.open_blocks);
    let changed =
        plan.clients.iter().filter(|(id, now)| differs(id, now) || has_new_speaker(state, plan, id));
    Clients::Some(changed.map(|(id, _)| id.clone()).collect())
}

/// Whether the client's earlier process, which may have calls that are parked, is refused from now on.
fn has_new_speaker(state: &State, plan: &Plan, id: &ClientId) -> bool {
    let now = plan.clients.get(id);
    now.is_some() && state.clients.get(id).map(Client::speaker) != now.map(Client::speaker)
}

/// Whether usage of grants or of leases fell, of the key or of a group: each of them has a budget.
fn freed(state: &State, plan: &Plan) -> bool {
    let (before, after) = (&state.semaphore, &plan.semaphore);
    let fell = |(group, after): (&Group, &GroupUsage)| {
        let before = state.groups.get(group);
        before.is_some_and(|before| after.grants < before.grants || after.leases < before.leases)
    };
    after.grants < before.grants || after.leases < before.leases || plan.groups.iter().any(fell)
}

/// Whether what came back may be what somebody lacks. Whoever is parked has left a mark: of the key if the limit is what
/// holds it up, of its group if a ceiling is; and only what came back in that group helps against a ceiling.
fn anybody_lacks(plan: &Plan) -> bool {
    let mut marks = plan.groups.values().map(|usage| usage.contended_until);
    is_marked(plan.semaphore.contended_until, plan.now) || marks.any(|until| is_marked(until, plan.now))
}

fn is_marked(until: Option<DbTime>, now: DbTime) -> bool {
    until.is_some_and(|until| until > now)
}
