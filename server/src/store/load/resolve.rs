//! Limits and permissions that functions of users say, asked once a round. What they don't answer fails closed.

use super::Reader;
use crate::store::StoreError;
use pgsemaphore_allocation::{BlockId, Call, ClientId, Group};
use sqlx::FromRow;
use std::collections::BTreeSet;

/// All calls of a round together have this long, in ms.
const TIME_FOR_ALL: &str = "250";
/// What other statements have, as `store/session.rs` says, in ms.
const TIME_FOR_OTHERS: &str = "20000";

/// Names of functions, of the policy that wins.
#[derive(Default)]
pub(super) struct Functions {
    pub(super) limit: Option<String>,
    pub(super) group_limit: Option<String>,
    pub(super) can_grant: Option<String>,
}

impl Functions {
    fn call(&self, said: &Said) -> FunctionCall {
        let (field, name) = match said.asked.as_str() {
            "limit" => ("limit_function", &self.limit),
            "group_limit" => ("group_limit_function", &self.group_limit),
            _ => ("can_grant_function", &self.can_grant),
        };
        FunctionCall {
            field,
            name: name.clone().unwrap_or_default(),
            client: said.client_id.clone(),
            group: said.grp.clone(),
            failure: said.failure.clone(),
        }
    }

    fn are_none(&self) -> bool {
        self.limit.is_none() && self.group_limit.is_none() && self.can_grant.is_none()
    }
}

/// A call of a function, for those who watch whether it works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FunctionCall {
    /// The policy's field that names it.
    pub(crate) field: &'static str,
    pub(crate) name: String,
    /// What it was asked about, beside the key.
    pub(crate) client: Option<String>,
    pub(crate) group: Option<String>,
    /// Why it said nothing.
    pub(crate) failure: Option<String>,
}

/// What a function said.
#[derive(FromRow)]
struct Said {
    asked: String,
    client_id: Option<String>,
    grp: Option<String>,
    permits: Option<i32>,
    permitted: Option<bool>,
    failure: Option<String>,
}

impl Said {
    /// What it said does not count.
    fn fail(&mut self, failure: &str) {
        (self.permits, self.permitted, self.failure) = (None, None, Some(failure.to_owned()));
    }
}

/// Takes away the row that says that the functions changed the session, and gives its text.
fn left_behind(said: &mut Vec<Said>) -> Option<String> {
    said.pop_if(|said| said.asked == "session").and_then(|said| said.failure)
}

impl Reader<'_> {
    /// Asks the functions about this round: the limit, the groups of its demand and of its reports, and who has demand
    /// or an active lease.
    pub(super) async fn resolve(&mut self, functions: &Functions) -> Result<(), StoreError> {
        if functions.are_none() {
            return Ok(());
        }
        let groups: Vec<String> = self.groups_to_resolve().iter().map(Group::to_string).collect();
        let (clients, client_groups): (Vec<_>, Vec<_>) = self
            .owners_to_judge()
            .iter()
            .map(|(client, group)| (client.to_string(), group.to_string()))
            .unzip();
        self.allow(TIME_FOR_ALL).await?;
        let query = sqlx::query_as(include_str!("../../../queries/resolve.sql"))
            .bind(self.key.as_str())
            .bind(&functions.limit)
            .bind(&functions.group_limit)
            .bind(groups)
            .bind(&functions.can_grant)
            .bind(clients)
            .bind(client_groups);
        let mut said: Vec<Said> = query.fetch_all(&mut *self.attempt.tx).await?;
        if let Some(failure) = left_behind(&mut said) {
            self.attempt.tx.spoil().await?;
            said.iter_mut().for_each(|said| said.fail(&failure));
        }
        self.allow(TIME_FOR_OTHERS).await?;
        for said in said {
            self.asked.push(functions.call(&said));
            self.heed(said);
        }
        Ok(())
    }

    async fn allow(&mut self, millis: &str) -> Result<(), StoreError> {
        let query = sqlx::query(include_str!("../../../queries/set_statement_timeout.sql")).bind(millis);
        query.execute(&mut *self.attempt.tx).await?;
        Ok(())
    }

    /// Groups named by demand, or by a block that is reported, without a limit in the policy.
    fn groups_to_resolve(&self) -> BTreeSet<Group> {
        let reported = self.calls.iter().flat_map(Call::reported).filter_map(BlockId::parse);
        let reported =
            reported.filter_map(|id| self.state.blocks.get(&id.slot).filter(|block| block.id == id));
        let demanded = self.calls.iter().flat_map(|call| &call.demand).map(|demand| &demand.group);
        let named = demanded.chain(reported.map(|block| &block.group));
        named
            .filter(|group| self.state.groups.get(*group).is_some_and(|usage| usage.limit.is_none()))
            .cloned()
            .collect()
    }

    /// Who has demand, and calling clients with an active lease.
    fn owners_to_judge(&self) -> BTreeSet<(ClientId, Group)> {
        let demands = self.calls.iter().flat_map(|call| call.demand.iter().map(move |demand| (call, demand)));
        let wanting = demands
            .filter(|(_, demand)| demand.count > 0)
            .map(|(call, demand)| (call.client.clone(), demand.group.clone()));
        let calling: BTreeSet<&ClientId> = self.calls.iter().map(|call| &call.client).collect();
        let leases = self.state.blocks.values().filter(|block| block.is_live_lease());
        let lent = leases.filter(|lease| calling.contains(&lease.client));
        wanting.chain(lent.map(|lease| (lease.client.clone(), lease.group.clone()))).collect()
    }

    fn heed(&mut self, said: Said) {
        let state = &mut self.state;
        let permits = said.permits.map(i64::from);
        let group = Group::new(said.grp.unwrap_or_default());
        match (said.asked.as_str(), said.client_id) {
            ("limit", _) => {
                if let Some(policy) = &mut state.policy {
                    policy.limit = permits;
                }
            }
            ("group_limit", _) => {
                if let Some(usage) = state.groups.get_mut(&group) {
                    usage.limit = permits;
                    usage.unresolved = said.failure.is_some();
                }
            }
            (_, Some(client)) if said.permitted != Some(true) => {
                state.not_permitted.insert((ClientId::new(client), group));
            }
            _ => {}
        }
    }
}
