//! How often what matters happened, beside the steps: a world in which it hardly does shows nothing.

use super::World;
use super::holder::Job;
use crate::store::Rows;
use pgsemaphore_allocation::{Act, Block, Kind, Provisioning, Status};

impl World {
    pub(super) fn count(&mut self, what: &'static str) {
        *self.census.entry(what).or_default() += 1;
    }

    /// What was declared of clients.
    pub(super) fn count_declarations(&mut self, job: &Job) {
        for entry in &job.plan.audit {
            self.count(match entry.act {
                Act::Takeover { resume: true } => "a successor resumes",
                Act::Takeover { resume: false } => "a successor takes over",
                Act::SettleSilent => "a silent client is settled",
                Act::UnknownToClient => "blocks unknown to their client are settled",
            });
        }
    }

    /// What a commit did to leases.
    pub(super) fn count_leases(&mut self, job: &Job, before: &Rows) {
        let after = self.rows();
        let leases = |rows: &Rows| -> Vec<Block> {
            rows.blocks.values().filter(|block| block.kind == Kind::Lease).cloned().collect()
        };
        let (old, new) = (leases(before), leases(&after));
        let made = new.iter().filter(|lease| old.iter().all(|other| other.id != lease.id)).count();
        for _ in 0..made {
            self.count(match job.limits.as_ref().map(|limits| limits.policy.provisioning) {
                Some(Provisioning::Strict) => "a lease is made: strict",
                Some(Provisioning::Under { .. }) => "a lease is made: under",
                Some(Provisioning::Over { .. }) => "a lease is made: over",
                Some(Provisioning::None) | None => "a lease is made: why?",
            });
        }
        for lease in &old {
            match new.iter().find(|other| other.id == lease.id) {
                None => self.count("a lease is settled"),
                Some(now) if now.stopped && !lease.stopped => self.count("a lease is stopped with items"),
                Some(now) if now.stopped && now.used > lease.used => {
                    self.count("a stopped lease is said to have drawn more");
                }
                Some(now) if now.status == Status::Retired && lease.status == Status::Active => {
                    self.count("a lease is retired");
                }
                Some(_) => {}
            }
        }
    }
}
