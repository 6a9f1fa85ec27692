//! What the ledger hears: how each call ended, and what the holder says of its blocks.

use queue_wire::{GrantVerdict, Reply, SAFE_INTEGER_MAX, Status};

use super::grant::Grant;
use super::lease::Told;
use super::patience::HELD_MAX_MS;
use super::speak::{Kind, Lane};
use super::{BlockId, Happening, Ledger};

impl Ledger {
    /// Takes in the 200 to call `number`, whenever and however often it comes. `ask_again_at_ms` is when demand that
    /// stays blocked is stated again, if nothing changes before. Returns how many running items have a permit of a block
    /// that the holder doesn't count (any more); 0 unless somebody declared this client, or one of its items, dead.
    pub fn replied(&mut self, number: u64, reply: &Reply, ask_again_at_ms: u64) -> u64 {
        if self.fenced || self.is_deaf_to(number) {
            return 0;
        }
        self.happened.clear();
        let ended = self.end(number);
        // What a request reports is taken in in its first round, and it may have been answered after a later one.
        let parked = ended.is_some_and(|ended| ended.kind != Kind::Sync);
        let held = reply.held_ms.min(HELD_MAX_MS);
        let told = Told { number, at: ended.map(|ended| ended.sent_at.saturating_add(held)), parked };
        let state_before = self.known_state.clone();
        self.hear_contention(reply);
        let lost_grants: u64 = reply.grants.iter().map(|verdict| self.hear(verdict)).sum();
        let lost_leases: u64 = reply.leases.iter().map(|verdict| self.hear_lease(verdict, told)).sum();
        let lost = lost_grants + lost_leases + self.reconciled();
        self.tell_all |= reply.round < self.seen;
        self.seen = self.seen.max(reply.round.min(SAFE_INTEGER_MAX));
        if self.unanswered.is_some_and(|first| number >= first) {
            self.unanswered = None;
        }
        if let Some(ended) = ended {
            self.heard(told.at, reply.report_within_ms, ended.newest);
            if ended.kind == Kind::Sync && !ended.newest {
                self.answered_late();
            }
        }
        if let Some(ended) = ended.filter(|ended| ended.newest) {
            match ended.kind {
                Kind::Request => {
                    self.demand_turn = self.demand_turn.wrapping_add(1);
                    self.stated = !reply.blocked.is_empty();
                    self.ask_again_at = ask_again_at_ms;
                }
                Kind::Sync => {}
                Kind::Parked => self.park_again(ended.sent_at, self.known_state == state_before),
            }
        }
        lost
    }

    /// Call `number` ended without an answer, and may have been carried out or may still be. What it was for is said
    /// again, not before `retry_at_ms`.
    pub fn failed(&mut self, number: u64, retry_at_ms: u64) {
        if self.is_deaf_to(number) {
            return;
        }
        // One that a later call took the place of says nothing about the holder.
        self.tell_all_now |= self.retry(number, retry_at_ms);
        self.tell_all |= self.tell_all_now;
        let covered_by = [&self.request, &self.sync].into_iter().filter_map(|lane| lane.after(number));
        self.answer_needed(covered_by.min().unwrap_or(self.last_call + 1));
    }

    /// Every call under way ends without an answer. What they were for is said again at once.
    pub fn interrupted(&mut self) {
        let lanes = [&self.request, &self.sync, &self.parked];
        let under_way: Vec<u64> = lanes.into_iter().flat_map(Lane::under_way).collect();
        for number in under_way {
            self.failed(number, 0);
        }
    }

    /// Call `number` was refused, so it had no effect but that of its reports.
    pub fn refused(&mut self, number: u64, retry_at_ms: u64) {
        if !self.is_deaf_to(number) {
            self.retry(number, retry_at_ms);
            self.stated = false;
        }
    }

    /// Call `number` was answered that the holder knows neither the key nor a block of it. Returns how many running
    /// items are not counted any more.
    pub fn forgotten(&mut self, number: u64) -> u64 {
        if self.is_deaf_to(number) {
            return 0;
        }
        let lost = self.running_by_block().map(|(_, running)| running).sum::<u64>();
        self.refused(number, 0);
        lost + self.forget()
    }

    fn hear(&mut self, verdict: &GrantVerdict) -> u64 {
        let id = BlockId(verdict.id.as_str().into());
        let Some(before) = self.grants.get(&id) else {
            let new = verdict.round.is_some_and(|round| round > self.seen);
            // Of a status that we don't know nothing runs before the holder has confirmed the claim.
            let open = matches!(verdict.status, Status::Active | Status::Expired | Status::Other);
            if let Some(mut grant) = (new && open).then(|| Grant::taken_up(verdict)).flatten() {
                self.end_declared(&id, grant.adopt(self.declared(&id)));
                let (group, permits) = (grant.group.clone(), grant.covered());
                self.happened.push(Happening::Granted { group, permits });
                self.put(id, grant);
            }
            return 0;
        };
        let (returned, running) = (before.returned(), before.running());
        let mut grant = before.clone();
        let open = grant.hear(verdict);
        if !open || grant.returned() > returned {
            self.ask_again_at = 0; // capacity has come back, perhaps for the demand that is blocked
        }
        let group = grant.group.clone();
        self.noting_demand(&group, |ledger| if open { ledger.put(id, grant) } else { ledger.set(id, None) });
        if open { 0 } else { running }
    }
}
