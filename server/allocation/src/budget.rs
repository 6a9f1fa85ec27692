//! What grants and leases may use, by the mode of provisioning.

use crate::names::Permits;
use crate::state::{Extra, Policy, Provisioning, Semaphore};

/// Usage of a key, with what is charged against this round only.
#[derive(Clone, Copy)]
pub(crate) struct Usage {
    grants: Permits,
    leases: Permits,
}

impl Usage {
    pub(crate) fn new(semaphore: &Semaphore, charged: Permits) -> Self {
        Self { grants: semaphore.grants, leases: semaphore.leases + charged }
    }

    fn all(self) -> Permits {
        self.grants + self.leases
    }
}

/// What grants may still use; negative after a lowering, `None` where the limit can't be resolved.
pub(crate) fn for_grants(policy: &Policy, usage: Usage) -> Option<Permits> {
    let limit = policy.limit?;
    Some(match policy.provisioning {
        Provisioning::None | Provisioning::Strict => limit - usage.all(),
        Provisioning::Under { reserve } => {
            (limit - reserved(limit, reserve) - usage.grants).min(limit - usage.all())
        }
        Provisioning::Over { .. } => limit - usage.grants,
    })
}

/// What leases may still use; negative after a lowering, `None` where the limit can't be resolved.
pub(crate) fn for_leases(policy: &Policy, usage: Usage) -> Option<Permits> {
    let limit = policy.limit?;
    Some(match policy.provisioning {
        Provisioning::None => 0,
        Provisioning::Strict => limit - usage.all(),
        Provisioning::Under { reserve } => (reserved(limit, reserve) - usage.leases).min(limit - usage.all()),
        Provisioning::Over { extra } => self::extra(limit, extra) - usage.leases,
    })
}

/// The reserve never takes the last permit, so that grants always keep one.
fn reserved(limit: Permits, reserve: Permits) -> Permits {
    reserve.min(limit - 1).max(0)
}

/// A limit of 0 stops leases too.
fn extra(limit: Permits, extra: Extra) -> Permits {
    match extra {
        Extra::Permits(_) if limit == 0 => 0,
        Extra::Permits(permits) => permits,
        Extra::Millionths(ratio) => limit.saturating_mul(ratio) / 1_000_000,
    }
}
