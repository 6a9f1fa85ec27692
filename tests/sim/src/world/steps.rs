//! What can happen in a world, and how often.

use super::World;
use super::network::{self, Packet};
use crate::audit::Violation;
use pgsemaphore_allocation::Work;

macro_rules! steps {
    ($($weight:literal $name:ident,)*) => {
        /// One thing that can happen.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Step { $($name,)* }

        impl Step {
            pub(super) fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }

        /// Out of their sum.
        pub(super) const WEIGHTS: [(u64, Step); [$($weight,)*].len()] = [$(($weight, Step::$name),)*];
    };
}

steps! {
    // The network
    500 Deliver,
    // Processes
    250 Speak,
    60 Queue,
    8 Cancel,
    80 StartItem,
    60 EndItem,
    20 PutBack,
    40 DrawSpare,
    12 Detach,
    // Holders
    90 BeginRound,
    150 BeginSync,
    20 BeginTimer,
    40 LookAgain,
    20 Heartbeat,
    10 WakeParked,
    300 Commit,
    // Time and people
    40 Pass,
    60 Other,
    4 Stranger,
    8 BuryTheDead,
    40 Thaw,
    2 Copy,
    // Faults
    30 Lose,
    30 Repeat,
    20 ComeLate,
    30 GiveUp,
    8 RollBack,
    20 PassLong,
    2 PassVeryLong,
    10 ChangeLimits,
    5 CrashProcess,
    4 Succeed,
    2 Outage,
    4 CrashHolder,
    5 FreezeProcess,
    5 FreezeHolder,
    5 SetClock,
    3 Restore,
}

impl Step {
    /// Whether fair worlds have less of it.
    pub(super) fn is_fault(self) -> bool {
        matches!(
            self,
            Self::Lose
                | Self::Repeat
                | Self::ComeLate
                | Self::GiveUp
                | Self::RollBack
                | Self::PassLong
                | Self::PassVeryLong
                | Self::ChangeLimits
                | Self::CrashProcess
                | Self::Succeed
                | Self::Outage
                | Self::CrashHolder
                | Self::FreezeProcess
                | Self::FreezeHolder
                | Self::SetClock
                | Self::Restore
        )
    }
}

impl World {
    /// Takes a step; false if there was nothing to take.
    pub(super) fn take(&mut self, step: Step) -> Result<bool, Violation> {
        match step {
            Step::Deliver => return self.deliver_any(),
            Step::Lose => return Ok(self.lose()),
            Step::Repeat => return Ok(self.repeat()),
            Step::ComeLate => return Ok(self.come_late()),
            Step::Speak => return Ok(self.any_process().is_some_and(|at| self.speak(at))),
            Step::Queue => return self.queue(),
            Step::Cancel => return Ok(self.cancel()),
            Step::StartItem => return Ok(self.start_item()),
            Step::EndItem => return Ok(self.end_item()),
            Step::PutBack => return self.put_back(),
            Step::DrawSpare => return self.draw_spare(),
            Step::GiveUp => return Ok(self.give_up()),
            Step::BeginRound => return self.begin_any(Work::Round),
            Step::BeginSync => return self.begin_any(Work::Sync),
            Step::BeginTimer => return self.begin_any(Work::Timer),
            Step::LookAgain => return Ok(self.any_holder().is_some_and(|at| self.look_again(at))),
            Step::Heartbeat => return Ok(self.heartbeat()),
            Step::Detach => return Ok(self.detach()),
            Step::Succeed => return Ok(self.succeed()),
            Step::Outage => self.outage(),
            Step::WakeParked => {
                let Some(at) = self.any_holder() else { return Ok(false) };
                return Ok(self.holders[at].wake(|_| true));
            }
            Step::Commit => return self.commit_any(),
            Step::RollBack => return Ok(self.roll_back()),
            Step::ChangeLimits => self.change_limits(),
            Step::Other => return self.other(),
            Step::Stranger => return Ok(self.stranger()),
            Step::BuryTheDead => return Ok(self.bury_the_dead()),
            Step::CrashProcess => return Ok(self.crash_process()),
            Step::CrashHolder => self.crash_holder(),
            Step::FreezeProcess => return Ok(self.freeze_process()),
            Step::FreezeHolder => return Ok(self.freeze_holder()),
            Step::Thaw => return Ok(self.thaw()),
            Step::SetClock => self.set_clock(),
            Step::Copy => self.copy(),
            Step::Restore => return Ok(self.restore()),
            Step::Pass => {
                let by = self.random.between(0, 20_000);
                self.pass(by);
            }
            Step::PassVeryLong => {
                let by = self.random.between(8_000_000, 90_000_000);
                self.pass(by);
                self.trace.say(|| format!("{} ms pass", by / 1000));
            }
            Step::PassLong => {
                let by = self.random.between(100_000, 8_000_000);
                self.pass(by);
                self.trace.say(|| format!("{} ms pass", by / 1000));
            }
        }
        Ok(true)
    }

    /// Whoever is parked is looked at.
    pub(super) fn look_again(&mut self, at: usize) -> bool {
        self.conclude(at);
        self.holders[at].roused = true;
        self.holders[at].look_again()
    }

    fn lose(&mut self) -> bool {
        let Some(at) = self.network.any(&mut self.random) else { return false };
        let packet = self.network.take(at);
        self.trace.say(|| format!("lost: {}", network::told(&packet)));
        true
    }

    fn repeat(&mut self) -> bool {
        let Some(at) = self.network.any(&mut self.random) else { return false };
        let Some(packet) = self.network.get(at).cloned() else { return false };
        self.trace.say(|| format!("repeated: {}", network::told(&packet)));
        if self.random.percent(50) {
            self.network.keep_for_later(packet, &mut self.random);
        } else {
            self.send(packet);
        }
        true
    }

    fn come_late(&mut self) -> bool {
        let Some(packet) = self.network.late(&mut self.random) else { return false };
        self.trace.say(|| format!("comes late: {}", network::told(&packet)));
        self.send(packet);
        true
    }

    /// Any packet, so that they overtake each other.
    fn deliver_any(&mut self) -> Result<bool, Violation> {
        let Some(at) = self.network.any(&mut self.random) else { return Ok(false) };
        let asleep = match self.network.get(at) {
            Some(Packet::Call { holder, .. } | Packet::HangUp { holder, .. }) => self.holders[*holder].frozen,
            Some(Packet::Answer { name, .. }) => {
                self.processes.iter().any(|process| process.serial == name.from && process.frozen)
            }
            None => true,
        };
        if asleep {
            return Ok(false);
        }
        let packet = self.network.take(at);
        self.deliver(packet)?;
        Ok(true)
    }
}
