//! What replies changed, for whoever watches: it decides nothing.

use super::Ledger;

/// Something that the latest reply brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happening {
    /// A grant: permits for items that wait, or have gone meanwhile.
    Granted {
        /// Its group.
        group: String,
        /// Permits for items here.
        permits: u64,
    },
    /// A lease.
    Lent {
        /// Its group.
        group: String,
        /// Permits to draw.
        permits: u64,
    },
    /// The holder wants a lease back.
    Retired {
        /// Its group.
        group: String,
        /// Permits that had not been drawn, and are not any more.
        undrawn: u64,
    },
    /// Others have begun or ceased to lack permits.
    Contended {
        /// Somebody lacks permits of the shared limit.
        key: bool,
        /// Groups with leases here whose ceilings somebody lacks permits of.
        groups: Vec<String>,
    },
}

impl Ledger {
    /// What the latest reply changed, once; what nobody asks for is forgotten with the next one.
    pub fn happened(&mut self) -> Vec<Happening> {
        std::mem::take(&mut self.happened)
    }
}
